// Package manifests writes the files by which others install a release: a script, a manifest for
// krew, and a formula for Homebrew.
package manifests

import (
	"bytes"
	_ "embed" // the templates
	"fmt"
	"net/url"
	"strings"
	"text/template"

	"github.com/coppice-dev/coppice/release/internal/target"
)

//go:embed install.sh.tmpl
var installScript string

//go:embed krew.yaml.tmpl
var krewManifest string

//go:embed coppice.rb.tmpl
var formula string

// Release is what the files are about.
type Release struct {
	Version string            // with its v
	BaseURL string            // where the files of the release will be, without a slash at the end
	Sums    map[string]string // SHA-256 by file name, in hexadecimal
}

// Summary is what Coppice is, in the words of the package managers.
const Summary = "Garbage collection for Kubernetes-style APIs"

// CheckURL reports an error if files cannot be downloaded from below a URL. What it lets pass needs
// no quoting in the files.
func CheckURL(base string) error {
	parsed, err := url.Parse(base)
	if err != nil {
		return err
	}
	if parsed.Scheme != "https" && parsed.Scheme != "http" || parsed.Host == "" || strings.HasSuffix(base, "/") || strings.ContainsAny(base, " \"'`$\\#?") {
		return fmt.Errorf("%q is no base of URLs: give http or https, a host, and no slash at the end", base)
	}
	return nil
}

// Files returns the files by name.
func (r Release) Files() (map[string][]byte, error) {
	files := map[string][]byte{}
	for name, text := range map[string]string{"install.sh": installScript, "coppice.yaml": krewManifest, "coppice.rb": formula} {
		made, err := r.render(name, text)
		if err != nil {
			return nil, err
		}
		files[name] = made
	}
	return files, nil
}

func (r Release) render(name, text string) ([]byte, error) {
	functions := template.FuncMap{
		"sum": func(file string) (string, error) {
			if sum, ok := r.Sums[file]; ok {
				return sum, nil
			}
			return "", fmt.Errorf("there is no %s in the release", file)
		},
		"url":   func(file string) string { return r.BaseURL + "/" + file },
		"plain": func(version string) string { return strings.TrimPrefix(version, "v") },
		"file": func(system, arch string) string {
			return target.Target{OS: system, Arch: arch}.Archive(r.Version)
		},
	}
	parsed, err := template.New(name).Funcs(functions).Parse(text)
	if err != nil {
		return nil, err
	}
	var made bytes.Buffer
	err = parsed.Execute(&made, struct {
		Release
		Summary string
		Targets []target.Target
	}{r, Summary, target.All()})
	return made.Bytes(), err
}
