package preview_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coppice-dev/coppice/internal/collect/namespaces"
	"github.com/coppice-dev/coppice/internal/rules/builtin"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/rules/protection"
	"github.com/coppice-dev/coppice/internal/rules/refusal"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
	"github.com/coppice-dev/coppice/internal/tools/preview"
)

// labelled is a judge: the label "denied" names the users to whom a DELETE of the object is denied, "fixed" those to whom
// an UPDATE is, "asks" has a webhook decide.
type labelled struct{}

func (labelled) Decide(d preview.Review) preview.Judgement {
	labels := d.Object.GetLabels()
	if d.After != nil {
		labels = map[string]string{"denied": labels["fixed"], "asks": labels["asks"]}
	}
	if slices.Contains(strings.Split(labels["denied"], "."), d.User.Username) {
		return preview.Judgement{Refusal: &refusal.Refusal{By: refusal.ByPolicy, Name: "keep", Binding: "all", Message: "no"}}
	}
	if labels["asks"] != "" {
		return preview.Judgement{Deciders: []string{"webhook w"}}
	}
	return preview.Judgement{}
}

// judgedFacts are facts of a cluster with a policy about everything, where these objects have labels.
func judgedFacts(inv *inventory.Inventory, labels map[string]map[string]string) *inventory.Facts {
	facts := inventory.NewFacts()
	everything := admissionregistrationv1.RuleWithOperations{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Delete, admissionregistrationv1.Update},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: []string{"*"}},
	}
	policy := inventory.Policy{}
	policy.Name = "keep"
	policy.Spec.MatchConstraints = &admissionregistrationv1.MatchResources{
		ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: everything}},
	}
	facts.Policies = &inventory.Fact[[]inventory.Policy]{Value: []inventory.Policy{policy}}
	facts.Webhooks = &inventory.Fact[[]inventory.Webhook]{}
	facts.Deleters = &inventory.Fact[inventory.Deleters]{Value: inventory.Deleters{
		Requester: authenticationv1.UserInfo{Username: "me"}, Collector: authenticationv1.UserInfo{Username: "gc"},
		NamespaceController: authenticationv1.UserInfo{Username: "ns"}, PodCollector: authenticationv1.UserInfo{Username: "podgc"},
		JobController: authenticationv1.UserInfo{Username: "jobs"}, ClaimProtector: authenticationv1.UserInfo{Username: "claims"},
	}}
	for _, o := range inv.Objects {
		body := &unstructured.Unstructured{}
		body.SetName(o.Name)
		body.SetLabels(labels[o.Name])
		facts.Bodies[o.UID] = inventory.Fact[*unstructured.Unstructured]{Value: body}
	}
	facts.Close()
	return facts
}

// verdicts returns what a prediction says about admission, a line for each object that it concerns.
func verdicts(p preview.Prediction) []string {
	var lines []string
	for _, o := range p.Outcomes {
		line := o.Object.Name + " " + string(o.Fate)
		if o.Refusal != nil {
			line += " refused to " + string(o.Refusal.To)
			if o.Refusal.IsUpdate {
				line += " to change it"
			}
		}
		if len(o.Deciders) > 0 {
			line += " decided by " + strings.Join(o.Deciders, ", ")
		}
		lines = append(lines, line)
	}
	slices.Sort(lines)
	return lines
}

// Objects that admission refuses to delete stay, and whoever waits for them waits. What decides, and cannot be
// foreseen, is named; the rest of the prediction holds if it permits the deletion.
func TestRefusalsArePredicted(t *testing.T) {
	for name, test := range map[string]struct {
		lines    []string
		labels   map[string]map[string]string
		requests []preview.Request
		want     []string
	}{
		"a request": {
			[]string{"ConfigMap a", "ConfigMap b < a"},
			map[string]map[string]string{"a": {"denied": "me"}},
			requests("Background", "a"),
			[]string{"a Kept refused to User"},
		},
		"the collector": {
			[]string{"ConfigMap a", "ConfigMap b < a", "ConfigMap c < b"},
			map[string]map[string]string{"b": {"denied": "gc"}},
			requests("Background", "a"),
			[]string{"a Deleted", "b Kept refused to Collector"},
		},
		"a blocking dependent": {
			[]string{"ConfigMap a", "ConfigMap b < a!", "ConfigMap c < a!"},
			map[string]map[string]string{"b": {"denied": "gc"}},
			requests("Foreground", "a"),
			[]string{"a Waiting", "b Kept refused to Collector", "c Deleted"},
		},
		"the namespace controller": {
			[]string{"Namespace shop", "ConfigMap a", "ConfigMap b < a"},
			map[string]map[string]string{"a": {"denied": "ns"}, "b": {"denied": "gc"}},
			requests("Background", "shop"),
			[]string{"a Kept refused to NamespaceController", "b Deleted", "shop Waiting"},
		},
		"another actor may": {
			[]string{"Namespace shop", "ConfigMap a", "ConfigMap b < a"},
			map[string]map[string]string{"b": {"denied": "gc"}},
			requests("Background", "a", "shop"),
			[]string{"a Deleted", "b Deleted", "shop Deleted"},
		},
		"somebody else": {
			[]string{"ConfigMap a", "ConfigMap b < a"},
			map[string]map[string]string{"a": {"denied": "gc"}, "b": {"denied": "me"}},
			requests("Background", "a"),
			[]string{"a Deleted", "b Deleted"},
		},
		"a webhook": {
			[]string{"ConfigMap a", "ConfigMap b < a"},
			map[string]map[string]string{"b": {"asks": "w"}},
			requests("Background", "a"),
			[]string{"a Deleted", "b Deleted decided by webhook w"},
		},
		"instances": {
			[]string{"CustomResourceDefinition widgets.example.com", "Widget a"},
			map[string]map[string]string{"a": {"denied": "me.gc.ns."}},
			requests("Background", "widgets.example.com"),
			[]string{"a Deleted", "widgets.example.com Deleted"}, // the server deletes them without admission
		},
		"a dependent that cannot be orphaned": {
			[]string{"ConfigMap a", "ConfigMap b < a", "ConfigMap c < a"},
			map[string]map[string]string{"b": {"fixed": "gc"}},
			requests("Orphan", "a"),
			[]string{"a Waiting", "b Kept refused to Collector to change it", "c Detached"},
		},
		"a dependent that keeps a dangling reference": {
			[]string{"ConfigMap a", "ConfigMap o", "ConfigMap b < a o"},
			map[string]map[string]string{"b": {"fixed": "gc"}},
			requests("Background", "a"),
			[]string{"a Deleted", "b Kept refused to Collector to change it"},
		},
		"an owner that keeps the finalizer": {
			[]string{"ConfigMap a", "ConfigMap b < a!"},
			map[string]map[string]string{"a": {"fixed": "gc"}},
			requests("Foreground", "a"),
			[]string{"a Waiting refused to Collector to change it", "b Deleted"},
		},
		"a cycle that is not broken": {
			[]string{"ConfigMap a < b!", "ConfigMap b < a!"},
			map[string]map[string]string{"a": {"fixed": "gc"}, "b": {"fixed": "gc"}},
			requests("Foreground", "a"),
			[]string{"a Waiting refused to Collector to change it", "b Waiting refused to Collector to change it"},
		},
		"a claim that nothing uses": {
			[]string{"PersistentVolumeClaim a # kubernetes.io/pvc-protection"},
			map[string]map[string]string{"a": {"fixed": "claims"}},
			requests("Background", "a"),
			[]string{"a Waiting refused to ProtectionController to change it"},
		},
		"a pod that a Job counts": {
			[]string{"Job a", "Pod b < a # batch.kubernetes.io/job-tracking"},
			map[string]map[string]string{"b": {"fixed": "jobs"}},
			requests("Background", "a"),
			[]string{"a Deleted", "b Waiting refused to JobController to change it"},
		},
		"a webhook about changes": {
			[]string{"ConfigMap a", "ConfigMap b < a"},
			map[string]map[string]string{"b": {"asks": "w"}},
			requests("Orphan", "a"),
			[]string{"a Deleted", "b Detached decided by webhook w"},
		},
		"a namespace that is never deleted": {
			[]string{"Namespace default"},
			nil, requests("Background", "default"),
			[]string{"default Kept refused to User"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			inv := cluster(t, test.lines...)
			question := preview.Question{Requests: test.requests, Judge: labelled{}}
			predicted := preview.NewPredictor(inv, judgedFacts(inv, test.labels), question).Predict()
			if diff := cmp.Diff(test.want, verdicts(predicted)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Our server looks at the protection of an object before admission.
func TestProtectionComesBeforeAdmission(t *testing.T) {
	inv := cluster(t, "ConfigMap a always")
	facts := judgedFacts(inv, map[string]map[string]string{"a": {"denied": "me"}})
	facts.Protections["a"] = inventory.Fact[inventory.Protection]{Value: inventory.Protection{Protection: protection.New(string(protection.Always), ""), Enforced: true}}
	predicted := preview.NewPredictor(inv, facts, preview.Question{Requests: requests("Background", "a"), Judge: labelled{}}).Predict()
	if o := predicted.Outcomes[0]; o.Refusal != nil || !strings.Contains(o.Refused, "protected by its label") {
		t.Errorf("refused by %v: %s", o.Refusal, o.Refused)
	}
}

// On kube-apiserver, kube-controller-manager deletes the contents of a namespace resource by resource, and each of these
// requests ends at the first object that is refused: the objects behind it stay, unless the collector deletes them.
func TestRefusalEndsUpstreamsSweep(t *testing.T) {
	inv := cluster(t, "Namespace shop", "ConfigMap a", "ConfigMap b", "ConfigMap c", "ConfigMap d < a", "Widget z")
	for order, want := range map[*namespaces.Order][]string{
		{}:                              {"a Deleted", "b Kept refused to NamespaceController", "c Deleted", "d Deleted", "shop Waiting", "z Deleted"},
		new(namespaces.UpstreamOrder()): {"a Deleted", "b Kept refused to NamespaceController", "d Deleted", "shop Waiting", "z Deleted"},
	} {
		question := preview.Question{Requests: requests("Background", "shop"), Judge: labelled{}, Order: *order}
		facts := judgedFacts(inv, map[string]map[string]string{"b": {"denied": "ns"}})
		if diff := cmp.Diff(want, verdicts(preview.NewPredictor(inv, facts, question).Predict())); diff != "" {
			t.Errorf("upstream: %t\n%s", order.IsUpstream(), diff)
		}
	}
}

// recorder is a judge that permits everything, and records the UPDATEs.
type recorder struct{ updates []string }

func (r *recorder) Decide(d preview.Review) preview.Judgement {
	if d.After != nil {
		described := func(o *unstructured.Unstructured) string {
			metadata := o.Object["metadata"].(map[string]any)
			_, hasFinalizers := metadata["finalizers"]
			_, hasOwners := metadata["ownerReferences"]
			var owners []string
			for _, owner := range o.GetOwnerReferences() {
				owners = append(owners, fmt.Sprintf("%s blocking=%t", owner.Name, *owner.BlockOwnerDeletion))
			}
			return fmt.Sprintf("deleted=%t finalizers %t %q owners %t %q", o.GetDeletionTimestamp() != nil, hasFinalizers, o.GetFinalizers(), hasOwners, owners)
		}
		update := d.User.Username + " " + d.Object.GetName() + ": " + described(d.Object) + " -> " + described(d.After)
		if !slices.Contains(r.updates, update) {
			r.updates = append(r.updates, update)
		}
	}
	return preview.Judgement{}
}

// Admission sees each UPDATE of the collector with the metadata before and after it, as the server would have it.
func TestUpdatesAreReviewed(t *testing.T) {
	for name, test := range map[string]struct {
		lines    []string
		requests []preview.Request
		want     []string
	}{
		"orphan": {
			[]string{"ConfigMap a # example.com/hold", "ConfigMap b < a"},
			requests("Orphan", "a"),
			[]string{
				`gc a: deleted=true finalizers true ["example.com/hold" "orphan"] owners false [] -> deleted=true finalizers true ["example.com/hold"] owners false []`,
				`gc b: deleted=false finalizers false [] owners true ["a blocking=false"] -> deleted=false finalizers false [] owners false []`,
			},
		},
		"foreground": {
			[]string{"ConfigMap a", "ConfigMap b < a!"},
			requests("Foreground", "a"),
			[]string{`gc a: deleted=true finalizers true ["foregroundDeletion"] owners false [] -> deleted=true finalizers false [] owners false []`},
		},
		"one of several owners": {
			[]string{"ConfigMap a", "ConfigMap o", "ConfigMap b < a o!"},
			requests("Background", "a"),
			[]string{`gc b: deleted=false finalizers false [] owners true ["a blocking=false" "o blocking=true"] -> deleted=false finalizers false [] owners true ["o blocking=true"]`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			inv := cluster(t, test.lines...)
			facts, judge := judgedFacts(inv, nil), &recorder{}
			for _, o := range inv.Objects {
				body := facts.Bodies[o.UID].Value
				var owners []metav1.OwnerReference
				for _, r := range o.Owners {
					owners = append(owners, metav1.OwnerReference{APIVersion: r.APIVersion, Kind: r.Kind, Name: r.Name, UID: types.UID(r.UID), BlockOwnerDeletion: new(r.Blocking())})
				}
				body.SetOwnerReferences(owners)
				body.SetFinalizers(o.Finalizers)
			}
			preview.NewPredictor(inv, facts, preview.Question{Requests: test.requests, Judge: judge, Now: now()}).Predict()
			slices.Sort(judge.updates)
			if diff := cmp.Diff(test.want, judge.updates); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// The order in which kube-controller-manager deletes the resources of a namespace is not foreseeable.
func TestUpstreamSweepsResourcesInAnyOrder(t *testing.T) {
	inv := cluster(t, "Namespace shop", "ConfigMap a", "Widget b", "ConfigMap kept < a b")
	facts := judgedFacts(inv, map[string]map[string]string{"kept": {"denied": "gc.ns"}})
	question := preview.Question{Requests: requests("Background", "shop"), Judge: labelled{}, Order: namespaces.UpstreamOrder()}
	for _, o := range preview.NewPredictor(inv, facts, question).Predict().Outcomes {
		if o.Race != (o.Object.Name == "kept") {
			t.Errorf("%s %s: race=%t", o.Object.Name, o.Fate, o.Race)
		}
	}
}

// Before kube-controller-manager deletes an object between two foreground deletions, it lets its references block no
// more, in case there is a cycle; our collector breaks only cycles. If the DELETE is refused, the UPDATE stays. If the
// UPDATE is refused, there is no DELETE.
func TestUpstreamUnblocksBeforeARefusedDelete(t *testing.T) {
	inv := cluster(t, "ConfigMap a", "ConfigMap b < a!", "ConfigMap c < b", "ConfigMap d < c! # example.com/hold")
	both := requests("Foreground", "c", "a")
	for name, test := range map[string]struct {
		order    namespaces.Order
		labels   map[string]string
		requests []preview.Request
		want     []string
		blocking bool
	}{
		"ours":                {namespaces.Order{}, map[string]string{"denied": "gc"}, both, []string{"a Waiting", "b Kept refused to Collector", "c Waiting", "d Waiting"}, true},
		"upstream":            {namespaces.UpstreamOrder(), map[string]string{"denied": "gc"}, both, []string{"a Deleted", "b Kept refused to Collector", "c Waiting", "d Waiting"}, false},
		"no UPDATE":           {namespaces.UpstreamOrder(), map[string]string{"fixed": "gc"}, both, []string{"a Waiting", "b Kept refused to Collector to change it", "c Waiting", "d Waiting"}, true},
		"no such dependent":   {namespaces.UpstreamOrder(), map[string]string{"denied": "gc"}, requests("Foreground", "a"), []string{"a Waiting", "b Kept refused to Collector"}, true},
		"in the other order":  {namespaces.UpstreamOrder(), map[string]string{"denied": "gc"}, requests("Foreground", "a", "c"), []string{"a Deleted", "b Kept refused to Collector", "c Waiting", "d Waiting"}, false},
		"an owner that waits": {namespaces.UpstreamOrder(), nil, both, []string{"a Deleted", "b Deleted", "c Waiting", "d Waiting"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			facts := judgedFacts(inv, map[string]map[string]string{"b": test.labels})
			question := preview.Question{Requests: test.requests, Judge: labelled{}, Order: test.order}
			predicted := preview.NewPredictor(inv, facts, question).Predict()
			if diff := cmp.Diff(test.want, verdicts(predicted)); diff != "" {
				t.Error(diff)
			}
			for _, o := range predicted.Outcomes {
				if isBlocking := slices.ContainsFunc(o.Owners, ownership.Reference.Blocking); o.Race || o.Object.Name == "b" && isBlocking != test.blocking {
					t.Errorf("%s: race=%t, %v", o.Object.Name, o.Race, o.Owners)
				}
			}
		})
	}
}

// kube-controller-manager's namespace controller deletes pods first, and waits until none is left; but if the server
// refuses to delete one, it goes on. So do repeated DELETEs of pods that a finalizer holds, and not those of pods in
// their grace period, about which kube-apiserver asks nobody.
func TestUpstreamGoesOnIfPodsAreRefused(t *testing.T) {
	lines := []string{"Namespace shop", "Node n1", "ConfigMap a"}
	for name, test := range map[string]struct {
		pod      string
		denied   string
		upstream []string
		ours     []string
	}{
		"refused": {
			"Pod p @ n1", "ns",
			[]string{"a Deleted", "p Kept refused to NamespaceController", "shop Waiting"},
			[]string{"p Kept refused to NamespaceController", "shop Waiting"},
		},
		"permitted, and held": {
			"Pod p @ n1 # example.com/hold", "nobody",
			[]string{"p Waiting", "shop Waiting"},
			[]string{"p Waiting", "shop Waiting"},
		},
		"held before, and refused": {
			"Pod p @ n1 # example.com/hold deleting", "ns",
			[]string{"a Deleted", "p Waiting refused to NamespaceController", "shop Waiting"},
			[]string{"shop Waiting"},
		},
		"in the grace period": {
			"Pod p @ lost deleting", "ns",
			[]string{"shop Waiting"},
			[]string{"shop Waiting"},
		},
	} {
		for _, order := range []namespaces.Order{namespaces.UpstreamOrder(), {}} {
			inv := cluster(t, append(lines, "Node lost", test.pod)...)
			facts := judgedFacts(inv, map[string]map[string]string{"p": {"denied": test.denied}})
			facts.Nodes["lost"] = inventory.Fact[inventory.Node]{Value: inventory.Node{NodeState: builtin.NodeState{Exists: true}}}
			want := test.ours
			if order.IsUpstream() {
				want = test.upstream
				facts.RepeatedReplaces = &inventory.Fact[bool]{Value: true}
			}
			if inv.Pods["p"].Node == "lost" {
				inv.Object("p").Grace = 30 * time.Second
			}
			question := preview.Question{Requests: requests("Background", "shop"), Judge: labelled{}, Order: order}
			if diff := cmp.Diff(want, verdicts(preview.NewPredictor(inv, facts, question).Predict())); diff != "" {
				t.Errorf("%s, upstream: %t\n%s", name, order.IsUpstream(), diff)
			}
		}
	}
}

// Where no expressions are evaluated, or an object cannot be read, a dead webhook without selectors refuses, and
// everything else that matches is undecided.
func TestRefusalsWithoutExpressions(t *testing.T) {
	inv := cluster(t, "ConfigMap a")
	rules := []admissionregistrationv1.RuleWithOperations{{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.OperationAll},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, Resources: []string{"configmaps"}},
	}}
	service := types.NamespacedName{Namespace: "ops", Name: "hook"}
	some := &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
	dead := inventory.Webhook{Configuration: "ValidatingWebhookConfiguration c", Name: "w", Rules: rules, FailsClosed: true, Service: service}
	selective, alive, open := dead, dead, dead
	selective.ObjectSelector, alive.Endpoints, open.FailsClosed = some, 1, false
	const name = "webhook w of ValidatingWebhookConfiguration c"
	for what, test := range map[string]struct {
		webhook inventory.Webhook
		want    string
	}{
		"dead":                 {dead, "a Kept refused to User decided by ValidatingAdmissionPolicy keep: gone"},
		"dead, for some":       {selective, "a Deleted decided by ValidatingAdmissionPolicy keep: gone, " + name + ": gone"},
		"alive":                {alive, "a Deleted decided by ValidatingAdmissionPolicy keep: gone, " + name},
		"dead, it fails open":  {open, "a Deleted decided by ValidatingAdmissionPolicy keep: gone"},
		"about something else": {inventory.Webhook{FailsClosed: true, Service: service}, "a Deleted decided by ValidatingAdmissionPolicy keep: gone"},
	} {
		t.Run(what, func(t *testing.T) {
			facts := judgedFacts(inv, nil)
			facts.Bodies["a"] = inventory.Fact[*unstructured.Unstructured]{Unread: "gone"}
			facts.Webhooks.Value = []inventory.Webhook{test.webhook}
			predicted := preview.NewPredictor(inv, facts, preview.Question{Requests: requests("Background", "a"), Judge: labelled{}}).Predict()
			if diff := cmp.Diff([]string{test.want}, verdicts(predicted)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Policies and webhooks that could not be read may refuse any request: the report says so once, and they decide about no
// object. A protection that could not be read decides about its object.
func TestUnreadAdmissionIsReportedOnce(t *testing.T) {
	inv := cluster(t, "ConfigMap a", "ConfigMap b < a")
	for name, test := range map[string]struct {
		policies, webhooks, protection string
		want, line                     string
	}{
		"policies":       {policies: "no right", want: "policies could not be read: no right", line: "\nPolicies could not be read: no right. They may refuse a deletion; --ask-server asks the server.\n"},
		"webhooks":       {webhooks: "no right", want: "webhooks could not be read: no right"},
		"both":           {policies: "no right", webhooks: "503", want: "policies and webhooks could not be read: no right, and 503"},
		"for one reason": {policies: "timeout", webhooks: "timeout", want: "policies and webhooks could not be read: timeout"},
		"protection":     {protection: "no right"},
	} {
		t.Run(name, func(t *testing.T) {
			facts := judgedFacts(inv, nil)
			facts.Policies, facts.Webhooks.Unread = &inventory.Fact[[]inventory.Policy]{Unread: test.policies}, test.webhooks
			inv.Object("a").Protected = test.protection != ""
			facts.Protections["a"] = inventory.Fact[inventory.Protection]{Unread: test.protection}
			predicted := preview.NewPredictor(inv, facts, preview.Question{Requests: requests("Background", "a"), Judge: labelled{}}).Predict()
			want, undecided := []string{"a Deleted", "b Deleted"}, 0
			if test.protection != "" {
				want[0], undecided = "a Deleted decided by its protection, which could not be read: no right", 1
			}
			if diff := cmp.Diff(want, verdicts(predicted)); diff != "" {
				t.Error(diff)
			}
			r := predicted.Report(inv)
			if r.Undecided != undecided || r.UnreadAdmission != test.want {
				t.Errorf("%d objects are undecided, want %d; %q, want %q", r.Undecided, undecided, r.UnreadAdmission, test.want)
			}
			if text := r.String(); strings.Count(text, "may refuse") != min(1, len(test.want)) || !strings.Contains(text, test.line) {
				t.Errorf("not once %q in\n%s", test.line, text)
			}
			r.Objects[0].Answer = &preview.AnswerReport{Accepted: true}
			if strings.Contains(r.String(), "--ask-server") {
				t.Errorf("the server was asked already:\n%s", r)
			}
		})
	}
}

// The report counts and names refusals, for programs and for people, and the digest changes with them.
func TestRefusalsAreReported(t *testing.T) {
	inv := cluster(t, "ConfigMap a", "ConfigMap b < a", "ConfigMap c < a")
	predict := func(labels map[string]map[string]string) preview.Report {
		question := preview.Question{Requests: requests("Background", "a"), Judge: labelled{}}
		return preview.NewPredictor(inv, judgedFacts(inv, labels), question).Predict().Report(inv)
	}
	free, r := predict(nil), predict(map[string]map[string]string{"b": {"denied": "gc"}, "c": {"asks": "w"}})
	if r.Refused != 1 || r.Undecided != 1 || free.Refused+free.Undecided != 0 {
		t.Errorf("%d refused, %d undecided; without a policy %d and %d", r.Refused, r.Undecided, free.Refused, free.Undecided)
	}
	if r.Digest == free.Digest {
		t.Error("the digest does not depend on the refusals")
	}
	for _, want := range []string{
		"ConfigMap shop/b; refused to the garbage collector: ValidatingAdmissionPolicy 'keep' with binding 'all' denied request: no",
		"ConfigMap shop/c, by the garbage collector; decided by webhook w",
	} {
		if !strings.Contains(r.String(), want) {
			t.Errorf("no %q in\n%s", want, r)
		}
	}
}
