package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/coppice-dev/coppice/collector/report"
	"github.com/coppice-dev/coppice/internal/collect/storybook"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
	"github.com/coppice-dev/coppice/internal/tools/web/api"
)

// cluster is a Source: in namespace shop, a Deployment owns a ReplicaSet and a Secret, which owns a ConfigMap;
// objects in namespace other have no owners.
type cluster struct {
	records []report.Record
	book    *storybook.Book
}

func served() []*inventory.Resource {
	resource := func(group, plural, kind string, namespaced bool, short ...string) *inventory.Resource {
		return &inventory.Resource{
			GroupVersionResource: schema.GroupVersionResource{Group: group, Version: "v1", Resource: plural},
			Kind:                 kind, Singular: strings.ToLower(kind), Namespaced: namespaced, ShortNames: short,
		}
	}
	return []*inventory.Resource{
		resource("", "configmaps", "ConfigMap", true, "cm"), resource("", "secrets", "Secret", true),
		resource("", "nodes", "Node", false), resource("apps", "deployments", "Deployment", true, "deploy"),
		resource("apps", "replicasets", "ReplicaSet", true),
	}
}

func (cluster) Resources() []*inventory.Resource { return served() }

func (cluster) View(read func(g *ownership.Graph)) {
	g := ownership.New()
	for _, r := range served() {
		scope := ownership.Cluster
		if r.Namespaced {
			scope = ownership.Namespaced
		}
		g.SetScope(r.OwnerKind(), scope)
	}
	observe := func(kind ownership.Kind, namespace, name string, phase ownership.Phase, owners ...ownership.Reference) {
		g.Observe(ownership.Object{UID: ownership.UID(name), Kind: kind, Namespace: namespace, Name: name, Phase: phase, Owners: owners})
	}
	owner := func(version, kind, name string) ownership.Reference {
		return ownership.Reference{APIVersion: version, Kind: kind, Name: name, UID: ownership.UID(name), BlockOwnerDeletion: ownership.True}
	}
	observe(ownership.Kind{Group: "apps", Kind: "Deployment"}, "shop", "web", ownership.Foreground)
	observe(ownership.Kind{Group: "apps", Kind: "ReplicaSet"}, "shop", "web-1", ownership.Active, owner("apps/v1", "Deployment", "web"))
	observe(ownership.Kind{Kind: "Secret"}, "shop", "password", ownership.Active, owner("apps/v1", "Deployment", "web"))
	observe(ownership.Kind{Kind: "ConfigMap"}, "shop", "copy", ownership.Active, owner("v1", "Secret", "password"))
	observe(ownership.Kind{Kind: "ConfigMap"}, "other", "settings", ownership.Active, owner("v1", "ConfigMap", "nobody"), owner("old.example.com/v1", "Thing", "former"))
	observe(ownership.Kind{Kind: "Node"}, "", "n1", ownership.Active)
	read(g)
}

// Living returns the UIDs of the existing namespaces.
func (cluster) Living(_ context.Context, namespace string) (ownership.UID, error) {
	return map[string]ownership.UID{"shop": shopUID}[namespace], nil
}

const shopUID = "the present shop"

func (w cluster) Records(after uint64) []report.Record {
	return slices.DeleteFunc(slices.Clone(w.records), func(r report.Record) bool { return r.Number <= after })
}

func (cluster) Status(ctx context.Context, s *api.Sight) (api.SeenStatus, error) {
	seen, err := s.Sees(ctx, ownership.Kind{Kind: "Secret"}, "shop")
	return api.SeenStatus{Status: report.Status{Synced: seen}, Unread: s.Unread()}, err
}

func (cluster) Resume(kind string) bool { return kind == "ReplicaSet.apps" }

func (w cluster) Stories() *storybook.Book { return w.book }

// rights are the resources that a user may list: RESOURCE.GROUP, or RESOURCE.GROUP/NAMESPACE, or "*.*".
type rights []string

// access is an Access that takes the rights from the bearer token.
func access(r *http.Request) (api.Caller, error) {
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok {
		return api.Caller{}, api.ErrUnauthenticated
	}
	may := rights(strings.Split(token, ","))
	return api.Caller{User: token, MayList: func(_ context.Context, resource schema.GroupResource, namespace string) (bool, error) {
		if slices.Contains(may, "broken") {
			return false, errors.New("the server is on fire")
		}
		what := resource.String()
		if namespace != "" {
			what += "/" + namespace
		}
		return slices.Contains(may, what), nil
	}}, nil
}

// ask sends a request with a token, unless that is empty.
func ask(t *testing.T, source api.Source, token, path string) (int, string) {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, path, http.NoBody)
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	w := httptest.NewRecorder()
	api.Handler(source, access).ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

// serve sends a request to a handler, and returns the status.
func serve(handler http.Handler, token, path string) int {
	r := httptest.NewRequest(http.MethodGet, path, http.NoBody)
	r.Header.Set("Authorization", "Bearer "+token)
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, r)
	return w.Code
}

const (
	everything = "*.*"
	noSecrets  = "configmaps,nodes,deployments.apps,replicasets.apps"
	onlyShop   = "configmaps/shop,secrets/shop,deployments.apps/shop,replicasets.apps/shop"
)

// A caller sees only objects that they may list, and that such objects connect with the named one.
func TestGraphHasTheObjectsThatTheCallerMayList(t *testing.T) {
	for _, c := range []struct {
		name, token, path string
		objects           string // their names
	}{
		{"down, by name", everything, api.Dependents + "?object=deployments.apps/shop/web", "web-1 copy password web"},
		{"down, as kubectl spells", everything, api.Dependents + "?object=deploy/shop/web", "web-1 copy password web"},
		{"up", everything, api.Owners + "?object=cm/shop/copy", "copy password web"},
		{"in a namespace of its own", everything, api.Owners + "?object=cm/copy&object=nodes/n1&namespace=shop", "copy password web n1"},
		{"around, by uid", everything, api.Component + "?uid=web-1", "web-1 copy password web"},
		{"of two", everything, api.Dependents + "?uid=web-1&object=nodes/n1", "web-1 n1"},
		{"down, without secrets", noSecrets, api.Dependents + "?object=deployments.apps/shop/web", "web-1 web"},
		{"up, without secrets", noSecrets, api.Owners + "?object=configmaps/shop/copy", "copy"},
		{"in one namespace", onlyShop, api.Component + "?uid=web", "web-1 copy password web"},
		{"missing owners", "configmaps/other", api.Owners + "?object=cm/other/settings", "former nobody settings"},
		{"all", everything, api.Component, "former nobody settings copy password web web-1"},
		{"all that one may list", noSecrets, api.Component, "former nobody settings copy web web-1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			code, body := ask(t, cluster{}, c.token, c.path)
			var g api.Graph
			if err := json.Unmarshal([]byte(body), &g); code != http.StatusOK || err != nil {
				t.Fatalf("%d %s", code, body)
			}
			var names []string
			for _, o := range g.Objects {
				names = append(names, o.Name)
			}
			want := strings.Fields(c.objects)
			slices.Sort(want)
			slices.Sort(names)
			if !slices.Equal(names, want) {
				t.Errorf("objects %v, want %v", names, want)
			}
			if (len(g.Unread) > 0) != (c.token != everything) {
				t.Errorf("unread %q", g.Unread)
			}
			if c.token == noSecrets && strings.Contains(body, "password") {
				t.Errorf("names a secret: %s", body)
			}
		})
	}
}

// A refusal is the same whether or not the object exists.
func TestRefusalDoesNotTellWhetherTheObjectExists(t *testing.T) {
	for _, c := range []struct {
		token, path string
		code        int
	}{
		{"", api.Status, http.StatusUnauthorized},
		{"", api.Component, http.StatusUnauthorized},
		{"", api.Records, http.StatusUnauthorized},
		{"", api.Owners + "?uid=web", http.StatusUnauthorized},
		{noSecrets, api.Owners + "?object=secrets/shop/password", http.StatusForbidden},
		{noSecrets, api.Owners + "?object=secrets/shop/none", http.StatusForbidden},
		{noSecrets, api.Records + "?object=secrets/shop/none", http.StatusForbidden},
		{noSecrets, api.Owners + "?uid=password", http.StatusNotFound},
		{noSecrets, api.Owners + "?uid=none", http.StatusNotFound},
		{onlyShop, api.Owners + "?object=configmaps/other/settings", http.StatusForbidden},
		{everything, api.Owners + "?object=configmaps/shop/none", http.StatusNotFound},
		{everything, api.Watch + "?after=many", http.StatusBadRequest},
		{noSecrets, api.Watch + "?object=secrets/shop/password", http.StatusForbidden},
		{"", api.Watch, http.StatusUnauthorized},
		{"", api.OpenAPI, http.StatusUnauthorized},
		{everything, api.Owners, http.StatusBadRequest},
		{everything, api.Owners + "?object=configmaps", http.StatusBadRequest},
		{everything, api.Owners + "?object=configmaps/copy", http.StatusBadRequest},
		{everything, api.Owners + "?object=nodes/shop/n1", http.StatusBadRequest},
		{everything, api.Owners + "?object=widgets/shop/w", http.StatusBadRequest},
		{"broken", api.Status, http.StatusBadGateway},
		{everything, api.Prefix + "/nothing", http.StatusNotFound},
	} {
		if code, body := ask(t, cluster{}, c.token, c.path); code != c.code {
			t.Errorf("%q asks for %s: %d %s, want %d", c.token, c.path, code, body, c.code)
		}
	}
}

// Only callers with the right to list all objects that a decision may name see all of the decision.
func TestDecisionIsShownToCallersWhoMayListItsObjects(t *testing.T) {
	for token, want := range map[string]string{
		everything: "await password, web-1", onlyShop: "await password, web-1", noSecrets: "not shown: it depends on objects that you may not list",
	} {
		code, body := ask(t, cluster{}, token, api.Owners+"?uid=web")
		var g api.Graph
		if err := json.Unmarshal([]byte(body), &g); code != http.StatusOK || err != nil || len(g.Objects) != 1 {
			t.Fatalf("%d %s", code, body)
		}
		if got := g.Objects[0].Decision; got != want {
			t.Errorf("%s: %q, want %q", token, g.Objects[0].Decision, want)
		}
	}
}

// A caller gets only records of objects that they may list, and these name no other objects.
func TestRecordsNameNoHiddenObjects(t *testing.T) {
	object := func(kind, namespace, name string) report.RecordedObject {
		o := report.RecordedObject{Kind: kind, Namespace: namespace, Name: name, UID: report.UID(name)}
		if namespace != "" {
			o.NamespaceUID = shopUID
		}
		return o
	}
	source := cluster{records: []report.Record{
		{Number: 1, Action: report.ActionDelete, Object: object("ConfigMap", "shop", "gone"), Decision: "delete Background: owners absent: Secret password", Owners: []report.Owner{{Kind: "Secret", Namespace: "shop", Name: "password"}}},
		{Number: 2, Action: report.ActionDelete, Object: object("Secret", "shop", "password"), Decision: "delete Background: owners absent: Deployment.apps web", Owners: []report.Owner{{Kind: "Deployment.apps", Namespace: "shop", Name: "web"}}},
		{Number: 3, Action: report.ActionOrphan, Object: object("ReplicaSet.apps", "shop", "web-1"), Decision: "disown Secret password, ReplicaSet.apps web-1", Error: "secrets password: timeout"},
		{Number: 4, Action: report.ActionDelete, Object: object("Thing.old.example.com", "", "t"), Decision: "delete Background"},
	}}
	for _, c := range []struct {
		token, query string
		numbers      []uint64
	}{
		{everything, "", []uint64{1, 2, 3, 4}},
		{noSecrets, "", []uint64{1, 3}},
		{onlyShop, "", []uint64{1, 2, 3}},
		{"nodes", "", nil},
		{everything, "?object=secrets/shop/password", []uint64{2}},
		{everything, "?uid=gone&object=replicasets.apps/shop/web-1", []uint64{1, 3}},
		{everything, "?uid=nobody", nil},
	} {
		code, body := ask(t, source, c.token, api.Records+c.query)
		var list api.RecordList
		if err := json.Unmarshal([]byte(body), &list); code != http.StatusOK || err != nil {
			t.Fatalf("%d %s", code, body)
		}
		var numbers []uint64
		for _, r := range list.Items {
			numbers = append(numbers, r.Number)
		}
		if !slices.Equal(numbers, c.numbers) {
			t.Errorf("%s%s: records %v, want %v", c.token, c.query, numbers, c.numbers)
		}
		if c.token == noSecrets && (strings.Contains(body, "password") || list.Items[0].MoreOwners != 0) {
			t.Errorf("names a secret, or counts it: %s", body)
		}
		if c.token == everything && c.query == "" && !strings.Contains(body, "owners absent: Secret password") {
			t.Errorf("leaves out what the caller may list: %s", body)
		}
	}
}
