package coppicetest_test

import (
	"bufio"
	"context"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coppice-dev/coppice/coppicetest"
)

const widgets = `apiVersion: v1
kind: ConfigMap
metadata:
  name: not-a-definition
---
# a comment
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: widgets.example.com
spec:
  group: example.com
  names: {kind: Widget, plural: widgets}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

// TestPlaneHasDefinitionsUsersAndCascades uses the main features of a plane: a definition, a user, a cascade, a namespace.
func TestPlaneHasDefinitionsUsersAndCascades(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "widgets.yaml"), []byte(widgets), 0o600); err != nil {
		t.Fatal(err)
	}
	// The same definition twice: the second is applied over the first.
	plane := coppicetest.Start(t, coppicetest.WithCRDs(dir), coppicetest.WithCRDBytes([]byte(widgets)), coppicetest.WithAudit())
	s := newServer(t, plane)
	widget := s.create("/apis/example.com/v1/namespaces/default/widgets", `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w"}}`)
	owned := s.create(configMaps, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"of-w","ownerReferences":[
		{"apiVersion":"example.com/v1","kind":"Widget","name":"w","uid":"`+widget.uid()+`"}]}}`)
	if held := plane.Settled(t); len(held) != 0 {
		t.Errorf("held before anything was deleted: %v", held)
	}
	s.delete("/apis/example.com/v1/namespaces/default/widgets/w", "")
	plane.Gone(t, widget, owned, owned.uid())
	deletions := plane.Deletions(t)
	if len(deletions) != 1 || deletions[0].UID != owned.uid() || !strings.Contains(deletions[0].Reason, "Widget.example.com") {
		t.Errorf("deletions: %v", deletions)
	}
	plane.NoLeaks(t)
	s.create("/api/v1/namespaces", `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"shop"}}`)
	inside := s.create("/api/v1/namespaces/shop/configmaps", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"inside"}}`)
	s.delete("/api/v1/namespaces/shop", "")
	plane.Gone(t, inside)
	if code, _, _ := s.persist(http.MethodGet, "/api/v1/namespaces/shop", ""); code != http.StatusNotFound {
		t.Errorf("the namespace is still there: %d", code)
	}
}

// TestExportLogs checks that the files have the collected objects, the requests and the log.
func TestExportLogs(t *testing.T) {
	t.Parallel()
	plane := coppicetest.Start(t, coppicetest.WithAudit(), coppicetest.WithArguments("--log-level=debug"))
	s := newServer(t, plane)
	s.configMap("owned", "", s.configMap("owner", ""))
	s.delete(configMaps+"/owner", "")
	plane.Settled(t)
	dir := filepath.Join(t.TempDir(), "not", "there")
	if err := plane.ExportLogs(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"deletions.txt": "ConfigMap default/owned: delete Background: owners absent: ConfigMap",
		"audit.log":     `"verb":"delete"`,
		"coppice.log":   "level=DEBUG",
	} {
		if text, err := os.ReadFile(filepath.Join(dir, name)); err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s has no %q: %v\n%s", name, want, err, text)
		}
	}
}

// TestUserHasTheRightsOfItsGroups checks that a user has the rights of its groups and no others.
func TestUserHasTheRightsOfItsGroups(t *testing.T) {
	t.Parallel()
	plane := coppicetest.Start(t)
	for _, test := range []struct {
		groups []string
		code   int
	}{
		{nil, http.StatusForbidden},
		{[]string{"system:masters"}, http.StatusOK},
	} {
		path := plane.User(t, "alice", test.groups...)
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("kubeconfig: %v, %v", info, err)
		}
		as := coppicetest.Plane{Host: plane.Host}
		as.CertificateAuthority, as.Certificate, as.Key = coppicetest.Credentials(t, path)
		if code, _ := newServer(t, &as).send(http.MethodGet, "/api/v1/namespaces", ""); code != test.code {
			t.Errorf("alice of %v lists namespaces: %d, want %d", test.groups, code, test.code)
		}
	}
}

// TestSettledHeld checks that Settled names an object with a foreign finalizer, and does not wait
// for it.
func TestSettledHeld(t *testing.T) {
	t.Parallel()
	plane := coppicetest.Start(t)
	s := newServer(t, plane)
	owner := s.configMap("owner", "")
	s.configMap("held", `,"finalizers":["example.com/cleanup"]`, owner)
	s.delete(configMaps+"/owner", `{"propagationPolicy":"Foreground"}`)
	held := plane.Settled(t)
	if len(held) != 2 || !strings.HasSuffix(held[0].String()+held[1].String(), "") {
		t.Fatalf("held: %v", held)
	}
	for _, h := range held {
		want := map[string]string{"owner": "foregroundDeletion", "held": "example.com/cleanup"}[h.Name]
		if len(h.Finalizers) != 1 || h.Finalizers[0] != want {
			t.Errorf("%s", h)
		}
	}
	if found := plane.Leaks(t); len(found) != 2 {
		t.Errorf("leaks: %v", found)
	}
	s.letGo(configMaps + "/held")
	plane.Gone(t, owner)
	plane.NoLeaks(t)
}

// TestSettledRepeatedly checks that Settled always includes the writes just before the call.
func TestSettledRepeatedly(t *testing.T) {
	t.Parallel()
	plane := coppicetest.Start(t)
	s := newServer(t, plane)
	for range 20 {
		owner := s.configMap("owner", "")
		middle := s.configMap("middle", "", owner)
		leaf := s.configMap("leaf", "", middle)
		s.delete(configMaps+"/owner", "")
		plane.Settled(t)
		for _, name := range []string{"middle", "leaf"} {
			if code, _, _ := s.persist(http.MethodGet, configMaps+"/"+name, ""); code != http.StatusNotFound {
				t.Fatalf("%s is there at rest: %d", name, code)
			}
		}
		plane.Gone(t, owner, middle, leaf)
	}
}

// TestAdvanceEndsAGracePeriod ends a grace period of an hour by moving the clock.
func TestAdvanceEndsAGracePeriod(t *testing.T) {
	t.Parallel()
	plane := coppicetest.Start(t, coppicetest.WithNodes(1), coppicetest.WithMovableClock())
	s := newServer(t, plane)
	const pods = "/api/v1/namespaces/default/pods"
	pod := s.create(pods, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","annotations":{"simulated.coppice.dev/ignore-term":"true"}},
		"spec":{"nodeName":"node-1","terminationGracePeriodSeconds":3600,"containers":[{"name":"c","image":"i"}]}}`)
	awaitRunning(t, s, pods+"/p")
	s.delete(pods+"/p", "")
	if held := plane.Settled(t); len(held) != 1 || held[0].UID != pod.uid() {
		t.Fatalf("held: %v", held)
	}
	plane.Advance(t, 59*time.Minute)
	if held := plane.Settled(t); len(held) != 1 {
		t.Fatalf("held after 59 minutes: %v", held)
	}
	plane.Advance(t, 2*time.Minute)
	plane.Gone(t, pod)
}

// awaitRunning watches a pod until it runs.
func awaitRunning(t *testing.T, s *server, path string) {
	t.Helper()
	deadline, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for ; deadline.Err() == nil; <-again.C {
		_, pod, _ := s.persist(http.MethodGet, path, "")
		status, _ := pod["status"].(map[string]any)
		if status["phase"] == "Running" {
			return
		}
	}
	t.Fatalf("%s does not run", path)
}

// TestPlaneEndsWithAKilledTest checks that a plane ends, and leaves no files, when the process of the test is killed.
func TestPlaneEndsWithAKilledTest(t *testing.T) {
	if os.Getenv("COPPICETEST_HANGS") != "" {
		plane, err := coppicetest.Open(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		os.Stdout.WriteString("KUBECONFIG " + plane.Kubeconfig + "\n")
		<-t.Context().Done()
		return
	}
	t.Parallel()
	test := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestPlaneEndsWithAKilledTest$")
	test.Env = append(os.Environ(), "COPPICETEST_HANGS=1")
	output, err := test.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := test.Start(); err != nil {
		t.Fatal(err)
	}
	kubeconfig := ""
	for lines := bufio.NewScanner(output); kubeconfig == "" && lines.Scan(); {
		kubeconfig, _ = strings.CutPrefix(lines.Text(), "KUBECONFIG ")
	}
	if kubeconfig == "" {
		t.Fatal("the other test has not started a plane")
	}
	if err := test.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = test.Wait() // it was killed
	gone := func() bool {
		_, err := os.Stat(filepath.Dir(kubeconfig))
		return errors.Is(err, fs.ErrNotExist)
	}
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for deadline := time.Now().Add(3 * time.Minute); !gone(); <-again.C {
		if time.Now().After(deadline) {
			t.Fatalf("%s is still there", filepath.Dir(kubeconfig))
		}
	}
}
