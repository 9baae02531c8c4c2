package explain_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/explain"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
)

func (w *cluster) lines(text string) *cluster {
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			w.line(strings.Fields(line))
		}
	}
	return w
}

// Waits for the same reason are reported once, the oldest stuck one first.
func TestAllIsGroupedByLeaf(t *testing.T) {
	w := newCluster(t).lines(`
		Namespace shop deleted=5h spec=kubernetes
		Widget.shop.acme.io shop/young deleted=1h finalizers=shop.acme.io/cleanup by=shop-operator:26h:shop.acme.io/cleanup
		Widget.shop.acme.io shop/old deleted=4h finalizers=shop.acme.io/cleanup by=shop-operator:26h:shop.acme.io/cleanup
		Widget.shop.acme.io web/served deleted=9h finalizers=web.acme.io/x by=web-operator:26h:web.acme.io/x
		Deployment.apps ops/web-operator replicas=1 ready=1
		Pod web/p deleted=1h grace=30s node=n1
		Node n1 notready=2h
		ConfigMap web/untouched`)
	var got []string
	for _, g := range w.explainer().All() {
		got = append(got, fmt.Sprintf("%s %s %s: %v", g.Leaf.State, g.Leaf.On, g.Leaf.Finalizer, g.Objects))
	}
	want := []string{
		"Stuck Finalizer shop.acme.io/cleanup: [Namespace shop Widget.shop.acme.io shop/old Widget.shop.acme.io shop/young]",
		"Stuck Node : [Pod web/p]",
		"Slow Finalizer web.acme.io/x: [Widget.shop.acme.io web/served]",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// A control plane without Leases does not show whether its controllers work, but fewer contents than before do. They
// change nothing about stuck waits.
func TestWhatBecomesLessIsSlow(t *testing.T) {
	const contents = `
		Namespace shop deleted=5h spec=kubernetes
		ConfigMap shop/a
		ConfigMap shop/b`
	const held = `
		Widget.shop.acme.io shop/w deleted=4h finalizers=shop.acme.io/cleanup by=shop-operator:26h:shop.acme.io/cleanup`
	before := newCluster(t).lines(contents + held + `
		ConfigMap shop/c`)
	before.inventory.Read = now.Add(-10 * time.Second)
	for _, test := range []struct {
		name, lines string
		before      *inventory.Inventory
		want        explain.State
	}{
		{"one look", contents, nil, explain.Unknown},
		{"fewer than before", contents, &before.inventory, explain.Slow},
		{"as many as before", contents + held + "\n ConfigMap shop/c deleted=1h", &before.inventory, explain.Stuck},
		{"fewer, and one is stuck", contents + held, &before.inventory, explain.Stuck},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newCluster(t).lines(test.lines)
			w.inventory.Index()
			e := explain.New(explain.Input{Inventory: &w.inventory, Before: test.before, Facts: w.facts(), Now: now})
			x, ok := e.Explain("Namespace/shop")
			if !ok || x.State != test.want {
				t.Errorf("is %s, want %s:\n%s", x.State, test.want, x.Text(now))
			}
		})
	}
}

// A namespace with thousands of objects is explained by the stuck one, wherever it is.
func TestTheStuckOneIsShown(t *testing.T) {
	w := newCluster(t).lines(`
		Namespace shop deleted=5h spec=kubernetes
		Lease.coordination.k8s.io kube-system/kube-controller-manager renewed=2s holder=cp-1`)
	for n := range 2000 {
		w.lines(fmt.Sprintf("ConfigMap shop/c%d", n))
	}
	w.lines("Widget.shop.acme.io shop/w deleted=4h finalizers=shop.acme.io/cleanup by=shop-operator:26h:shop.acme.io/cleanup")
	x := w.explain("Namespace/shop")
	leaf := x.Leaves()[0]
	if leaf.Finalizer != "shop.acme.io/cleanup" || x.State != explain.Stuck {
		t.Errorf("the leaf is %+v", leaf)
	}
	if len(x.Waits) != 1 || len(x.Waits[0].Waits)+x.Waits[0].More != 2001 || len(x.Waits[0].Waits) > 10 {
		t.Errorf("%d of %d objects are shown, and %d more", len(x.Waits[0].Waits), 2001, x.Waits[0].More)
	}
}

// Without details, fewer facts are known, and no wait is called stuck for that reason.
func TestNothingIsStuckWithoutDetails(t *testing.T) {
	w := newCluster(t).lines(`
		Widget.shop.acme.io shop/w deleted=2h finalizers=shop.acme.io/cleanup by=shop-operator:26h:shop.acme.io/cleanup
		Deployment.apps ops/shop-operator
		Widget.shop.acme.io shop/v deleted=2h finalizers=x.acme.io/y by=gone:26h:x.acme.io/y
		Pod shop/p deleted=1h grace=30s node=n1
		Service shop/s deleted=1h finalizers=service.kubernetes.io/load-balancer-cleanup
		Lease.coordination.k8s.io kube-system/cloud-controller-manager`)
	w.inventory.Index()
	e := explain.New(explain.Input{Inventory: &w.inventory, Now: now})
	for _, o := range w.inventory.Objects {
		if x, _ := e.Explain(o.UID); x.State == explain.Stuck {
			t.Errorf("%s", x.Text(now))
		}
	}
}

// The first advice is never to remove a finalizer, and each command that removes one tests its value first.
func TestNoFinalizerIsRemovedBlindly(t *testing.T) {
	w := newCluster(t).lines("Widget.shop.acme.io shop/w deleted=2h finalizers=other.acme.io/x,shop.acme.io/cleanup by=shop-operator:26h:shop.acme.io/cleanup,other.acme.io/x")
	x := w.explain("Widget.shop.acme.io/w")
	patches := 0
	for _, leaf := range x.Leaves() {
		if strings.Contains(leaf.Next[0].Command, "patch") {
			t.Errorf("the first advice is %s", leaf.Next[0].Command)
		}
		for _, step := range leaf.Next {
			if strings.Contains(step.Command, "kubectl patch") {
				patches++
				n := slices.Index([]string{"other.acme.io/x", "shop.acme.io/cleanup"}, leaf.Finalizer)
				want := fmt.Sprintf(`[{"op":"test","path":"/metadata/finalizers/%d","value":%q},{"op":"remove","path":"/metadata/finalizers/%d"}]`, n, leaf.Finalizer, n)
				if !strings.Contains(step.Command, want) {
					t.Errorf("the patch is %s, want %s", step.Command, want)
				}
			}
		}
	}
	if patches != 2 {
		t.Errorf("%d patches were advised, want one for each finalizer", patches)
	}
}

// Programs read the JSON form, so its fields keep their names.
func TestJSON(t *testing.T) {
	w := newCluster(t).lines(`
		Widget.shop.acme.io shop/w deleted=2h finalizers=shop.acme.io/cleanup by=shop-operator:26h:shop.acme.io/cleanup
		Deployment.apps ops/shop-operator replicas=0
		unread secrets. forbidden`)
	x := w.explain("Widget.shop.acme.io/w")
	got, err := json.Marshal(x)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"object":{"kind":"Widget.shop.acme.io","namespace":"shop","name":"w","uid":"Widget.shop.acme.io/w"},` +
		`"state":"Stuck","deleted":"2026-03-01T10:00:00Z","waits":[{"on":"Finalizer",` +
		`"says":"finalizer shop.acme.io/cleanup: Deployment.apps ops/shop-operator serves it, and is scaled to 0",` +
		`"state":"Stuck","finalizer":"shop.acme.io/cleanup","servedBy":{"finalizer":"shop.acme.io/cleanup",` +
		`"controller":"Deployment.apps ops/shop-operator","workload":"Deployment.apps/shop-operator","state":"ScaledToZero",` +
		`"confidence":"High","evidence":["the finalizer was set by field manager shop-operator on this object",` +
		`"Deployment.apps ops/shop-operator has that name","it is scaled to 0"]},"since":"2026-03-01T10:00:00Z",` +
		`"next":[{"says":"start its controller again","command":"kubectl scale deployments.apps/shop-operator -n ops --replicas=1"}]}],` +
		`"unseen":["secrets: forbidden"]}`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// The status of a running collector counts: that it works, and which objects it holds or has paused.
func TestWhatTheCollectorSays(t *testing.T) {
	since := now.Add(-time.Hour)
	says := func(edit func(*explain.Collector)) *explain.Collector {
		c := &explain.Collector{Where: "the collector at x", Collects: true, Empties: true, Resume: "resume "}
		edit(c)
		return c
	}
	held := func(unread ...explain.HeldBy) *explain.Collector {
		return says(func(c *explain.Collector) {
			c.Held = map[ownership.UID]explain.Held{"ConfigMap/root": {Since: since, Unread: unread}}
		})
	}
	widgets := explain.HeldBy{What: "Widget.acme.io", Why: "forbidden"}
	const root = "ConfigMap shop/root deleted=2h finalizers=foregroundDeletion"
	const garbage = "ConfigMap shop/root owner=apps/v1:Deployment:gone"
	for _, test := range []struct {
		name, lines string
		collector   *explain.Collector
		state       explain.State
		on          explain.On
		says        string
	}{
		{"nobody was asked", root, nil, explain.Unknown, explain.OnCollector, "removes its finalizer"},
		{"it works", root, says(func(*explain.Collector) {}), explain.Slow, explain.OnCollector, "removes its finalizer"},
		{"it does not work", root, says(func(c *explain.Collector) { c.Collects = false }), explain.Unknown, explain.OnCollector, ""},
		{"at the barrier", root, held(), explain.Slow, explain.OnBarrier, "proves"},
		{"held at the barrier", root, held(widgets), explain.Stuck, explain.OnBarrier, "Widget.acme.io: forbidden"},
		{"held, for a reader who may not list that", root, held(widgets).SeenBy(func(ownership.UID) bool { return false }, "withheld"), explain.Stuck, explain.OnBarrier, "Widget.acme.io: withheld"},
		{"another is held", strings.ReplaceAll(root, "root", "other"), held(widgets), explain.Slow, explain.OnCollector, ""},
		{
			"paused", garbage, says(func(c *explain.Collector) {
				c.Paused = map[ownership.Kind]time.Time{{Kind: "ConfigMap"}: since}
			}), explain.Stuck, explain.OnBreaker, "has paused the deletions of ConfigMap",
		},
		{
			"paused, and held by a finalizer", "ConfigMap shop/root deleted=2h finalizers=orphan", says(func(c *explain.Collector) {
				c.Paused = map[ownership.Kind]time.Time{{Kind: "ConfigMap"}: since}
			}), explain.Slow, explain.OnCollector, "",
		},
		{"the namespace controller works", "Namespace root deleted=2h spec=kubernetes", says(func(*explain.Collector) {}), explain.Slow, explain.OnController, ""},
		{"it does not", "Namespace root deleted=2h spec=kubernetes", says(func(c *explain.Collector) { c.Empties = false }), explain.Unknown, explain.OnController, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newCluster(t).lines(test.lines)
			w.collector = test.collector
			x := w.explain(w.inventory.Objects[0].UID)
			leaf := x.Leaves()[0]
			if x.State != test.state || leaf.On != test.on || !strings.Contains(leaf.Says, test.says) {
				t.Errorf("%s on %s:\n%s", x.State, leaf.On, x.Text(now))
			}
			if test.on == explain.OnBreaker && leaf.Next[0].Command != "resume ConfigMap" {
				t.Errorf("next: %+v", leaf.Next)
			}
		})
	}
}

// Instances of a definition that is being deleted, and objects whose deletion a webhook denies.
func TestObjectsThatAreNotDeletedYetHaveAReason(t *testing.T) {
	const definition = "CustomResourceDefinition.apiextensions.k8s.io widgets.shop.acme.io deleted=%s finalizers=customresourcecleanup.apiextensions.k8s.io\n"
	const widget = "Widget.shop.acme.io shop/w\n"
	const hook = "webhook guard ops/guard endpoints=0 DELETE widgets.shop.acme.io\n"
	for _, test := range []struct {
		name, lines string
		state       explain.State
		on          explain.On
	}{
		{"its definition was just deleted", widget + fmt.Sprintf(definition, "10s"), explain.Slow, explain.OnController},
		{"its definition was deleted long ago", widget + fmt.Sprintf(definition, "1h"), explain.Unknown, explain.OnController},
		{"its definition was deleted, which no webhook is asked about", widget + fmt.Sprintf(definition, "10s") + hook, explain.Slow, explain.OnController},
		{"garbage, and a webhook denies", "Widget.shop.acme.io shop/w owner=apps/v1:Deployment:gone\n" + hook, explain.Stuck, explain.OnWebhook},
		{"of another kind", "Gadget.shop.acme.io shop/w\n" + fmt.Sprintf(definition, "1h"), explain.Kept, explain.OnRequest},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newCluster(t).lines(test.lines)
			x := w.explain(w.inventory.Objects[0].UID)
			if leaf := x.Leaves()[0]; x.State != test.state || leaf.On != test.on {
				t.Errorf("%s on %s:\n%s", x.State, leaf.On, x.Text(now))
			}
		})
	}
}
