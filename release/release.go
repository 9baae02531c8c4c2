package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/coppice-dev/coppice/release/internal/archive"
	"github.com/coppice-dev/coppice/release/internal/compile"
	"github.com/coppice-dev/coppice/release/internal/deployment"
	"github.com/coppice-dev/coppice/release/internal/envtest"
	"github.com/coppice-dev/coppice/release/internal/gomodule"
	"github.com/coppice-dev/coppice/release/internal/image"
	"github.com/coppice-dev/coppice/release/internal/manifests"
	"github.com/coppice-dev/coppice/release/internal/sbom"
	"github.com/coppice-dev/coppice/release/internal/target"
)

const (
	// sumsName is the file with the checksums of all others.
	sumsName = "SHA256SUMS"
	// proxyName is the directory that is a proxy of Go modules.
	proxyName = "go"
	// largest is the maximum size of a download: 40 MB.
	largest = 40_000_000
)

// release is a release in the making.
type release struct {
	version, kubernetes string
	baseURL, image      string
	repository, output  string
	linkerFlags         string
	made                time.Time
	report              io.Writer // receives the report
	targets             []target.Target

	work    string                   // the directory of intermediate files
	built   map[target.Target]string // directories with programs
	omitted []string                 // the further files of a full release, and why they are not made
}

// make makes all files. It builds one platform after the other, to need less memory; Go uses all
// cores for each.
func (r *release) make(ctx context.Context) error {
	if err := r.prepare(); err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(r.work) }()
	for _, t := range r.targets {
		if err := r.compile(ctx, t); err != nil {
			return err
		}
		if err := r.pack(t); err != nil {
			return fmt.Errorf("pack for %s: %w", t, err)
		}
	}
	for _, step := range []func() error{r.packAssetsIndex, r.packImage, r.packDeployment, r.packManifests, r.packModule} {
		if err := step(); err != nil {
			return err
		}
	}
	sums, err := r.sums()
	if err != nil {
		return err
	}
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		fmt.Fprintf(&text, "%s  %s\n", sums[name], name)
	}
	if err := r.write(sumsName, []byte(text.String())); err != nil {
		return err
	}
	if len(r.omitted) > 0 {
		fmt.Fprintf(&text, "left out:\n  %s\n", strings.Join(r.omitted, "\n  "))
	}
	_, err = io.WriteString(r.report, text.String())
	return err
}

// omit notes for the report which files are not made, and why.
func (r *release) omit(format string, args ...any) {
	r.omitted = append(r.omitted, fmt.Sprintf(format, args...))
}

// prepare empties the output of an earlier release, which is recognized by its checksums.
func (r *release) prepare() error {
	switch entries, err := os.ReadDir(r.output); {
	case err == nil && len(entries) > 0:
		if _, err := os.Stat(filepath.Join(r.output, sumsName)); err != nil {
			return fmt.Errorf("%s has files, but is not the output of a release: remove it", r.output)
		}
		if err := os.RemoveAll(r.output); err != nil {
			return err
		}
	case err != nil && !os.IsNotExist(err):
		return err
	}
	if err := os.MkdirAll(r.output, 0o755); err != nil {
		return err
	}
	var err error
	r.work, err = os.MkdirTemp("", "coppice-release-")
	return err
}

// compile builds the programs for a platform.
func (r *release) compile(ctx context.Context, t target.Target) error {
	dir := filepath.Join(r.work, t.OS+"-"+t.Arch)
	for name, program := range map[string]compile.Program{
		"coppice":  {Module: r.repository, Package: "./cmd/coppice", Flags: r.linkerFlags},
		"launcher": {Module: filepath.Join(r.repository, "release"), Package: "./launcher"},
	} {
		if err := program.Build(ctx, t, filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	r.built[t] = dir
	return nil
}

// pack makes the archives for a platform.
func (r *release) pack(t target.Target) error {
	coppice := filepath.Join(r.built[t], "coppice")
	files := []archive.File{archive.Executable(t.Program("coppice"), coppice)}
	for _, name := range []string{"CHANGELOG.md", "LICENSE", "README.md"} {
		files = append(files, archive.File{Name: name, Path: filepath.Join(r.repository, name), Mode: 0o644})
	}
	packer := archive.TarGz
	if t.OS == "windows" {
		packer = archive.Zip
	}
	if err := r.create(t.Archive(r.version), files, packer); err != nil {
		return err
	}
	assets := envtest.Files(t, coppice, filepath.Join(r.built[t], "launcher"))
	if err := r.create(envtest.ArchiveName(r.kubernetes, t), assets, archive.TarGz); err != nil {
		return err
	}
	bill, err := sbom.Write(coppice, r.version, r.made)
	if err != nil {
		return err
	}
	return r.write(t.BillOfMaterials(r.version), bill)
}

func (r *release) packAssetsIndex() error {
	var names []string
	for _, t := range r.targets {
		names = append(names, envtest.ArchiveName(r.kubernetes, t))
	}
	index, err := envtest.Index(r.kubernetes, r.baseURL, r.output, names)
	if err != nil {
		return err
	}
	return r.write(envtest.IndexName, index)
}

// packImage makes the image, for the architectures that were built for Linux.
func (r *release) packImage() error {
	binaries := map[string]string{}
	var missing []string
	for _, t := range target.All() {
		dir, isBuilt := r.built[t]
		switch {
		case t.OS == "linux" && isBuilt:
			binaries[t.Arch] = filepath.Join(dir, "coppice")
		case t.OS == "linux":
			missing = append(missing, t.String())
		}
	}
	if len(binaries) == 0 {
		r.omit("the image, which the chart and the kustomizations name: it needs one of %s", strings.Join(missing, ", "))
		return nil
	}
	if len(missing) > 0 {
		r.omit("%s in the image: it was not built", strings.Join(missing, ", "))
	}
	made := image.Image{Name: r.image, Version: r.version, Created: r.made, Binaries: binaries}
	digest, err := made.Write(filepath.Join(r.output, "coppice-"+r.version+"-image.tar"))
	if err != nil {
		return err
	}
	return r.write("image.txt", []byte(r.image+":"+r.version+"@"+digest+"\n"))
}

func (r *release) packDeployment() error {
	d := deployment.Release{Version: r.version, Image: r.image, Made: r.made}
	if _, err := d.Chart(filepath.Join(r.repository, "deploy/helm/coppice"), r.output); err != nil {
		return err
	}
	_, err := d.Kustomizations(filepath.Join(r.repository, "deploy/kustomize"), r.output)
	return err
}

// packManifests writes the files that name the archives of the platforms that were built.
func (r *release) packManifests() error {
	var missing []string
	for _, t := range target.All() {
		if r.built[t] == "" {
			missing = append(missing, t.String())
		}
	}
	if len(missing) > 0 {
		r.omit("the archives for %s: they are not among -targets", strings.Join(missing, ", "))
	}
	sums, err := r.sums()
	if err != nil {
		return err
	}
	made := manifests.Release{Version: r.version, BaseURL: r.baseURL, Sums: sums, Targets: r.targets}
	for _, file := range manifests.Files() {
		if needed := file.Missing(r.targets); needed != "" {
			r.omit("%s: it needs %s", file.Name, needed)
			continue
		}
		data, err := made.Render(file)
		if err != nil {
			return err
		}
		if err := r.write(file.Name, data); err != nil {
			return err
		}
	}
	return nil
}

// packModule writes the collector as a module of its own.
func (r *release) packModule() error { return r.writeModule(filepath.Join(r.output, proxyName)) }

// writeModule writes the collector's module into a directory, which is then a module proxy.
func (r *release) writeModule(dir string) error {
	return gomodule.Module{Repository: r.repository, Version: r.version, Made: r.made}.Write(dir)
}

// create makes an archive, which must not be too large.
func (r *release) create(name string, files []archive.File, packer func(io.Writer, time.Time, []archive.File) error) error {
	path := filepath.Join(r.output, name)
	if err := archive.Create(path, r.made, files, packer); err != nil {
		return err
	}
	info, err := os.Stat(path)
	if err == nil && info.Size() > largest {
		err = fmt.Errorf("%s has %d bytes, more than %d", name, info.Size(), largest)
	}
	return err
}

func (r *release) write(name string, data []byte) error {
	return os.WriteFile(filepath.Join(r.output, name), data, 0o644)
}

// sums returns the SHA-256 of each existing file, by its slash-separated name.
func (r *release) sums() (map[string]string, error) {
	sums := map[string]string{}
	err := fs.WalkDir(os.DirFS(r.output), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || name == sumsName {
			return err
		}
		file, err := os.Open(filepath.Join(r.output, filepath.FromSlash(name)))
		if err != nil {
			return err
		}
		defer file.Close()
		hash := sha256.New()
		if _, err := io.Copy(hash, file); err != nil {
			return err
		}
		sums[name] = hex.EncodeToString(hash.Sum(nil))
		return nil
	})
	return sums, err
}
