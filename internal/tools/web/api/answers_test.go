package api_test

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/coppice-dev/coppice/internal/rules/builtin"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/rules/protection"
	"github.com/coppice-dev/coppice/internal/rules/refusal"
	"github.com/coppice-dev/coppice/internal/tools/answer"
	"github.com/coppice-dev/coppice/internal/tools/explain"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
	"github.com/coppice-dev/coppice/internal/tools/preview"
	"github.com/coppice-dev/coppice/internal/tools/web/api"
)

// Neighborhood implements api.Source: the neighborhood is the whole cluster.
func (cluster) Limits() protection.Limits {
	return protection.Limits{MoreThan: 1, Kinds: []schema.GroupResource{{Resource: "namespaces"}}}
}

func (cluster) Defaults(context.Context, *rest.Config) (protection.Defaults, error) {
	return protection.Defaults{{Resource: "secrets"}: protection.Unused}, nil
}

func (w cluster) Neighborhood(context.Context, *rest.Config, []ownership.UID) (*answer.Cluster, error) {
	inv := &inventory.Inventory{Resources: served()}
	w.View(func(g *ownership.Graph) {
		for o := range g.All() {
			r := slices.IndexFunc(inv.Resources, func(r *inventory.Resource) bool { return r.OwnerKind() == o.Kind })
			if o.Phase == ownership.Foreground {
				o.Finalizers = []string{ownership.FinalizerForeground}
			}
			inv.Objects = append(inv.Objects, &inventory.Object{Object: o, Resource: inv.Resources[r]})
		}
	})
	inv.Index()
	return &answer.Cluster{Inventory: inv, Facts: calm{}, Now: time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)}, nil
}

// calm has the facts of a cluster in which nothing delays a deletion.
type calm struct{}

// Read implements answer.FactReader.
func (calm) Read(_ context.Context, needs inventory.Needs, facts *inventory.Facts) {
	for uid := range needs.Workloads {
		facts.Workloads[uid] = inventory.Fact[inventory.Workload]{}
	}
	for uid := range needs.Leases {
		facts.Leases[uid] = inventory.Fact[inventory.Lease]{}
	}
	for uid := range needs.Protections {
		facts.Protections[uid] = inventory.Fact[inventory.Protection]{}
	}
	for name := range needs.Nodes {
		facts.Nodes[name] = inventory.Fact[inventory.Node]{Value: inventory.Node{NodeState: builtin.NodeState{Exists: true, Ready: true}}}
	}
	for name := range needs.Volumes {
		facts.Volumes[name] = inventory.Fact[inventory.Volume]{Value: inventory.Volume{Volume: &corev1.PersistentVolume{}}}
	}
	for namespace := range needs.Budgets {
		facts.Budgets[namespace] = inventory.Fact[[]policyv1.PodDisruptionBudget]{}
	}
	facts.Roles = &inventory.Fact[*inventory.Roles]{Value: &inventory.Roles{}}
	facts.Webhooks, facts.RepeatedReplaces = &inventory.Fact[[]inventory.Webhook]{}, &inventory.Fact[bool]{}
}

// A preview shows the effects on objects that the caller may list, and that others are left out.
func TestPreviewHasTheObjectsThatTheCallerMayList(t *testing.T) {
	for _, c := range []struct {
		name, token, query, want, unread string
	}{
		{
			"of a Deployment", everything, "object=deployments.apps/shop/web&propagationPolicy=Background",
			"Deleted ConfigMap/copy, Deleted Deployment.apps/web, Deleted ReplicaSet.apps/web-1, Deleted Secret/password", "",
		},
		{
			"that orphans, of what holds a Deployment", everything, "uid=password&propagationPolicy=Orphan",
			"Deleted Deployment.apps/web, Deleted ReplicaSet.apps/web-1, Deleted Secret/password, Detached ConfigMap/copy", "",
		},
		{
			"without secrets", noSecrets, "object=deployments.apps/shop/web&propagationPolicy=Background",
			"Deleted Deployment.apps/web, Deleted ReplicaSet.apps/web-1", "secrets",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			code, body := ask(t, cluster{}, c.token, api.Preview+"?"+c.query)
			var report preview.Report
			if err := json.Unmarshal([]byte(body), &report); code != http.StatusOK || err != nil {
				t.Fatalf("%d %s", code, body)
			}
			var got []string
			for _, o := range report.Objects {
				got = append(got, string(o.Fate)+" "+o.Kind+"/"+o.Name)
			}
			slices.Sort(got)
			if all := strings.Join(got, ", "); all != c.want {
				t.Errorf("%s\nwant %s", all, c.want)
			}
			if unread := strings.Join(report.Unread, "; "); !strings.HasPrefix(unread, c.unread) || c.unread == "" && unread != "" {
				t.Errorf("unread %q, want %q", unread, c.unread)
			}
			if c.unread != "" && strings.Contains(body, "password") {
				t.Errorf("names a secret: %s", body)
			}
			if !strings.HasSuffix(report.Unconfirmed, "objects would be deleted, and more than 1 need a confirmation") {
				t.Errorf("about the confirmation, it says %q", report.Unconfirmed)
			}
		})
	}
}

// An explanation names only objects that the caller may list.
func TestExplanationNamesNoHiddenObjects(t *testing.T) {
	for token, names := range map[string][]string{everything: {"web-1", "password"}, noSecrets: {"web-1"}} {
		code, body := ask(t, cluster{}, token, api.Explain+"?uid=web")
		var answer api.Explanations
		if err := json.Unmarshal([]byte(body), &answer); code != http.StatusOK || err != nil || len(answer.Items) != 1 {
			t.Fatalf("%d %s", code, body)
		}
		for _, name := range []string{"web-1", "password"} {
			if strings.Contains(body, name) != slices.Contains(names, name) {
				t.Errorf("%s: %s, want %v to be named", token, body, names)
			}
		}
		if unseen := answer.Items[0].Unseen; (len(unseen) > 0) != (token == noSecrets) {
			t.Errorf("%s: unseen %q", token, unseen)
		}
	}
}

// refused is a cluster whose server refuses the caller an object that the collector knows.
type refused struct{ cluster }

func (w refused) Neighborhood(ctx context.Context, config *rest.Config, uids []ownership.UID) (*answer.Cluster, error) {
	around, err := w.cluster.Neighborhood(ctx, config, uids)
	around.Inventory.Unread = append(around.Inventory.Unread, inventory.Unread{
		Resource: schema.GroupVersionResource{Version: "v1", Resource: "secrets"}, Namespace: "shop", Forbidden: true, Why: `secrets "password" is forbidden`,
	})
	return around, err
}

// A refusal of the server names the object, so its text is not passed on to the caller.
func TestRefusalOfTheServerIsNotPassedOn(t *testing.T) {
	for _, path := range []string{api.Preview + "?object=deploy/shop/web", api.Explain + "?object=deploy/shop/web", api.Deletions} {
		if code, body := ask(t, refused{}, noSecrets, path); code != http.StatusOK || strings.Contains(body, "password") {
			t.Errorf("%s: %d %s", path, code, body)
		}
		if _, body := ask(t, refused{}, noSecrets, path); !strings.Contains(body, "left out") {
			t.Errorf("%s does not say that objects may be left out: %s", path, body)
		}
	}
}

// damaged is a cluster whose server cannot decode an object, so the collector has not read its resource, and has the
// server's words.
type damaged struct{ cluster }

const undecodable = `StorageError: corrupt object, Key: "/registry/secrets/other/undecodable"`

func (w damaged) Neighborhood(ctx context.Context, config *rest.Config, uids []ownership.UID) (*answer.Cluster, error) {
	around, err := w.cluster.Neighborhood(ctx, config, uids)
	secrets := schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	around.Inventory.Unread = append(around.Inventory.Unread,
		inventory.Unread{Resource: secrets, Why: undecodable}, inventory.Unread{Resource: secrets, Namespace: "other", Why: undecodable})
	around.Collector = explain.NewCollector("the collector")
	around.Collector.Held["web"] = explain.Held{Unread: []explain.HeldBy{{What: "Secret", Why: undecodable}}}
	return around, err
}

// The words with which the server fails to list a resource name objects, so callers who may not list these do not read
// them.
func TestErrorsOfListsNameNothing(t *testing.T) {
	for _, path := range []string{api.Preview + "?object=deploy/shop/web", api.Explain + "?object=deploy/shop/web", api.Deletions} {
		if _, body := ask(t, damaged{}, everything, path); !strings.Contains(body, "undecodable") {
			t.Errorf("%s does not say to an administrator what cannot be read: %s", path, body)
		}
		if code, body := ask(t, damaged{}, noSecrets, path); code != http.StatusOK || strings.Contains(body, "undecodable") || !strings.Contains(body, api.Withheld) {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
}

// A caller sees all deletions of objects that they may list, grouped by reason, and that others are left out.
func TestDeletionsAreGroupedAndNameNoHiddenObjects(t *testing.T) {
	for token, want := range map[string]struct{ waits, unread bool }{
		everything: {true, false}, noSecrets: {true, true}, "secrets,configmaps": {false, true}, "nodes": {false, true},
	} {
		code, body := ask(t, cluster{}, token, api.Deletions)
		var answer api.DeletionList
		if err := json.Unmarshal([]byte(body), &answer); code != http.StatusOK || err != nil {
			t.Fatalf("%s: %d %s", token, code, body)
		}
		waits := slices.ContainsFunc(answer.Items, func(g explain.Group) bool {
			return slices.ContainsFunc(g.Objects, func(o explain.Ref) bool { return o.Name == "web" })
		})
		if waits != want.waits || (len(answer.Unread) > 0) != want.unread || !want.waits && len(answer.Items) > 0 {
			t.Errorf("%s: %s", token, body)
		}
		if token != everything && strings.Contains(body, "password") {
			t.Errorf("%s: %s", token, body)
		}
	}
	if code, _ := ask(t, cluster{}, "", api.Deletions); code != http.StatusUnauthorized {
		t.Errorf("without a token: %d", code)
	}
}

// A request is refused before anything is read for it.
func TestRequestIsRefusedBeforeAnythingIsRead(t *testing.T) {
	for _, c := range []struct {
		token, path string
		code        int
	}{
		{"", api.Preview + "?uid=web", http.StatusUnauthorized},
		{"", api.Explain + "?uid=web", http.StatusUnauthorized},
		{everything, api.Preview, http.StatusBadRequest},
		{everything, api.Preview + "?uid=web&propagationPolicy=Sideways", http.StatusBadRequest},
		{noSecrets, api.Preview + "?object=secrets/shop/password", http.StatusForbidden},
		{noSecrets, api.Preview + "?uid=password", http.StatusNotFound},
		{noSecrets, api.Explain + "?uid=password", http.StatusNotFound},
		{everything, api.Explain + "?uid=nobody", http.StatusNotFound},
	} {
		if code, body := ask(t, cluster{}, c.token, c.path); code != c.code {
			t.Errorf("%q asks for %s: %d %s, want %d", c.token, c.path, code, body, c.code)
		}
	}
}

// keeping is a cluster whose server refuses to delete the dependents of a Deployment.
type keeping struct{ cluster }

const wordsOfSet, wordsOfSecret = "words of the set", "words of the secret"

func (w keeping) Neighborhood(ctx context.Context, config *rest.Config, uids []ownership.UID) (*answer.Cluster, error) {
	around, err := w.cluster.Neighborhood(ctx, config, uids)
	around.Collector = explain.NewCollector("this collector")
	around.Collector.Collects = true
	for uid, words := range map[ownership.UID]string{"web-1": wordsOfSet, "password": wordsOfSecret} {
		around.Collector.Refused[uid] = explain.Refused{Refusal: refusal.Refusal{By: refusal.ByWebhook, Name: "keep", Message: words}, Since: around.Now}
	}
	return around, err
}

// Callers get the words of a refusal with the object that is refused.
func TestWordsOfRefusalsAreForCallersWhoMayListTheObject(t *testing.T) {
	source := keeping{telling()}
	for _, o := range []ownership.Object{
		{UID: "web-1", Kind: ownership.Kind{Group: "apps", Kind: "ReplicaSet"}, Namespace: "shop", Name: "web-1"},
		{UID: "token", Kind: ownership.Kind{Kind: "Secret"}, Namespace: "shop", Name: "token"},
	} {
		o.Owners = []ownership.Reference{{APIVersion: "apps/v1", Kind: "Deployment", Name: "web", UID: "web"}}
		words := map[ownership.UID]string{"web-1": wordsOfSet, "token": wordsOfSecret}[o.UID]
		source.book.Refused(&o, shopUID, refusal.Refusal{By: refusal.ByWebhook, Name: o.Name, Message: words}, time.Now())
	}
	for _, path := range []string{api.Explain + "?uid=web", api.Deletions, api.Stories + "/web", api.Stories + "/web?format=text"} {
		for token, secret := range map[string]bool{everything: true, noSecrets: false} {
			code, body := ask(t, source, token, path)
			if code != http.StatusOK || !strings.Contains(body, wordsOfSet) || strings.Contains(body, wordsOfSecret) != secret {
				t.Errorf("%s by %s: %d %s", path, token, code, body)
			}
		}
	}
}
