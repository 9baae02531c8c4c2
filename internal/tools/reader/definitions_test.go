package reader

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/coppice-dev/coppice/internal/rules/apiservice"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
)

// answers is a server with an answer for each path, and 404 for others. An answer that is no object is the message of a
// failure.
func answers(t *testing.T, byPath map[string]string) *rest.Config {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		answer, known := byPath[r.URL.Path]
		status := metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Message: answer}
		switch {
		case strings.HasPrefix(answer, "{"):
			_, _ = w.Write([]byte(answer))
			return
		case known:
			status.Reason, status.Code = metav1.StatusReasonInternalError, http.StatusInternalServerError
		default:
			status.Reason, status.Code = metav1.StatusReasonNotFound, http.StatusNotFound
		}
		w.WriteHeader(int(status.Code))
		_ = json.NewEncoder(w).Encode(status)
	}))
	t.Cleanup(server.Close)
	return &rest.Config{Host: server.URL}
}

// Objects that cannot be converted to the version of their resource are listed in the one in which they are stored. If
// there is none, the error is that of the first list.
func TestListsInTheStoredVersion(t *testing.T) {
	const fails = `conversion webhook for example.com/v1, Kind=Widget failed: no endpoints`
	const list = `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{},"items":[{"metadata":{"name":"a","namespace":"shop","uid":"1"}}]}`
	resource := &inventory.Resource{
		GroupVersionResource: schema.GroupVersionResource{Group: "example.com", Version: "v2", Resource: "widgets"}, Kind: "Widget", Namespaced: true,
		Versions: []string{"v1", "v2", "v3"},
	}
	for name, test := range map[string]struct {
		v1, v2 string
		isRead bool
	}{
		"all in this version":    {fails, list, true},
		"all in another version": {list, fails, true},
		"in several versions":    {fails, fails, false},
		"another failure":        {list, "etcd is away", false},
	} {
		t.Run(name, func(t *testing.T) {
			config := answers(t, map[string]string{"/apis/example.com/v1/widgets": test.v1, "/apis/example.com/v2/widgets": test.v2})
			r, err := newReader(config, Options{})
			if err != nil {
				t.Fatal(err)
			}
			err = r.listPart(t.Context(), resource, part{})
			if isRead := err == nil && len(r.result.Objects) == 1; isRead != test.isRead || err != nil && !strings.Contains(err.Error(), test.v2) {
				t.Fatalf("%d objects, %v", len(r.result.Objects), err)
			}
			if test.isRead && r.result.Objects[0].Resource != resource {
				t.Errorf("its resource is %+v", r.result.Objects[0].Resource)
			}
		})
	}
}

// A server whose watch cache cannot convert the objects answers a whole list with 429, again and again. The pages, which
// it reads from its storage, tell why.
func TestListsWithoutWatchCache(t *testing.T) {
	const fails = `conversion webhook for example.com/v2, Kind=Widget failed: no endpoints`
	lists := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		lists++
		status := apierrors.NewInternalError(errors.New(fails)).Status()
		if r.URL.Query().Get("limit") == "" {
			status = apierrors.NewTooManyRequests("storage is (re)initializing", 30).Status()
			w.Header().Set("Retry-After", "30")
		}
		status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(int(status.Code))
		_ = json.NewEncoder(w).Encode(status)
	}))
	defer server.Close()
	r, err := newReader(&rest.Config{Host: server.URL}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	r.streams = true
	resource := &inventory.Resource{GroupVersionResource: schema.GroupVersionResource{Group: "example.com", Version: "v2", Resource: "widgets"}, Kind: "Widget"}
	if err := r.listVersion(t.Context(), resource, part{}); err == nil || !strings.Contains(err.Error(), fails) || lists != 2 {
		t.Errorf("%d lists, %v", lists, err)
	}
}

// The facts about conversions are read, for a bounded number of definitions, and those about groups that do not answer.
func TestDefinitionsAndOutagesAreRead(t *testing.T) {
	const crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/"
	definition := func(conversion string) string {
		return fmt.Sprintf(`{"spec":{"group":"example.com","names":{"kind":"Widget"},"versions":[{"name":"v1"},{"name":"v2","storage":true}],`+
			`"conversion":%s},"status":{"storedVersions":["v1","v2"]}}`, conversion)
	}
	facts, err := NewFacts(answers(t, map[string]string{
		crds + "none":    definition(`{"strategy":"None"}`),
		crds + "url":     definition(`{"strategy":"Webhook","webhook":{"clientConfig":{"url":"https://127.0.0.1:1"}}}`),
		crds + "service": definition(`{"strategy":"Webhook","webhook":{"clientConfig":{"service":{"namespace":"ops","name":"hook"}}}}`),
		crds + "broken":  "etcd is away",
		"/apis/discovery.k8s.io/v1/namespaces/ops/endpointslices": `{"kind":"EndpointSliceList","apiVersion":"discovery.k8s.io/v1","items":[]}`,
		"/apis/apiregistration.k8s.io/v1/apiservices/v1.down.example.com": `{"metadata":{"creationTimestamp":"2026-04-01T12:00:00Z"},"status":{"conditions":` +
			`[{"type":"Available","status":"False","lastTransitionTime":"2026-05-01T12:00:00Z","message":"no endpoints"}]}}`,
	}))
	if err != nil {
		t.Fatal(err)
	}
	named := func(name string) *inventory.Object {
		return &inventory.Object{Object: ownership.Object{UID: ownership.UID(name), Name: name}}
	}
	known := inventory.NewFacts()
	names := []string{"none", "url", "service", "broken", "gone"}
	for n := range mostDefinitions {
		names = append(names, fmt.Sprint("zz", n)) // there are none
	}
	for _, name := range names {
		known.Definition(named(name))
	}
	known.Outage("down.example.com/v1")
	known.Outage("local.example.com/v1")
	facts.Read(t.Context(), known.Needs(), known)

	unconverted := inventory.Definition{Kind: "Widget.example.com", Storage: "v2", Stored: []string{"v1", "v2"}, Endpoints: -1}
	byURL, byService := unconverted, unconverted
	byURL.Converts, byService.Converts = true, true
	byService.Service, byService.Endpoints = types.NamespacedName{Namespace: "ops", Name: "hook"}, 0
	for name, want := range map[string]inventory.Definition{"none": unconverted, "url": byURL, "service": byService} {
		if diff := cmp.Diff(inventory.Fact[inventory.Definition]{Value: want}, known.Definition(named(name))); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	if broken, gone := known.Definition(named("broken")), known.Definition(named("gone")); broken.Unread == "" || gone.Unread == "" {
		t.Errorf("%+v, %+v", broken, gone)
	}
	if n := len(slices.DeleteFunc(names, func(name string) bool { return known.Definition(named(name)).Unread != errTooManyDefinitions.Error() })); n != 5 {
		t.Errorf("%d of %d definitions are too many", n, mostDefinitions+5)
	}
	if got := known.Outage("down.example.com/v1").Value; !got.Since.Equal(time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)) || got.Why != "no endpoints" {
		t.Errorf("the outage is %+v", got)
	}
	if got := known.Outage("local.example.com/v1"); got != (inventory.Fact[apiservice.Outage]{}) {
		t.Errorf("the outage of a group without an APIService is %+v", got)
	}
}
