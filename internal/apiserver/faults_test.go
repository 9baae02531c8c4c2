package apiserver_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/coppice-dev/coppice/internal/apiserver"
	"github.com/coppice-dev/coppice/internal/apiserver/auth"
	"github.com/coppice-dev/coppice/internal/apiserver/faults"
	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

// manager returns the administrator's configuration for the server's port: clients in this process meet no faults.
func (s *server) manager(t *testing.T) *rest.Config {
	t.Helper()
	config := s.as(t, (*auth.Authority).Admin)
	config.UserAgent, config.QPS = "manager/v1.0 (linux/amd64)", -1
	return config
}

// fail replaces the plan over HTTP, and returns the state.
func fail(t *testing.T, config *rest.Config, plan string) faults.State {
	t.Helper()
	status, body := askForFaults(t, config, http.MethodPost, plan)
	var state faults.State
	if err := json.Unmarshal([]byte(body), &state); err != nil || status != http.StatusOK {
		t.Fatalf("%s: %d %s (%v)", plan, status, body, err)
	}
	return state
}

func askForFaults(t *testing.T, config *rest.Config, method, plan string) (status int, body string) {
	t.Helper()
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(t.Context(), method, config.Host+faults.Path, strings.NewReader(plan))
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text)
}

// A refused write changes nothing; one whose answer is lost has happened. Clients in the process meet neither.
func TestFaultsOfWrites(t *testing.T) {
	s := startServer(t, nil)
	config := s.manager(t)
	own := typed(t, s.config).CoreV1().ConfigMaps("default")
	out, err := newClient(config)
	if err != nil {
		t.Fatal(err)
	}
	named := func(name string) *corev1.ConfigMap {
		return &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: metav1.ObjectMeta{Name: name}}
	}
	for _, c := range []struct {
		plan     string
		happened bool
	}{{"seed=1; refused-write rate=1 resource=configmaps", false}, {"seed=1; lost-answer rate=1 resource=configmaps", true}} {
		fail(t, config, c.plan)
		for i := range 10 {
			name := fmt.Sprintf("%v-%d", c.happened, i)
			status, _, err := out.exchange(http.MethodPost, "/api/v1/namespaces/default/configmaps", "application/json", named(name))
			if err == nil {
				t.Errorf("%s: create %s: %d", c.plan, name, status)
			}
			if _, err := own.Get(t.Context(), name, metav1.GetOptions{}); (err == nil) != c.happened {
				t.Errorf("%s: get %s: %v", c.plan, name, err)
			}
			if _, err := own.Create(t.Context(), named("own-"+name), metav1.CreateOptions{}); err != nil {
				t.Errorf("%s: in the process: %v", c.plan, err)
			}
		}
	}
	state := fail(t, config, "")
	if state.Plan != "" || len(state.Happened) < 20 {
		t.Fatalf("%q, %d happened", state.Plan, len(state.Happened))
	}
	first := state.Happened[0]
	if !strings.HasPrefix(first.Fault, "refused: ") || first.Verb != "create" || first.Resource != "configmaps" || first.Namespace != "default" || first.User == "" {
		t.Errorf("%+v", first)
	}
	if _, _, err := out.exchange(http.MethodPost, "/api/v1/namespaces/default/configmaps", "application/json", named("after")); err != nil {
		t.Errorf("without faults: %v", err)
	}
}

// An informer of client-go has all objects in the end, although its watches are late, end, and cannot be resumed.
func TestFaultsOfWatches(t *testing.T) {
	t.Parallel()
	s := startServer(t, func(c *apiserver.Config) {
		var err error
		if c.Faults.Plan, err = faults.ParsePlan("seed=2; watch-lag delay=1ms-20ms; watch-end delay=10ms-100ms; watch-expired rate=90%"); err != nil {
			t.Fatal(err)
		}
	})
	config := s.manager(t)
	own := typed(t, s.config).CoreV1().ConfigMaps("default")
	factory := informers.NewSharedInformerFactoryWithOptions(typed(t, config), 0, informers.WithNamespace("default"))
	informer := factory.Core().V1().ConfigMaps().Informer()
	seen := map[string][]string{} // versions by name
	var mu sync.Mutex
	observe := func(o any) {
		if m, ok := o.(*corev1.ConfigMap); ok {
			mu.Lock()
			defer mu.Unlock()
			seen[m.Name] = append(seen[m.Name], m.Data["n"])
		}
	}
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: observe, UpdateFunc: func(_, o any) { observe(o) },
	}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	factory.Start(ctx.Done())
	defer factory.Shutdown()
	defer cancel()
	const objects = 6
	writes := 0
	// client-go resumes only a watch that had events, so the writes go on until each fault has happened.
	eventually.Agrees(t, func() string {
		for range objects {
			object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("m", writes%objects)}, Data: map[string]string{"n": strconv.Itoa(writes)}}
			var err error
			if writes < objects {
				_, err = own.Create(t.Context(), object, metav1.CreateOptions{})
			} else {
				_, err = own.Update(t.Context(), object, metav1.UpdateOptions{})
			}
			if err != nil {
				t.Fatal(err)
			}
			writes++
		}
		_, body := askForFaults(t, config, http.MethodGet, "")
		for _, kind := range []string{"events late by", "ends after", "not resumed: 410 Expired"} {
			if !strings.Contains(body, kind) {
				return "no fault is: " + kind
			}
		}
		return ""
	})
	eventually.Agrees(t, func() string {
		mu.Lock()
		defer mu.Unlock()
		for i := writes - objects; i < writes; i++ {
			versions := seen[fmt.Sprint("m", i%objects)]
			if want := strconv.Itoa(i); len(versions) == 0 || versions[len(versions)-1] != want {
				return fmt.Sprintf("m%d has the versions %v, want %s at the end", i%objects, versions, want)
			}
		}
		return ""
	})
}

// A list at resourceVersion 0 has a former state, from which a watch has what happened since; other lists have the newest.
func TestFaultsOfLists(t *testing.T) {
	s := startServer(t, func(c *apiserver.Config) {
		var err error
		if c.Faults.Plan, err = faults.ParsePlan("stale-list delay=1h"); err != nil {
			t.Fatal(err)
		}
	})
	maps := typed(t, s.manager(t)).CoreV1().ConfigMaps("default")
	if _, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "new"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	stale, err := maps.List(t.Context(), metav1.ListOptions{ResourceVersion: "0"})
	if err != nil || len(stale.Items) != 0 {
		t.Fatalf("a stale list has %v (%v)", stale.Items, err)
	}
	if list, err := maps.List(t.Context(), metav1.ListOptions{}); err != nil || len(list.Items) != 1 {
		t.Errorf("a consistent list has %v (%v)", list.Items, err)
	}
	w, err := maps.Watch(t.Context(), metav1.ListOptions{ResourceVersion: stale.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	if event := <-w.ResultChan(); event.Type != watch.Added {
		t.Errorf("after the stale list comes %v", event)
	}
}

// Another writer comes before an update, which has a conflict then, and leaves the object as it was.
func TestFaultsOfAnotherWriter(t *testing.T) {
	s := startServer(t, nil)
	config := s.manager(t)
	maps := typed(t, config).CoreV1().ConfigMaps("default")
	made, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "m"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	fail(t, config, "other-writer rate=1")
	made.Data = map[string]string{"k": "v"}
	if _, err := maps.Update(t.Context(), made, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("the update: %v", err)
	}
	state := fail(t, config, "")
	if len(state.Happened) != 1 || state.Happened[0].Fault != "somebody else wrote before" {
		t.Errorf("%+v", state.Happened)
	}
	now, err := maps.Get(t.Context(), "m", metav1.GetOptions{})
	if err != nil || len(now.Annotations) > 0 || now.ResourceVersion == made.ResourceVersion {
		t.Errorf("the object is %v (%v)", now, err)
	}
}

// Faults are for administrators, and a server may refuse them.
func TestRightsOfFaults(t *testing.T) {
	s := startServer(t, func(c *apiserver.Config) { c.Faults.Refused = "this server keeps its data" })
	s.allow(t, "reader", rbacv1.PolicyRule{Verbs: []string{"get"}, NonResourceURLs: []string{"/coppice/v1/*"}}, onRequests())
	for _, c := range []struct {
		user, method, plan string
		status             int
		says               string
	}{
		{"reader", http.MethodGet, "", http.StatusForbidden, "you need the right to post to " + faults.Path},
		{"reader", http.MethodPost, "mild", http.StatusForbidden, "forbidden"},
		{"nobody", http.MethodGet, "", http.StatusForbidden, "you need the right to post"},
		{"", http.MethodGet, "", http.StatusOK, `"plan":""`},
		{"", http.MethodPost, "mild", http.StatusForbidden, "this server keeps its data"},
		{"", http.MethodDelete, "", http.StatusMethodNotAllowed, "not supported"},
	} {
		config := s.config
		if c.user != "" {
			config = s.acting(c.user)
		}
		if status, body := askForFaults(t, config, c.method, c.plan); status != c.status || !strings.Contains(body, c.says) {
			t.Errorf("%+v: %d %s", c, status, body)
		}
	}
	other := startServer(t, nil)
	page := rest.CopyConfig(other.config)
	page.Wrap(func(next http.RoundTripper) http.RoundTripper { return ofAnotherSite{next} })
	if status, body := askForFaults(t, page, http.MethodPost, "mild"); status != http.StatusForbidden {
		t.Errorf("from a page of another site: %d %s", status, body)
	}
	form := forged{method: http.MethodPost, path: "/api/v1/namespaces/default/configmaps", body: `{"metadata":{"name":"a"}}`}
	if status, body := forge(t, page, form); status != http.StatusForbidden {
		t.Errorf("an object, from a page of another site: %d %s", status, body)
	}
	if status, body := forge(t, other.config, form); status != http.StatusCreated {
		t.Errorf("an object, from another program: %d %s", status, body)
	}
	if status, body := askForFaults(t, other.config, http.MethodGet, ""); status != http.StatusOK || !strings.Contains(body, `"plan":""`) {
		t.Errorf("afterwards: %d %s", status, body)
	}
	for plan, want := range map[string]string{"wild": "is neither a level", strings.Repeat("x", 65<<10): "too large"} {
		if status, body := askForFaults(t, other.config, http.MethodPost, plan); status < 400 || status >= 500 || !strings.Contains(body, want) {
			t.Errorf("%.10q: %d %.200s", plan, status, body)
		}
	}
}

// ofAnotherSite sends requests as a browser does for a page of another site.
type ofAnotherSite struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t ofAnotherSite) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Sec-Fetch-Site", "cross-site")
	r.Header.Set("Origin", "https://example.com")
	return t.next.RoundTrip(r)
}

// A watch at resourceVersion 0 begins with a former state, and has what happened since, whether the client asks for a
// bookmark after the state or not.
func TestFaultsOfWatchesFromAFormerState(t *testing.T) {
	for _, sub := range subjects {
		t.Run(sub.name, func(t *testing.T) {
			t.Parallel()
			s := startServer(t, nil)
			if sub.kind.Group == widgetGroup {
				s.define(t, definition(widgetGroup, sub.plural, sub.kind.Kind))
			}
			own := s.subject(t, sub, metav1.NamespaceDefault)
			own.create("old")
			config := s.manager(t)
			fail(t, config, "stale-list delay=1h")
			changed := map[string]any{"metadata": map[string]any{"labels": map[string]any{"changed": "yes"}}}
			if _, err := own.patch("old", types.MergePatchType, changed); err != nil {
				t.Fatal(err)
			}
			own.create("new")
			begins := true
			for _, c := range []struct {
				options metav1.ListOptions
				want    []string
			}{
				{metav1.ListOptions{ResourceVersion: "0"}, []string{"ADDED old ", "MODIFIED old yes", "ADDED new "}},
				{
					metav1.ListOptions{
						ResourceVersion: "0", ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
						SendInitialEvents: &begins, AllowWatchBookmarks: true,
					},
					[]string{"ADDED old ", "the state", "MODIFIED old yes", "ADDED new "},
				},
				{metav1.ListOptions{}, []string{"ADDED new ", "ADDED old yes"}}, // the newest state
			} {
				if got := shownBy(t, config, own, c.options, len(c.want)); !slices.Equal(got, c.want) {
					t.Errorf("a watch with %+v shows %q, want %q", c.options, got, c.want)
				}
			}
		})
	}
}

// shownBy returns the first events of a watch.
func shownBy(t *testing.T, config *rest.Config, c collection, options metav1.ListOptions, events int) (shown []string) {
	t.Helper()
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	w, err := client.Resource(c.resource.WithVersion(c.kind.Version)).Namespace(metav1.NamespaceDefault).Watch(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	for len(shown) < events {
		event := <-w.ResultChan()
		o, ok := event.Object.(*unstructured.Unstructured)
		switch {
		case !ok:
			t.Fatalf("after %q comes %v", shown, event)
		case event.Type != watch.Bookmark:
			shown = append(shown, fmt.Sprintf("%s %s %s", event.Type, o.GetName(), o.GetLabels()["changed"]))
		case o.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true":
			shown = append(shown, "the state")
		}
	}
	return shown
}

// The controllers of the control plane meet the faults that select their users; other requests in the process meet none.
func TestFaultsOfOwnControllers(t *testing.T) {
	t.Parallel()
	s := startServer(t, func(c *apiserver.Config) {
		var err error
		if c.Faults.Plan, err = faults.ParsePlan("refused-write rate=1 user=*; refused-write rate=0 user=admin"); err != nil {
			t.Fatal(err)
		}
	})
	workloads, err := s.Workloads()
	if err != nil {
		t.Fatal(err)
	}
	event := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Name: "e", Namespace: "default"}, InvolvedObject: corev1.ObjectReference{Namespace: "default"}}
	workloads.QPS = -1
	if _, err := typed(t, workloads).CoreV1().Events("default").Create(t.Context(), event, metav1.CreateOptions{}); err == nil {
		t.Error("the write of a controller is not refused")
	}
	if _, err := typed(t, s.config).CoreV1().Events("default").Create(t.Context(), event, metav1.CreateOptions{}); err != nil {
		t.Errorf("another write in this process: %v", err)
	}
}
