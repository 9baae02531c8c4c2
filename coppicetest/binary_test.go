package coppicetest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestBinaryIsFoundInThisOrder checks the places that are searched for the binary, their order, and the error if there
// is none.
func TestBinaryIsFoundInThisOrder(t *testing.T) {
	dir := t.TempDir()
	file := func(path ...string) string {
		full := filepath.Join(append([]string{dir}, path...)...)
		if err := os.MkdirAll(filepath.Dir(full), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(full, nil, 0o700); err != nil {
			t.Fatal(err)
		}
		return full
	}
	own, coppice := file("own"), file("assets", "coppice")
	linked, upstream := file("linked", "kube-apiserver"), file("upstream", "kube-apiserver")
	for _, test := range []struct {
		name, binary, assets, path, tool string
		want, err                        string
	}{
		{name: "named", binary: own, assets: filepath.Dir(coppice), path: "/bin/coppice", want: own},
		{name: "named, missing", binary: filepath.Join(dir, "none"), path: "/bin/coppice", err: "which is not a file"},
		{name: "in the assets", assets: filepath.Dir(coppice), path: "/bin/coppice", want: coppice},
		{name: "in the assets under another name", assets: filepath.Dir(linked), path: "/bin/coppice", want: linked},
		{name: "other assets", assets: filepath.Dir(upstream), path: "/bin/coppice", want: "/bin/coppice"},
		{name: "in the path", path: "/bin/coppice", tool: "/cache/coppice", want: "/bin/coppice"},
		{name: "a tool", tool: "/cache/coppice", want: "/cache/coppice"},
		{name: "nowhere", err: "go install github.com/coppice-dev/coppice/cmd/coppice@latest"},
	} {
		t.Run(test.name, func(t *testing.T) {
			orError := func(path string) (string, error) {
				if path == "" {
					return "", errors.New("there is none")
				}
				return path, nil
			}
			l := lookup{
				getenv: func(name string) string {
					return map[string]string{binaryVariable: test.binary, assetsVariable: test.assets}[name]
				},
				inPath:    func(string) (string, error) { return orError(test.path) },
				tool:      func(context.Context) (string, error) { return orError(test.tool) },
				isCoppice: func(_ context.Context, path string) bool { return path == linked },
			}
			got, err := l.find(t.Context())
			if got != test.want || (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
				t.Errorf("%q, %v; want %q, %q", got, err, test.want, test.err)
			}
		})
	}
}

// TestIsCoppice distinguishes coppice under another name from other files.
func TestIsCoppice(t *testing.T) {
	binary, err := Binary(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	linked := filepath.Join(t.TempDir(), "kube-apiserver")
	if err := os.Symlink(binary, linked); err != nil {
		t.Fatal(err)
	}
	if !isCoppice(t.Context(), linked) || isCoppice(t.Context(), os.Args[0]) || isCoppice(t.Context(), t.TempDir()) {
		t.Error("a link to coppice, this test and a directory are not told apart")
	}
}

// TestParseKubeconfig reads kubeconfigs of client-go, and refuses those that the parser does not
// support.
func TestParseKubeconfig(t *testing.T) {
	const one = "clusters:\n- cluster:\n    certificate-authority-data: Y2E=\n    server: \"https://127.0.0.1:1\"\n  name: a\nusers:\n- name: u\n  user:\n    token: secret\n"
	a, err := parseKubeconfig(one)
	if err != nil || a.server != "https://127.0.0.1:1" || string(a.authority) != "ca" || a.token != "secret" {
		t.Errorf("%+v, %v", a, err)
	}
	for text, want := range map[string]string{
		one + one:                             "--minify",
		"users: []":                           "names no server",
		one + "    client-key: /key":          "--flatten",
		one + "    client-key-data: '*'":      "client-key-data",
		one + "    exec:\n      command: aws": "exec is not supported",
	} {
		if _, err := parseKubeconfig(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

// TestDefinitionsAreFoundInFiles finds the definitions in files as they are.
func TestDefinitionsAreFoundInFiles(t *testing.T) {
	for text, want := range map[string]int{
		"kind: CustomResourceDefinition":                                                     1,
		"---\nkind: \"CustomResourceDefinition\" # ours\n---\nkind: ConfigMap\n---\n":        1,
		"kind: CustomResourceDefinition\r\n--- # next\r\nkind: CustomResourceDefinition\r\n": 2,
		`{"kind":"CustomResourceDefinition"}`:                                                1,
		`{"kind":"List"}`:                                                                    0,
		"kind: ConfigMap\ndata:\n  x: |\n    kind: CustomResourceDefinition":                 0,
	} {
		found := 0
		for _, document := range documents([]byte(text)) {
			if isDefinition(document) {
				found++
			}
		}
		if found != want {
			t.Errorf("%q: %d definitions, want %d", text, found, want)
		}
	}
}

// TestContradictingOptionsAreRefused refuses options that contradict each other.
func TestContradictingOptionsAreRefused(t *testing.T) {
	for _, options := range [][]Option{
		{WithNodes(-1)}, {WithMovableClock()}, {WithoutControllers(), WithWorkloads()}, {WithCRDs("/nowhere/at/all")}, {WithCRDBytes([]byte("kind: ConfigMap"))},
	} {
		if p, err := Open(t.Context(), options...); err == nil {
			t.Errorf("%d options: no error", len(options))
			_ = p.Close()
		}
	}
}
