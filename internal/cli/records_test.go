package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coppice-dev/coppice/collector/report"
	"github.com/coppice-dev/coppice/internal/tools/web/api"
)

// runningCollector starts a collector that accepts the token "hers", and returns its address. asked gets the URL of its
// last request. A watch sees the second record as a new one.
func runningCollector(t *testing.T, asked *string) string {
	t.Helper()
	records := []report.Record{
		{Number: 1, Time: time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC), Action: report.ActionDelete, Answer: report.AnswerDone, Decision: "delete Background: owners absent: Secret s", Object: report.RecordedObject{Kind: "ConfigMap", Namespace: "shop", Name: "settings"}},
		{Number: 2, Time: time.Date(2026, 7, 1, 12, 0, 1, 0, time.UTC), Action: report.ActionDetach, Answer: report.AnswerUnknown, Error: "timeout", Decision: "detach from Secret s", Object: report.RecordedObject{Kind: "Node", Name: "n1"}},
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		*asked = r.URL.String()
		if r.Header.Get("Authorization") != "Bearer hers" {
			http.Error(w, "not authenticated", http.StatusUnauthorized)
			return
		}
		switch r.URL.Path {
		case "/coppice/v1/records":
			_ = json.NewEncoder(w).Encode(api.RecordList{Items: records, Unread: []string{"secrets: objects that you may not list are left out"}})
		case "/coppice/v1/status":
			_ = json.NewEncoder(w).Encode(api.SeenStatus{Status: report.Status{
				Synced: true, Graph: report.GraphStatus{Objects: 42},
				Resources: []report.ResourceStatus{{Resource: "widgets.example.com", State: "failing", Error: "503"}, {Resource: "pods", State: "synced"}},
				Barrier:   []report.BarrierWait{{Owner: "ReplicaSet.apps shop/web", Finalizer: "orphan", Holds: []report.Hold{{What: "Widget.example.com", Why: "503"}}}},
			}})
		case "/coppice/v1/watch":
			next := 0
			_, _ = fmt.Sscan(r.URL.Query().Get("after"), &next)
			if next == len(records) {
				http.Error(w, "standing by: another leads", http.StatusServiceUnavailable)
				return
			}
			data, _ := json.Marshal(records[next])
			fmt.Fprintf(w, "event: object\ndata: {}\n\nevent: record\nid: %d\ndata: %s\n\n", next+1, data)
		case "/coppice/v1/owners", "/coppice/v1/component":
			_, _ = w.Write([]byte(`{"objects": [{"uid": "p", "kind": "Pod", "namespace": "shop", "name": "web-1", "phase": "active"}], "references": []}`))
		default:
			tellStories(w, r)
		}
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// hers writes a kubeconfig with a token and a server that does not answer.
func hers(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config")
	text := `{"apiVersion": "v1", "kind": "Config", "current-context": "c",
		"clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
		"users": [{"name": "c", "user": {"token": "hers"}}],
		"contexts": [{"name": "c", "context": {"cluster": "c", "user": "c", "namespace": "shop"}}]}`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// The commands send requests with the user's token to a running collector, and print its answers.
func TestAskACollector(t *testing.T) {
	atHome(t)
	var asked string
	address := runningCollector(t, &asked)
	config := hers(t)
	for _, c := range []struct {
		line  string
		code  int
		asked string
		says  []string // on stdout and stderr
	}{
		{"records", ExitOK, "/coppice/v1/records", []string{
			"2026-07-01T12:00:00Z  delete  ConfigMap shop/settings  delete Background: owners absent: Secret s\n",
			"Node n1", "detach from Secret s (no answer: timeout)", "not read: secrets: objects that you may not list are left out",
		}},
		{"records cm/settings -o json", ExitOK, "/coppice/v1/records?namespace=shop&object=cm%2Fsettings", []string{`"name": "settings"`, `"unread": [`}},
		{"records cm a b -n other -o yaml", ExitOK, "/coppice/v1/records?namespace=other&object=cm%2Fa&object=cm%2Fb", []string{"name: settings"}},
		{"records --watch -o json", ExitFailed, "/coppice/v1/watch?after=2", []string{`"number":1`, `"number":2`, "standing by: another leads"}},
		{"records cm", ExitUsage, "", []string{`"cm" names no object`}},
		{"records cm --watch", ExitUsage, "", []string{`"cm" names no object`}},
		{"records -o xml", ExitUsage, "", []string{`--output "xml" is unknown`}},
		{"records --token=his", ExitFailed, "/coppice/v1/records", []string{"not authenticated", "kubectl create token"}},
		{"status", ExitOK, "/coppice/v1/status", []string{
			"true    42 ", "widgets.example.com  failing", "ReplicaSet.apps shop/web  orphan", "Widget.example.com: 503",
		}},
		{"status -o yaml", ExitOK, "/coppice/v1/status", []string{"synced: true"}},
		{"stories", ExitOK, "/coppice/v1/stories", []string{
			"Deployment.apps shop/web and 1 more  Background  ann       3     1        0     ", "waits for the finalizer x/hold of Pod shop/p", "unknown", "done\n",
			"not read: secrets: objects that you may not list are left out",
		}},
		{"stories -o yaml", ExitOK, "/coppice/v1/stories", []string{"user: ann", "policy: Background"}},
		{"stories uid-web", ExitOK, "/coppice/v1/deleted?name=web&namespace=shop", []string{"Deployment.apps shop/web: being deleted\n"}},
		{"stories uid-web -o json", ExitOK, "/coppice/v1/stories/uid-web?format=json", []string{`"objects": [`, `"name": "web-1"`}},
		{"stories absent", ExitFailed, "/coppice/v1/stories/absent?format=text", []string{"no record of this deletion"}},
		{"stories uid-web --watch -o json", ExitOK, "/coppice/v1/stories/uid-web/watch?after=7", []string{`"waiting":1`, `"done":true`}},
		{"stories --watch", ExitFailed, "/coppice/v1/stories/watch?after=9", []string{"Deployment.apps shop/web and 1 more", "standing by: another leads"}},
		{"stories uid-merged --watch", ExitFailed, "/coppice/v1/stories/uid-merged/watch?after=0", []string{"the record of this deletion has expired"}},
		{"stories a b", ExitUsage, "", []string{"at most one ID"}},
		{"stories -o xml", ExitUsage, "", []string{`--output "xml" is unknown`}},
		{"graph pod/web-1 --component", ExitOK, "/coppice/v1/component?namespace=shop&object=pod%2Fweb-1", []string{"Pod shop/web-1\n"}},
		{"graph pod/web-1 --up", ExitOK, "/coppice/v1/owners?namespace=shop&object=pod%2Fweb-1", []string{"Pod shop/web-1\n"}},
		{"graph pod/web-1 --down", ExitFailed, "/coppice/v1/dependents?namespace=shop&object=pod%2Fweb-1", []string{"404 page not found"}},
	} {
		t.Run(c.line, func(t *testing.T) {
			asked = ""
			got := runFully(t.Context(), append(strings.Fields(c.line), "--kubeconfig", config, "--address", address)...)
			if got.code != c.code || asked != c.asked {
				t.Errorf("exit code %d after asking %q, want %d and %q", got.code, asked, c.code, c.asked)
			}
			if c.code == ExitUsage && got.out != "" {
				t.Errorf("an invalid command line prints %q on stdout", got.out)
			}
			for _, says := range c.says {
				if !strings.Contains(got.out+got.err, says) {
					t.Errorf("it does not say %q:\n%s%s", says, got.out, got.err)
				}
			}
			if c.line == "status" && strings.Contains(got.out, "pods") {
				t.Errorf("a resource that is watched as it should be is not worth a line:\n%s", got.out)
			}
		})
	}
}

// --namespace confines an answer about all objects, and is no flag of a command whose answer has no namespaces.
func TestNamespaceConfinesAnswers(t *testing.T) {
	atHome(t)
	var asked string
	address := runningCollector(t, &asked)
	config := hers(t)
	const settings, node, web = "ConfigMap shop/settings", "Node n1", "Deployment.apps shop/web"
	for _, c := range []struct {
		line     string
		code     int
		has, not []string // on stdout and stderr
	}{
		{"records -n shop", ExitOK, []string{settings}, []string{node}},
		{"records -n other -o json", ExitOK, []string{`"items": []`}, []string{"settings", "n1"}},
		{"records -A", ExitOK, []string{settings, node}, nil},
		{"records -n shop --watch", ExitFailed, []string{settings}, []string{node}},
		{"records -A cm/settings", ExitUsage, []string{"a name needs a namespace: leave out --all-namespaces"}, nil},
		{"stories -n shop", ExitOK, []string{web}, []string{node}},
		{"stories -n other", ExitOK, []string{"WAITING"}, []string{web, node}},
		{"stories -A", ExitOK, []string{web, node}, nil},
		{"stories -n other --watch", ExitFailed, []string{"WAITING"}, []string{web}},
		{"stories uid-web -n other", ExitOK, []string{web}, nil},
		{"stories uid-web -n other --watch", ExitOK, []string{web}, nil},
		{"graph pod/web-1 --up -n shop", ExitOK, []string{"Pod shop/web-1"}, nil},
		{"status -n shop", ExitUsage, []string{"unknown shorthand flag: 'n'"}, nil},
		{"status -A", ExitUsage, []string{"unknown shorthand flag: 'A'"}, nil},
		{"web -n shop", ExitUsage, []string{"unknown shorthand flag: 'n'"}, nil},
	} {
		t.Run(c.line, func(t *testing.T) {
			got := runFully(t.Context(), append(strings.Fields(c.line), "--kubeconfig", config, "--address", address)...)
			if got.code != c.code {
				t.Errorf("exit code %d, want %d", got.code, c.code)
			}
			for _, text := range c.has {
				if !strings.Contains(got.out+got.err, text) {
					t.Errorf("no %q in\n%s%s", text, got.out, got.err)
				}
			}
			for _, text := range c.not {
				if strings.Contains(got.out, text) {
					t.Errorf("%q is in\n%s", text, got.out)
				}
			}
		})
	}
}

// runFully runs a command line to its end.
func runFully(ctx context.Context, args ...string) ran {
	var out, errs bytes.Buffer
	code := Run(ctx, args, Streams{In: strings.NewReader(""), Out: &out, Err: &errs})
	return ran{code, out.String(), errs.String()}
}
