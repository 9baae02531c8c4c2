package main

import (
	"archive/tar"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

func imageArchive(dir string) string {
	return filepath.Join(dir, "coppice-"+testVersion+"-image.tar")
}

// unpack unpacks a tar archive into a directory, which it returns.
func unpack(t *testing.T, path string) string {
	t.Helper()
	dir := t.TempDir()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for files := tar.NewReader(file); ; {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			return dir
		}
		if err != nil {
			t.Fatal(err)
		}
		to := filepath.Join(dir, filepath.FromSlash(header.Name))
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(files)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// images returns the images of the release in a directory by platform.
func images(t *testing.T, dir string) map[string]v1.Image {
	t.Helper()
	outer, err := layout.ImageIndexFromPath(unpack(t, imageArchive(dir)))
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := outer.IndexManifest()
	if err != nil || len(manifest.Manifests) != 1 {
		t.Fatalf("the layout has %v: %v", manifest, err)
	}
	if name := manifest.Manifests[0].Annotations["io.containerd.image.name"]; name != "docker.io/library/coppice:"+testVersion {
		t.Errorf("the image is called %q", name)
	}
	if want := fmt.Sprintf("docker.io/library/coppice:%s@%s\n", testVersion, manifest.Manifests[0].Digest); read(t, filepath.Join(dir, "image.txt")) != want {
		t.Errorf("image.txt does not say %q", want)
	}
	index, err := outer.ImageIndex(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(index); err != nil {
		t.Error(err)
	}
	if manifest, err = index.IndexManifest(); err != nil {
		t.Fatal(err)
	}
	found := map[string]v1.Image{}
	for _, m := range manifest.Manifests {
		image, err := index.Image(m.Digest)
		if err != nil {
			t.Fatal(err)
		}
		found[m.Platform.String()] = image
	}
	return found
}

// TestImageHasTheBinaryAndCertificatesOnly: for each architecture, the binary and certificates, and nothing else; it runs as
// nobody.
func TestImageHasTheBinaryAndCertificatesOnly(t *testing.T) {
	found := images(t, made.dir)
	if len(found) != 2 {
		t.Errorf("the image is for %d platforms, want 2", len(found))
	}
	for _, arch := range []string{"amd64", "arm64"} {
		t.Run(arch, func(t *testing.T) {
			image, ok := found["linux/"+arch]
			if !ok {
				t.Fatal("there is none")
			}
			file, err := image.ConfigFile()
			if err != nil {
				t.Fatal(err)
			}
			if c := file.Config; file.Architecture != arch || file.OS != "linux" || c.User != "65532:65532" || !slices.Equal(c.Entrypoint, []string{"/coppice"}) {
				t.Errorf("the configuration is %+v", file)
			}
			contents := map[string]fs.FileMode{}
			files := tar.NewReader(mutate.Extract(image))
			for header, err := files.Next(); !errors.Is(err, io.EOF); header, err = files.Next() {
				if err != nil {
					t.Fatal(err)
				}
				contents[header.Name] = fs.FileMode(header.Mode)
				if strings.HasSuffix(header.Name, ".crt") {
					checkCertificates(t, files)
				}
			}
			if len(contents) != 2 || contents["coppice"] != 0o755 || contents["etc/ssl/certs/ca-certificates.crt"] != 0o644 {
				t.Errorf("the image has %v", contents)
			}
		})
	}
}

// checkCertificates checks that a file has certificates of authorities, as many as a system has.
func checkCertificates(t *testing.T, file io.Reader) {
	t.Helper()
	text, err := io.ReadAll(file)
	if err != nil {
		t.Fatal(err)
	}
	count := 0
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		authority, err := x509.ParseCertificate(block.Bytes)
		if err != nil || !authority.IsCA {
			t.Errorf("%v is no certificate of an authority: %v", authority, err)
		}
		count++
	}
	if count < 100 {
		t.Errorf("there are %d certificates", count)
	}
}
