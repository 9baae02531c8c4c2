package api_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/coppice-dev/coppice/internal/collect/storybook"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/answer"
	"github.com/coppice-dev/coppice/internal/tools/web/api"
)

// counted is a Source with a Secret that owns many ConfigMaps, and counts the reads. The graph is read in batches, so
// the number of views shows how many objects were visited.
type counted struct {
	cluster

	graph         *ownership.Graph
	views         atomic.Int64
	neighborhoods atomic.Int64
	hold          chan struct{} // Neighborhood waits until it is closed, unless it is nil
}

const dependents = 5000

func newCounted() *counted { return &counted{graph: manyDependents()} }

// manyDependents returns a graph that does not change.
var manyDependents = sync.OnceValue(func() *ownership.Graph {
	g := ownership.New()
	for _, r := range served() {
		scope := ownership.Cluster
		if r.Namespaced {
			scope = ownership.Namespaced
		}
		g.SetScope(r.OwnerKind(), scope)
	}
	observe := func(kind, name string, owners ...ownership.Reference) {
		g.Observe(ownership.Object{UID: ownership.UID(name), Kind: ownership.Kind{Kind: kind}, Namespace: "shop", Name: name, Owners: owners})
	}
	observe("Secret", "owner")
	observe("ConfigMap", "visible")
	for n := range dependents {
		observe("ConfigMap", fmt.Sprint("c", n), ownership.Reference{APIVersion: "v1", Kind: "Secret", Name: "owner", UID: "owner"})
		observe("ConfigMap", fmt.Sprint("d", n), ownership.Reference{APIVersion: "v1", Kind: "Secret", Name: "missing", UID: "missing"})
	}
	return g
})

func (c *counted) View(read func(g *ownership.Graph)) {
	c.views.Add(1)
	read(c.graph)
}

func (c *counted) Neighborhood(ctx context.Context, config *rest.Config, uids []ownership.UID) (*answer.Cluster, error) {
	c.neighborhoods.Add(1)
	if c.hold != nil {
		<-c.hold
	}
	return c.cluster.Neighborhood(ctx, config, uids)
}

// For a caller without the right to list an object, everything is as if it did not exist: status, answer and reads.
func TestHiddenObjectIsAsAbsent(t *testing.T) {
	for _, token := range []string{"nothing", "nodes", "configmaps/other", "deployments.apps,replicasets.apps"} {
		for _, path := range []string{api.Owners, api.Dependents, api.Component, api.Preview, api.Explain, api.Records} {
			for _, with := range []string{"", "&uid=other-absent"} {
				ask := func(uid string) (answer string, views, neighborhoods int64) {
					c := newCounted()
					code, body := ask(t, c, token, path+"?uid="+uid+with)
					return strings.ReplaceAll(fmt.Sprint(code, " ", body), uid, "UID"), c.views.Load(), c.neighborhoods.Load()
				}
				absent, views, neighborhoods := ask("absent")
				if views > 3 || neighborhoods > 0 {
					t.Errorf("%s: for an absent object, the graph is read %d times, and its neighborhood %d times", path, views, neighborhoods)
				}
				for _, uid := range []string{"owner", "missing"} {
					if got, v, a := ask(uid); got != absent || v != views || a != neighborhoods {
						t.Errorf("%s %s%s as %s: %d views, %d neighborhoods, %s\nabsent: %d views, %d neighborhoods, %s", path, uid, with, token, v, a, got, views, neighborhoods, absent)
					}
				}
			}
		}
	}
}

// Beside an object that the caller may list, a hidden one leaves no trace either.
func TestHiddenObjectBesideAnotherIsAsAbsent(t *testing.T) {
	for _, path := range []string{api.Owners, api.Dependents, api.Component} {
		_, absent := ask(t, newCounted(), "configmaps", path+"?uid=visible&uid=absent")
		c := newCounted()
		if code, got := ask(t, c, "configmaps", path+"?uid=visible&uid=owner"); code != http.StatusOK || got != absent || c.views.Load() > 10 {
			t.Errorf("%s: %d with %d views: %s\nwant %s", path, code, c.views.Load(), got, absent)
		}
	}
}

// For callers with the right to list an owner, but not its dependents, the dependents are not read.
func TestHiddenDependentsAreNotRead(t *testing.T) {
	c := newCounted()
	code, body := ask(t, c, "secrets", api.Dependents+"?uid=owner")
	if code != http.StatusOK || strings.Contains(body, "ConfigMap") {
		t.Errorf("%d %.300s", code, body)
	}
	if !strings.Contains(body, api.LeftOut) {
		t.Errorf("does not say that something may be left out: %s", body)
	}
	everything := newCounted()
	if _, body := ask(t, everything, "secrets,configmaps", api.Dependents+"?uid=owner"); strings.Count(body, `"kind"`) != dependents+1 {
		t.Errorf("%d objects, want %d", strings.Count(body, `"kind"`), dependents+1)
	}
}

// A story does not exist either for a caller without the right to list its root.
func TestHiddenStoryIsAsAbsent(t *testing.T) {
	book := storybook.New()
	at := time.Now()
	owner := &ownership.Object{UID: "owner", Kind: ownership.Kind{Kind: "Secret"}, Namespace: "shop", Name: "owner", Phase: ownership.Foreground}
	book.Seen(owner, shopUID, at)
	source := cluster{book: book}
	code, absent := ask(t, source, "configmaps", api.Stories+"/absent")
	if got, hidden := ask(t, source, "configmaps", api.Stories+"/owner"); got != code || hidden != absent || code != http.StatusNotFound {
		t.Errorf("%d %s, absent: %d %s", got, hidden, code, absent)
	}
	if code, _ := ask(t, source, everything, api.Stories+"/owner"); code != http.StatusOK {
		t.Errorf("%d for a caller who may list it", code)
	}
}

// Two costly requests of one user are answered at once, of any sort; further ones wait, but other users do not.
func TestCostlyRequestsOfAUserTakeTurns(t *testing.T) {
	for _, path := range []string{api.Preview, api.Explain} {
		synctest.Test(t, func(t *testing.T) {
			c := newCounted()
			c.hold = make(chan struct{})
			handler := api.Handler(c, access)
			answered := atomic.Int64{}
			send := func(token string) {
				go func() {
					if code := serve(handler, token, path+"?uid=visible"); code == http.StatusOK || code == http.StatusNotFound {
						answered.Add(1)
					}
				}()
			}
			for range 5 {
				send("configmaps")
			}
			synctest.Wait()
			if at := c.neighborhoods.Load(); at != 2 {
				t.Errorf("%s: %d of five requests are being answered at once, want 2", path, at)
			}
			send("configmaps,secrets")
			synctest.Wait()
			if at := c.neighborhoods.Load(); at != 3 {
				t.Errorf("%s: another user waits", path)
			}
			close(c.hold)
			synctest.Wait()
			if answered.Load() != 6 {
				t.Errorf("%s: %d of six requests were answered", path, answered.Load())
			}
		})
	}
}

// Five requests of a user without rights read only the places of the named objects, and leave no seat taken.
func TestRequestsWithoutRightsCostNothing(t *testing.T) {
	c := newCounted()
	handler := api.Handler(c, access)
	for _, path := range []string{api.Preview, api.Explain, api.Dependents, api.Owners, api.Component} {
		for range 5 {
			if code := serve(handler, "nothing", path+"?uid=owner&uid=visible"); code != http.StatusNotFound {
				t.Errorf("%s: %d", path, code)
			}
		}
	}
	if c.neighborhoods.Load() != 0 || c.views.Load() > 25 {
		t.Errorf("%d neighborhoods and %d views were read for 25 requests", c.neighborhoods.Load(), c.views.Load())
	}
}

// For a caller without rights, the whole graph costs one check for each kind in each namespace, not for each object, and
// one or two looks at each piece of the graph.
func TestWholeWithoutRightsCostsNothing(t *testing.T) {
	const pieces = 2*dependents/ownership.Piece + 1
	for token, want := range map[string]int64{"nothing": pieces + 1, "nodes": pieces + 1, "secrets": 2*pieces + 3} {
		c := newCounted()
		asked := atomic.Int64{}
		handler := api.Handler(c, func(r *http.Request) (api.Caller, error) {
			caller, err := access(r)
			mayList := caller.MayList
			caller.MayList = func(ctx context.Context, resource schema.GroupResource, namespace string) (bool, error) {
				asked.Add(1)
				return mayList(ctx, resource, namespace)
			}
			return caller, err
		})
		if code := serve(handler, token, api.Component); code != http.StatusOK {
			t.Errorf("%s: %d", token, code)
		}
		if c.views.Load() > want || asked.Load() > 8 {
			t.Errorf("%s: the graph of %d objects is read %d times, and %d rights are asked for", token, 2*dependents, c.views.Load(), asked.Load())
		}
	}
}

// The rights to all kinds are asked for at once, and then those in the namespaces of the kinds that were refused. With
// coppice collect each is a request.
func TestRightsAreAskedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		handler := api.Handler(newCounted(), func(r *http.Request) (api.Caller, error) {
			caller, err := access(r)
			mayList := caller.MayList
			caller.MayList = func(ctx context.Context, resource schema.GroupResource, namespace string) (bool, error) {
				time.Sleep(time.Second) // in the bubble
				return mayList(ctx, resource, namespace)
			}
			return caller, err
		})
		began := time.Now()
		if code := serve(handler, "nothing", api.Component); code != http.StatusOK {
			t.Errorf("status %d", code)
		}
		if took := time.Since(began); took != 3*time.Second { // everything, kinds, kinds in namespaces
			t.Errorf("the reviews of two kinds in a namespace take %s of the bubble", took)
		}
	})
}

// A request may name a bounded number of objects.
func TestNamedObjectsAreBounded(t *testing.T) {
	if code, body := ask(t, newCounted(), everything, api.Preview+"?"+strings.Repeat("uid=x&", 1001)); code != http.StatusBadRequest {
		t.Errorf("%d %s", code, body)
	}
}
