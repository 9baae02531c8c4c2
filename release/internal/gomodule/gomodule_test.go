package gomodule

import (
	"crypto/sha256"
	"encoding/hex"
	"flag"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/modfile"
)

var rewriteFlag = flag.Bool("rewrite", false, "write go.mod.txt and go.sum.txt anew, for the version of client-go that they name")

const repository = "../../.."

// lowest is the version of client-go that go.mod.txt requires.
func lowest(t *testing.T) (client, goVersion string) {
	t.Helper()
	file := parse(t, goMod)
	for _, r := range file.Require {
		if r.Mod.Path == "k8s.io/client-go" {
			return r.Mod.Version, file.Go.Version
		}
	}
	t.Fatal("go.mod.txt does not require client-go")
	return "", ""
}

func parse(t *testing.T, text []byte) *modfile.File {
	t.Helper()
	file, err := modfile.Parse("go.mod", text, nil)
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// The module compiles with the versions that its go.mod names, which its go.sum knows, and requires nothing that
// client-go does not require.
func TestModuleNeedsWhatClientGoNeeds(t *testing.T) {
	dir := t.TempDir()
	files, err := Module{Repository: repository}.Files()
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range files {
		write(t, filepath.Join(dir, filepath.FromSlash(name)), data)
	}
	if *rewriteFlag {
		command(t, dir, nil, "mod", "tidy")
		for from, to := range map[string]string{"go.mod": "go.mod.txt", "go.sum": "go.sum.txt"} {
			write(t, to, read(t, filepath.Join(dir, from)))
		}
	}
	command(t, dir, nil, "build", "-trimpath", "-mod=readonly", "./...")
	command(t, dir, nil, "vet", "-trimpath", "-mod=readonly", ".") // the examples, too

	allowed := map[string]bool{"k8s.io/client-go": true}
	clientGo := strings.TrimSpace(command(t, dir, nil, "list", "-m", "-f", "{{.GoMod}}", "k8s.io/client-go"))
	for _, r := range parse(t, read(t, clientGo)).Require {
		allowed[r.Mod.Path] = true
	}
	for _, r := range parse(t, read(t, filepath.Join(dir, "go.mod"))).Require {
		if !allowed[r.Mod.Path] {
			t.Errorf("the module requires %s, which client-go does not", r.Mod.Path)
		}
	}
	if allowed["github.com/prometheus/client_golang"] || !allowed["k8s.io/apimachinery"] {
		t.Errorf("client-go requires %v?", slices.Sorted(maps.Keys(allowed)))
	}
}

// A project that requires client-go gets one line more in its go.mod, and a program that collects.
func TestGetAddsOneLine(t *testing.T) {
	version := "v0.0.0-" + fingerprint(t)
	proxy := t.TempDir()
	if err := (Module{Repository: repository, Version: version, Made: time.Unix(1767323046, 0)}).Write(proxy); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	client, goVersion := lowest(t)
	write(t, filepath.Join(dir, "main.go"), read(t, "testdata/consumer/before.go"))
	write(t, filepath.Join(dir, "go.mod"), []byte("module example.com/consumer\n\ngo "+goVersion+"\n\nrequire (\n"+
		"\tgithub.com/klauspost/compress v1.19.2\n\tk8s.io/apimachinery "+client+"\n\tk8s.io/client-go "+client+"\n)\n"))
	command(t, dir, nil, "mod", "tidy")
	before := strings.Split(string(read(t, filepath.Join(dir, "go.mod"))), "\n")

	others := strings.TrimSpace(command(t, dir, nil, "env", "GOPROXY"))
	environment := []string{"GOPROXY=file://" + filepath.ToSlash(proxy) + "," + others, "GONOSUMDB=" + Path}
	write(t, filepath.Join(dir, "collect.go"), read(t, "testdata/consumer/after.go"))
	for _, step := range [][]string{{"get", Path + "@" + version}, {"mod", "tidy"}} {
		command(t, dir, environment, step...)
		after := strings.Split(string(read(t, filepath.Join(dir, "go.mod"))), "\n")
		added := slices.DeleteFunc(slices.Clone(after), func(line string) bool { return slices.Contains(before, line) })
		// go get does not know yet that the program imports it.
		if want := "\t" + Path + " " + version; len(added) != 1 || strings.TrimSuffix(added[0], " // indirect") != want || len(after) != len(before)+1 {
			t.Errorf("go %s adds %q to go.mod, want %q\n%s", step[0], added, want, strings.Join(after, "\n"))
		}
	}
	got := command(t, dir, environment, "run", "-trimpath", "-mod=readonly", ".")
	// No server is there. Whether a request has failed yet when the program asks depends on the machine.
	got = regexp.MustCompile(`the server cannot be reached since \S+`).ReplaceAllString(got, "the resources of the server are not known yet")
	if want := "<nil> not synced: the resources of the server are not known yet 0 false\n"; !strings.HasPrefix(got, want) {
		t.Errorf("the program prints %q, want %q", got, want)
	}
}

// TestTwoModulesAreTheSame: the same source makes the same files.
func TestTwoModulesAreTheSame(t *testing.T) {
	var sums []string
	for range 2 {
		dir := t.TempDir()
		if err := (Module{Repository: repository, Version: "v1.2.3", Made: time.Unix(1767323046, 0)}).Write(dir); err != nil {
			t.Fatal(err)
		}
		at := filepath.Join(dir, "github.com", "coppice-dev", "collector", "@v")
		sum := sha256.New()
		for _, name := range []string{"list", "v1.2.3.info", "v1.2.3.mod", "v1.2.3.zip"} {
			sum.Write(read(t, filepath.Join(at, name)))
		}
		sums = append(sums, hex.EncodeToString(sum.Sum(nil)))
	}
	if sums[0] != sums[1] {
		t.Errorf("the files differ: %v", sums)
	}
}

func TestRewrite(t *testing.T) {
	const text = `// Package p says "github.com/coppice-dev/coppice/collector".
package p

import (
	"fmt"

	light "github.com/coppice-dev/coppice/collector"
	"github.com/coppice-dev/coppice/internal/collect/feed"
)

const c = "github.com/coppice-dev/coppice/internal/collect/feed"
`
	const want = `// Package p says "github.com/coppice-dev/coppice/collector".
package p

import (
	"fmt"

	light "github.com/coppice-dev/collector"
	"github.com/coppice-dev/collector/internal/collect/feed"
)

const c = "github.com/coppice-dev/coppice/internal/collect/feed"
`
	got, imports, err := rewrite("p.go", []byte(text))
	if err != nil || string(got) != want || !slices.Equal(imports, []string{"collector", "internal/collect/feed"}) {
		t.Errorf("rewrite = %s, %v, %v", got, imports, err)
	}
	for _, outside := range []string{repositoryPath, repositoryPath + "/coppicetest"} {
		if _, _, err := rewrite("p.go", []byte("package p\n\nimport _ \""+outside+"\"\n")); err == nil {
			t.Errorf("%s may be imported", outside)
		}
	}
}

// fingerprint returns a version that depends on the module's contents, because Go caches the versions that it
// has downloaded.
func fingerprint(t *testing.T) string {
	t.Helper()
	files, err := Module{Repository: repository}.Files()
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		sum.Write([]byte(name))
		sum.Write(files[name])
	}
	return "test" + hex.EncodeToString(sum.Sum(nil))[:16]
}

// command runs go in a directory, and returns its output.
func command(t *testing.T, dir string, environment []string, arguments ...string) string {
	t.Helper()
	c := exec.CommandContext(t.Context(), "go", arguments...)
	c.Dir, c.Env = dir, append(os.Environ(), append([]string{"GOFLAGS=", "GOWORK=off"}, environment...)...)
	var failure strings.Builder
	c.Stderr = &failure
	output, err := c.Output()
	if err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(arguments, " "), err, failure.String())
	}
	return string(output)
}

func write(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
