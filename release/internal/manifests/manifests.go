// Package manifests writes the files that install a release: a script, a manifest for krew, and a
// formula for Homebrew.
package manifests

import (
	"bytes"
	_ "embed" // the templates
	"fmt"
	"net/url"
	"slices"
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

// Release describes the release that the files install.
type Release struct {
	Version string            // with its v
	BaseURL string            // the location of the release's files, without a slash at the end
	Sums    map[string]string // SHA-256 by file name, in hexadecimal
	Targets []target.Target   // the platforms of the release
}

// File is a file that installs a release.
type File struct {
	Name string

	template string
	usable   func(target.Target) bool // the platforms that the file can name
	all      bool                     // it has to name all usable platforms
}

// Files returns the files, in the order of their names.
func Files() []File {
	notWindows := func(t target.Target) bool { return t.OS != "windows" }
	return []File{
		{Name: "coppice.rb", template: formula, usable: notWindows, all: true},
		{Name: "coppice.yaml", template: krewManifest, usable: func(target.Target) bool { return true }},
		{Name: "install.sh", template: installScript, usable: notWindows},
	}
}

// Missing returns, in words, the platforms that the file needs and that were not built, or "".
func (f File) Missing(built []target.Target) string {
	var missing []string
	found := false
	for _, t := range target.All() {
		switch {
		case !f.usable(t):
		case slices.Contains(built, t):
			found = true
		default:
			missing = append(missing, t.String())
		}
	}
	switch {
	case f.all && len(missing) > 0:
		return strings.Join(missing, ", ") + " besides"
	case !found:
		return "one of " + strings.Join(missing, ", ")
	default:
		return ""
	}
}

// Summary describes Coppice in package managers.
const Summary = "Garbage collection for Kubernetes-style APIs"

// CheckURL returns an error if files cannot be downloaded from below a URL. A valid URL needs no
// quoting in the files.
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

// Render returns the text of a file.
func (r Release) Render(f File) ([]byte, error) {
	var targets []target.Target
	for _, t := range r.Targets {
		if f.usable(t) {
			targets = append(targets, t)
		}
	}
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
	parsed, err := template.New(f.Name).Funcs(functions).Parse(f.template)
	if err != nil {
		return nil, err
	}
	var made bytes.Buffer
	err = parsed.Execute(&made, struct {
		Release
		Summary string
		Targets []target.Target
	}{r, Summary, targets})
	return made.Bytes(), err
}
