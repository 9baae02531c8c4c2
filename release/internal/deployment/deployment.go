// Package deployment packs the Helm chart and the kustomizations with the name of a release's image
// in them.
package deployment

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/coppice-dev/coppice/release/internal/archive"
)

// Release is the release and its image.
type Release struct {
	Version string // with its v; it is the image's tag, too
	Image   string // without the tag
	Made    time.Time
}

// change replaces a line of a file.
type change struct{ file, line, by string }

// Chart packs the chart in dir and returns the name of the archive, in Helm's format.
func (r Release) Chart(dir, output string) (name string, err error) {
	plain := strings.TrimPrefix(r.Version, "v")
	name = "coppice-" + plain + ".tgz"
	return name, r.pack(dir, "coppice/", filepath.Join(output, name), []change{
		{"Chart.yaml", "version: 0.0.0", "version: " + plain},
		{"Chart.yaml", "appVersion: latest", "appVersion: " + r.Version},
		{"values.yaml", "  repository: coppice", "  repository: " + r.Image},
	})
}

// Kustomizations packs the kustomizations in dir and returns the name of the archive.
func (r Release) Kustomizations(dir, output string) (name string, err error) {
	name = "coppice-" + r.Version + "-kustomize.tar.gz"
	return name, r.pack(dir, "kustomize/", filepath.Join(output, name), []change{
		{"base/kustomization.yaml", "  newName: coppice", "  newName: " + r.Image},
		{"base/kustomization.yaml", "  newTag: latest", "  newTag: " + r.Version},
	})
}

func (r Release) pack(dir, prefix, output string, changes []change) error {
	files, err := archive.Tree(dir, prefix)
	if err != nil {
		return err
	}
	for i, f := range files {
		text, err := os.ReadFile(f.Path)
		if err != nil {
			return err
		}
		files[i].Path, files[i].Data = "", text
	}
	for _, c := range changes {
		if err := c.apply(files, prefix); err != nil {
			return err
		}
	}
	return archive.Create(output, r.Made, files, archive.TarGz)
}

// apply makes the change, or fails: a file that has changed must not be released with the wrong
// image.
func (c change) apply(files []archive.File, prefix string) error {
	for i, f := range files {
		if f.Name != prefix+c.file {
			continue
		}
		before := "\n" + string(f.Data)
		line := "\n" + c.line + "\n"
		if n := strings.Count(before, line); n != 1 {
			return fmt.Errorf("%s has the line %q %d times", c.file, c.line, n)
		}
		files[i].Data = []byte(strings.Replace(before, line, "\n"+c.by+"\n", 1)[1:])
		return nil
	}
	return fmt.Errorf("there is no %s", c.file)
}
