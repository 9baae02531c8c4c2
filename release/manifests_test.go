package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/coppice-dev/coppice/release/internal/target"
)

// download downloads a file of the release and checks its SHA-256.
func download(t *testing.T, url, sum string) []byte {
	t.Helper()
	response, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s, %v", url, response.Status, err)
	}
	if hash := sha256.Sum256(data); hex.EncodeToString(hash[:]) != sum {
		t.Errorf("%s has the checksum %x, not %s", url, hash, sum)
	}
	return data
}

// names returns the names of the files in an archive.
func names(t *testing.T, archive string, data []byte) []string {
	t.Helper()
	var found []string
	if strings.HasSuffix(archive, ".zip") {
		files, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files.File {
			found = append(found, f.Name)
		}
		return found
	}
	for name := range textsOf(t, data) {
		found = append(found, name)
	}
	return found
}

// textsOf returns the files in a compressed tar archive.
func textsOf(t *testing.T, data []byte) map[string]string {
	t.Helper()
	plain, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	texts := map[string]string{}
	for files := tar.NewReader(plain); ; {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			return texts
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(files)
		if err != nil {
			t.Fatal(err)
		}
		texts[header.Name] = string(text)
	}
}

// TestKrewManifest: what krew would do with the manifest works for each platform.
func TestKrewManifest(t *testing.T) {
	type file struct{ From, To string }
	var plugin struct {
		APIVersion, Kind string
		Metadata         struct{ Name string }
		Spec             struct {
			Version, Homepage, ShortDescription, Description string
			Platforms                                        []struct {
				Selector         struct{ MatchLabels map[string]string }
				URI, SHA256, Bin string
				Files            []file
			}
		}
	}
	if err := yaml.UnmarshalStrict([]byte(read(t, filepath.Join(made.dir, "coppice.yaml"))), &plugin); err != nil {
		t.Fatal(err)
	}
	if plugin.Metadata.Name != "coppice" || plugin.Spec.Version != testVersion {
		t.Errorf("it is the manifest of %s %s", plugin.Metadata.Name, plugin.Spec.Version)
	}
	var platforms []string
	for _, p := range plugin.Spec.Platforms {
		platform := target.Target{OS: p.Selector.MatchLabels["os"], Arch: p.Selector.MatchLabels["arch"]}
		platforms = append(platforms, platform.String())
		has := names(t, p.URI, download(t, p.URI, p.SHA256))
		for _, f := range p.Files {
			if !slices.Contains(has, f.From) {
				t.Errorf("%s has no %s, only %v", p.URI, f.From, has)
			}
		}
		if !slices.Contains(p.Files, file{platform.Program("coppice"), "."}) || p.Bin != platform.Program("coppice") {
			t.Errorf("on %s the program is %s of %v", platform, p.Bin, p.Files)
		}
	}
	var want []string
	for _, platform := range target.All() {
		want = append(want, platform.String())
	}
	if !slices.Equal(platforms, want) {
		t.Errorf("it is for %v, want %v", platforms, want)
	}
}

// TestArchivesOfTheFormulaHaveTheirChecksums: each archive that the formula names is there, and has the checksum beside it.
func TestArchivesOfTheFormulaHaveTheirChecksums(t *testing.T) {
	text := read(t, filepath.Join(made.dir, "coppice.rb"))
	sources := regexp.MustCompile(`url "([^"]+)"\s+sha256 "([^"]+)"`).FindAllStringSubmatch(text, -1)
	if len(sources) != 4 || strings.Count(text, "\nend\n") != 1 || !strings.Contains(text, `version "1.2.3"`) {
		t.Errorf("the formula is\n%s", text)
	}
	for _, s := range sources {
		if has := names(t, s[1], download(t, s[1], s[2])); !slices.Contains(has, "coppice") {
			t.Errorf("%s has only %v", s[1], has)
		}
	}
}

// TestChartAndKustomizations: both name the image of the release, and otherwise equal the source.
func TestChartAndKustomizations(t *testing.T) {
	for archive, want := range map[string]map[string]string{
		"coppice-1.2.3.tgz": {
			"coppice/Chart.yaml":  "\nversion: 1.2.3\nappVersion: " + testVersion + "\n",
			"coppice/values.yaml": "\n  repository: docker.io/library/coppice\n  tag: \"\"\n",
		},
		"coppice-v1.2.3-kustomize.tar.gz": {
			"kustomize/base/kustomization.yaml": "\n- name: coppice\n  newName: docker.io/library/coppice\n  newTag: " + testVersion + "\n",
		},
	} {
		t.Run(archive, func(t *testing.T) {
			texts := textsOf(t, []byte(read(t, filepath.Join(made.dir, archive))))
			for name, text := range texts {
				if line, ok := want[name]; ok {
					if !strings.Contains(text, line) {
						t.Errorf("%s does not have %q:\n%s", name, line, text)
					}
					continue
				}
				source := "../deploy/" + name
				if _, err := os.Stat(source); err != nil {
					source = "../deploy/helm/" + name
				}
				if text != read(t, source) {
					t.Errorf("%s is not %s", name, source)
				}
			}
			for name := range want {
				if texts[name] == "" {
					t.Errorf("there is no %s", name)
				}
			}
		})
	}
}

// TestBillOfMaterials: it names the program, its version and Go.
func TestBillOfMaterials(t *testing.T) {
	for _, platform := range target.All() {
		text := read(t, filepath.Join(made.dir, platform.BillOfMaterials(testVersion)))
		for _, want := range []string{
			`"bomFormat": "CycloneDX"`, `"purl": "pkg:golang/github.com/coppice-dev/coppice@v1.2.3"`, `"name": "std"`, `"value": "` + platform.OS + `"`,
		} {
			if !strings.Contains(text, want) {
				t.Errorf("%s: there is no %s in\n%s", platform, want, text)
			}
		}
	}
}
