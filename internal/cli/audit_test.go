package cli

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/coppice-dev/coppice/internal/rules/protection"
	"github.com/coppice-dev/coppice/internal/testing/wireserver"
	"github.com/coppice-dev/coppice/internal/tools/audit"
)

// TestAuditUsage: an invalid command line is an error before any request.
func TestAuditUsage(t *testing.T) {
	atHome(t)
	missing := filepath.Join(t.TempDir(), "missing.yaml")
	for _, test := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"pods"}, ExitUsage, "takes no arguments"},
		{[]string{"-o", "xml"}, ExitUsage, `"xml" is unknown: choose one of table, json, yaml, sarif, junit`},
		{[]string{"--yes"}, ExitUsage, "--yes is for --fix"},
		{[]string{"--terminating", "0s"}, ExitUsage, "--terminating must be more than 0"},
		{[]string{"--baseline", missing}, ExitFailed, "--write-baseline makes one"},
	} {
		got := run(t, append([]string{"audit"}, test.args...)...)
		if got.code != test.code || !strings.Contains(got.err, test.want) {
			t.Errorf("%q: exit code %d, %s; want %d, %s", test.args, got.code, got.err, test.code, test.want)
		}
	}
}

// TestOnlyYesConfirms: only "yes" confirms.
func TestOnlyYesConfirms(t *testing.T) {
	for input, want := range map[string]bool{"yes\n": true, "yes": true, "y\n": false, "no\n": false, "": false, "\nyes\n": false} {
		if got := confirm(t.Context(), Streams{In: strings.NewReader(input), Err: new(strings.Builder)}); got != want {
			t.Errorf("%q: %v", input, got)
		}
	}
	terminal, _ := io.Pipe() // on which nobody types
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	if confirm(ctx, Streams{In: terminal, Err: new(strings.Builder)}) {
		t.Error("Ctrl-C confirms")
	}
}

// A baseline that is read and written keeps the accepted findings that are still there, or in another namespace.
func TestBaselineKeepsAcceptedFindings(t *testing.T) {
	atHome(t)
	cluster := wireserver.New(wireserver.Resource{Name: "configmaps", Kind: "ConfigMap"})
	server := httptest.NewServer(cluster)
	t.Cleanup(server.Close)
	file := filepath.Join(t.TempDir(), "known.yaml")
	accept := func(args ...string) string {
		got := runFully(t.Context(), append([]string{"audit", "--server", server.URL, "--write-baseline", file}, args...)...)
		if got.code != ExitOK {
			t.Fatalf("exit code %d: %s%s", got.code, got.out, got.err)
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	cluster.Put("configmaps", wireserver.Owned("a", "a", "gone"))
	first := accept()
	if strings.Count(first, "owner-absent") != 1 {
		t.Fatalf("the first baseline is\n%s", first)
	}
	cluster.Put("configmaps", wireserver.Owned("b", "b", "gone"))
	if again := accept("--baseline", file); strings.Count(again, "owner-absent") != 2 {
		t.Errorf("the second baseline is\n%s", again)
	}
	if elsewhere := accept("--baseline", file, "-n", "other"); strings.Count(elsewhere, "owner-absent") != 2 {
		t.Errorf("the baseline of another namespace is\n%s", elsewhere)
	}
}

// Ctrl-C during --fix completes the write under way, which counts, and begins no other.
func TestInterruptedFixIsReported(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	var patched []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		interrupt()
		patched = append(patched, r.Method+" "+r.URL.Path)
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata"}`)
	}))
	t.Cleanup(server.Close)
	var fixes []audit.Fix
	for _, name := range []string{"a", "b", "c"} {
		object := audit.Object{Version: "v1", Resource: "configmaps", Namespace: "shop", Name: name}
		fixes = append(fixes, audit.Fix{Object: object, Removes: []audit.Finding{{Object: object, Owner: &audit.Owner{Kind: "ConfigMap", Name: "gone"}}}})
	}
	var errs strings.Builder
	_, err := fix(ctx, &rest.Config{Host: server.URL}, nil, fixes, true, Streams{Err: &errs})
	if err == nil || err.Error() != "interrupted: 2 objects were not looked at" || !strings.Contains(errs.String(), "1 of 3 objects repaired\n") {
		t.Errorf("%v\n%s", err, errs.String())
	}
	if want := []string{"PATCH /api/v1/namespaces/shop/configmaps/a"}; !slices.Equal(patched, want) {
		t.Errorf("requests: %q, want %q", patched, want)
	}
}

// An interrupted audit reports nothing and writes no baseline: the facts that were still to be read are unknown.
func TestInterruptedAuditReportsNothing(t *testing.T) {
	atHome(t)
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	cluster := wireserver.New(wireserver.Resource{Name: "configmaps", Kind: "ConfigMap"})
	cluster.Put("configmaps", wireserver.Owned("a", "a", "gone"))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/"+protection.Enforcer) {
			interrupt() // the objects are read, and the audit asks for facts
		}
		cluster.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	file := filepath.Join(t.TempDir(), "known.yaml")
	got := runFully(ctx, "audit", "--server", server.URL, "--write-baseline", file)
	if got.code != ExitFailed || got.out != "" {
		t.Errorf("exit code %d: %s%s", got.code, got.out, got.err)
	}
	if _, err := os.Stat(file); !os.IsNotExist(err) {
		t.Errorf("the baseline is written: %v", err)
	}
}
