package api_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/coppice-dev/coppice/collector/report"
	"github.com/coppice-dev/coppice/internal/collect/storybook"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/answer"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
	"github.com/coppice-dev/coppice/internal/tools/web/api"
)

// twofold is a cluster with objects that readers of shop may list, and hidden objects, which exist in only one of its
// two forms: owners, dependents, roots of deletions, namespaces, protected objects.
type twofold struct {
	cluster

	graph *ownership.Graph
}

func (w twofold) View(read func(g *ownership.Graph)) { read(w.graph) }

func (w twofold) Neighborhood(context.Context, *rest.Config, []ownership.UID) (*answer.Cluster, error) {
	inv := &inventory.Inventory{Resources: served()}
	for o := range w.graph.All() {
		r := slices.IndexFunc(inv.Resources, func(r *inventory.Resource) bool { return r.OwnerKind() == o.Kind })
		inv.Objects = append(inv.Objects, &inventory.Object{Object: o, Resource: inv.Resources[r]})
		if o.Kind.Kind == "Secret" { // the server refuses to read it
			inv.Unread = append(inv.Unread, inventory.Unread{
				Resource: inv.Resources[r].GroupVersionResource, Namespace: o.Namespace, Forbidden: true, Why: "secrets " + o.Name + " is forbidden",
			})
		}
	}
	inv.Index()
	return &answer.Cluster{Inventory: inv, Facts: calm{}, Now: time.Now()}, nil
}

// about is an object of the test, in shop unless its name has another namespace.
func about(kind, name string, phase ownership.Phase, owners ...string) ownership.Object {
	namespace, name, isElsewhere := strings.Cut(name, "/")
	if !isElsewhere {
		namespace, name = "shop", namespace
	}
	group := schema.ParseGroupKind(kind)
	o := ownership.Object{UID: ownership.UID(name), Kind: ownership.Kind{Group: group.Group, Kind: group.Kind}, Namespace: namespace, Name: name, Phase: phase}
	if phase == ownership.Foreground {
		o.Finalizers = []string{ownership.FinalizerForeground}
	}
	for _, owner := range owners {
		kind, name, _ := strings.Cut(owner, "/")
		version := map[bool]string{true: "apps/v1", false: "v1"}[strings.HasSuffix(kind, "Set") || kind == "Deployment"]
		o.Owners = append(o.Owners, ownership.Reference{APIVersion: version, Kind: kind, Name: name, UID: ownership.UID(name), BlockOwnerDeletion: ownership.True})
	}
	return o
}

// twofoldGraph also has an object with an owner that no reader may list, in both forms of the cluster.
func twofoldGraph(withHidden bool) *ownership.Graph {
	g := ownership.New()
	for _, r := range served() {
		scope := ownership.Cluster
		if r.Namespaced {
			scope = ownership.Namespaced
		}
		g.SetScope(r.OwnerKind(), scope)
	}
	for _, o := range []ownership.Object{
		about("Deployment.apps", "web", ownership.Foreground), about("ReplicaSet.apps", "web-1", ownership.Active, "Deployment/web"),
		about("ConfigMap", "copy", ownership.Active, "Secret/password"), about("ConfigMap", "plain", ownership.Active),
		about("ConfigMap", "alone", ownership.Foreground), about("ConfigMap", "both", ownership.Active, "ReplicaSet/web-1", "Secret/password"),
		about("ConfigMap", "astray", ownership.Active, "ConfigMap/settings"), // its owner is elsewhere, if it exists
	} {
		g.Observe(o)
	}
	if !withHidden {
		return g
	}
	guarded := about("Secret", "guarded", ownership.Active, "Deployment/web")
	guarded.Protected = true
	for _, o := range []ownership.Object{
		about("Secret", "password", ownership.Active), about("Secret", "blocks", ownership.Active, "Deployment/web"), guarded,
		about("Secret", "holds", ownership.Foreground, "ConfigMap/alone"), about("Secret", "below", ownership.Active, "ConfigMap/plain"),
		about("ConfigMap", "other/settings", ownership.Active, "ConfigMap/away"), about("Secret", "other/waits", ownership.Foreground),
		about("Node", "/n1", ownership.Active), about("Secret", "of-copy", ownership.Active, "ConfigMap/copy"),
	} {
		g.Observe(o)
	}
	return g
}

// happening is an observation of the collector, a second after the previous one. Hidden ones take no time.
type happening struct {
	gone, hidden bool
	object       ownership.Object
}

func happenings() []happening {
	secret := func(name string, owners ...string) ownership.Object {
		return about("Secret", name, ownership.Terminating, owners...)
	}
	return []happening{
		{false, true, secret("first")},
		{false, false, about("Deployment.apps", "web", ownership.Foreground)},
		{false, true, secret("held", "Deployment/web")},
		{false, true, secret("lasts", "Deployment/web")},
		{false, false, about("ReplicaSet.apps", "web-1", ownership.Terminating, "Deployment/web")},
		{true, true, secret("held")},
		{true, true, secret("first")},
		{true, false, about("ReplicaSet.apps", "web-1", ownership.Terminating, "Deployment/web")},
		{true, false, about("ConfigMap", "single", ownership.Terminating)},
		{false, true, secret("more", "Deployment/web")},
		{true, false, about("Deployment.apps", "web", ownership.Foreground)},
		{true, true, secret("more", "Deployment/web")},
	}
}

// tell records the happening in a book.
func (h happening) tell(b *storybook.Book) {
	home := ownership.UID(shopUID)
	if h.object.Namespace != "shop" {
		home = ""
	}
	if h.gone {
		b.Gone(&h.object, home, time.Now())
		return
	}
	b.Seen(&h.object, home, time.Now())
}

func twofoldRecords(withHidden bool) (records []report.Record) {
	add := func(kind, name string, owners ...report.Owner) {
		records = append(records, report.Record{
			Number: uint64(len(records) + 1), Action: report.ActionDelete, Decision: "delete Background: owners absent", MoreOwners: len(owners),
			Object: report.RecordedObject{Kind: kind, Namespace: "shop", NamespaceUID: shopUID, Name: name, UID: report.UID(name)}, Owners: owners,
		})
	}
	if withHidden {
		add("Secret", "hidden")
	}
	add("ConfigMap", "gone")
	if withHidden {
		add("Secret", "hidden", report.Owner{Kind: "ConfigMap", Namespace: "shop", Name: "gone"})
	}
	add("ConfigMap", "owned", report.Owner{Kind: "Secret", Namespace: "shop", Name: "password"})
	return records
}

// counters are numbers that count all changes, like resource versions.
var counters = regexp.MustCompile(`(?m)^id: \d+|"number": ?\d+`)

// answer returns the answer to a request, with fake time. A stream contains all events until it ends.
func (w twofold) answer(t *testing.T, token, path string, withHidden bool) (answer string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w.graph, w.records, w.book = twofoldGraph(withHidden), twofoldRecords(withHidden), storybook.New()
		r := httptest.NewRequest(http.MethodGet, path, http.NoBody)
		r.Header.Set("Authorization", "Bearer "+token)
		recorder := httptest.NewRecorder()
		handler := api.Handler(w, func(r *http.Request) (api.Caller, error) {
			caller, err := access(r)
			caller.Config = &rest.Config{Host: "http://localhost:1"} // the test must not read from it
			return caller, err
		})
		isStream := strings.Contains(path, "/watch")
		all := happenings()
		before := len(all)
		if isStream {
			before = 3
		}
		for n, one := range all {
			if n == before {
				go handler.ServeHTTP(recorder, r)
			}
			switch {
			case !one.hidden:
				time.Sleep(time.Second)
				one.tell(w.book)
			case withHidden:
				one.tell(w.book)
			}
		}
		time.Sleep(2 * time.Second)
		if !isStream {
			handler.ServeHTTP(recorder, r)
		}
		time.Sleep(time.Minute) // until the stream ends
		synctest.Wait()
		answer = counters.ReplaceAllString(fmt.Sprint(recorder.Code, " ", recorder.Body), "COUNTER")
	})
	return answer
}

// Every answer has the same status and the same bytes as if the objects that the caller may not list did not exist,
// except for the numbers that count all changes.
func TestAnswersDoNotDependOnHiddenObjects(t *testing.T) {
	queries := []string{"", "?object=configmaps/shop/copy", "?object=configmaps/shop/plain", "?object=secrets/shop/password", "?object=configmaps/other/settings"}
	for _, uid := range []string{"web", "web-1", "copy", "plain", "alone", "both", "password", "below", "settings", "astray", "n1", "waits", "web&uid=alone", "plain&uid=password"} {
		queries = append(queries, "?uid="+uid)
	}
	paths := []string{}
	for _, path := range api.Paths() {
		if path == api.Resume || path == api.OpenAPI {
			continue
		}
		for _, query := range queries {
			paths = append(paths, path+query)
		}
	}
	for _, policy := range []string{"Foreground", "Orphan", "Background"} {
		paths = append(paths, api.Preview+"?uid=web&uid=plain&propagationPolicy="+policy)
	}
	for _, id := range []string{"web", "first", "single", "nobody"} {
		paths = append(paths, api.Stories+"/"+id, api.Stories+"/"+id+"?format=text", api.Stories+"/"+id+"/watch")
	}
	for _, token := range []string{"configmaps/shop,deployments.apps/shop,replicasets.apps/shop", "configmaps/shop", "nothing"} {
		for _, path := range paths {
			without, with := twofold{}.answer(t, token, path, false), twofold{}.answer(t, token, path, true)
			if without != with {
				t.Errorf("%s as %s:\n%s\nwith hidden objects:\n%s", path, token, without, with)
			}
		}
	}
	// Callers with the right to list the hidden objects would see them.
	for _, path := range []string{api.Component, api.Dependents + "?uid=web", api.Explain + "?uid=alone", api.Preview + "?uid=plain", api.Records, api.Stories, api.Stories + "/web", api.Stories + "/web/watch", api.Deletions, api.Watch} {
		if without, with := (twofold{}).answer(t, everything, path, false), (twofold{}).answer(t, everything, path, true); without == with {
			t.Errorf("%s does not depend on the hidden objects for an administrator either: the test shows nothing", path)
		}
	}
}
