package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/coppice-dev/coppice/internal/rules/protection"
)

// A dry run tells coppice protect the annotation that marks entries as checked; it writes the annotation if the user
// may read the entries.
func TestR28_ProtectHasEntriesChecked(t *testing.T) {
	const list = `[{"apiVersion":"v1","kind":"Secret","namespace":"vault","name":"key"}]`
	const ask, says = "nobody looks up: annotate it with coppice.dev/outlives-checked=c", "it is new"
	for name, test := range map[string]struct {
		checks    bool
		label     string // of the object before the command
		forbidden bool   // the dry run is refused
		warning   string
		want      []string // annotations of the requests, with "dry run" before the first one
		stderr    string
		failed    bool
	}{
		"checked":                  {true, "always", false, ask, []string{"dry run ?", "c"}, "", false},
		"checked again":            {true, "outlives", false, ask, []string{"dry run ?", "c"}, "", false},
		"a server that checks all": {true, "always", false, "", []string{"dry run ?", ""}, "", false},
		"the webhook is new":       {true, "always", false, says, []string{"dry run ?", ""}, "warning: it is new\n", false},
		"some are unreadable":      {true, "always", true, "", []string{"dry run ?", ""}, "", false},
		"unreadable, and no more":  {true, "outlives", true, "", []string{"dry run ?"}, "", true},
		"unprotect":                {false, "always", false, ask, []string{""}, "warning: " + ask + "\n", false},
	} {
		var stderr bytes.Buffer
		w := &protecting{ctx: t.Context(), writes: t.Context(), checks: test.checks, warnings: &serverWarnings{s: Streams{Err: &stderr}}}
		var got []string
		server := httptest.NewServer(http.HandlerFunc(func(answer http.ResponseWriter, r *http.Request) {
			patch, _ := io.ReadAll(r.Body)
			_, value, _ := strings.Cut(string(patch), `"`+protection.Checked+`":"`)
			value, _, _ = strings.Cut(value, `"`)
			if test.warning != "" && value != "c" {
				answer.Header().Add("Warning", fmt.Sprintf("299 - %q", test.warning))
			}
			answer.Header().Set("Content-Type", "application/json")
			isDry := r.URL.Query().Get("dryRun") == metav1.DryRunAll
			if isDry {
				value = "dry run " + value
			}
			got = append(got, value)
			if isDry && test.forbidden {
				answer.WriteHeader(http.StatusForbidden)
				_, _ = fmt.Fprint(answer, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}`)
				return
			}
			_, _ = fmt.Fprint(answer, `{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1"}`)
		}))
		t.Cleanup(server.Close)
		client, err := metadata.NewForConfig(&rest.Config{Host: server.URL, WarningHandlerWithContext: w.warnings})
		if err != nil {
			t.Fatal(err)
		}
		m := &metav1.ObjectMeta{Name: "db", Labels: map[string]string{protection.Label: test.label}, Annotations: map[string]string{protection.Annotation: list}}
		changed, err := w.apply(client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}), m, protection.New("outlives", list))
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s: the requests (-want +got):\n%s", name, diff)
		}
		if (err != nil) != test.failed || changed == test.failed || stderr.String() != test.stderr {
			t.Errorf("%s: changed %t, %v, stderr %q, want %q", name, changed, err, stderr.String(), test.stderr)
		}
	}
}

// Ctrl-C during the dry run begins no write.
func TestInterruptedCheckIsNoWrite(t *testing.T) {
	const list = `[{"apiVersion":"v1","kind":"Secret","namespace":"vault","name":"key"}]`
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	var requests []string
	server := httptest.NewServer(http.HandlerFunc(func(answer http.ResponseWriter, r *http.Request) {
		requests = append(requests, r.URL.RawQuery)
		interrupt()
		answer.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprint(answer, `{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1"}`)
	}))
	t.Cleanup(server.Close)
	client, err := metadata.NewForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	w := &protecting{ctx: ctx, writes: t.Context(), checks: true, warnings: &serverWarnings{}}
	m := &metav1.ObjectMeta{Name: "db", Annotations: map[string]string{protection.Annotation: list}}
	changed, err := w.apply(client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}), m, protection.New("outlives", list))
	if changed || !errors.Is(err, context.Canceled) || len(requests) != 1 || !strings.Contains(requests[0], "dryRun=All") {
		t.Errorf("changed %t, %v; requests: %q", changed, err, requests)
	}
}
