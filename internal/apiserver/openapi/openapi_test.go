package openapi

import (
	"os"
	"regexp"
	"testing"
)

// TestGeneratorVersion: the tool that made the definitions is of the version of the
// library that reads them.
func TestGeneratorVersion(t *testing.T) {
	version := func(file, pattern string) string {
		t.Helper()
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		match := regexp.MustCompile(pattern).FindSubmatch(text)
		if match == nil {
			t.Fatalf("%s has nothing like %s", file, pattern)
		}
		return string(match[1])
	}
	tool := version("generate.go", `//go:generate go run k8s\.io/kube-openapi/cmd/openapi-gen@(\S+)`)
	library := version("../../../go.mod", `k8s\.io/kube-openapi (\S+)`)
	if tool != library {
		t.Errorf("generate.go runs openapi-gen of %s, go.mod has %s: change it and run go generate", tool, library)
	}
}
