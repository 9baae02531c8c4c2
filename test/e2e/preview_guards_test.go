package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/coppice-dev/coppice/internal/collect/namespaces"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/rules/refusal"
	"github.com/coppice-dev/coppice/internal/testing/eventually"
	"github.com/coppice-dev/coppice/internal/tools/answer"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
	"github.com/coppice-dev/coppice/internal/tools/preview"
	"github.com/coppice-dev/coppice/internal/tools/reader"
)

// The guards of testdata/guards.yaml are policies and webhooks that may refuse the deletion of an object. guardLabel has
// the guard of an object; guardedLabel is on the namespaces in which they work, and sizeLabel chooses the parameters of a
// policy there.
const (
	guardLabel   = "example.com/guard"
	guardedLabel = "example.com/guarded"
	sizeLabel    = "example.com/size"
)

// foreseeable are the guards whose answers a preview foresees, and permitting the guards that permit all deletions.
var (
	foreseeable = []string{
		"all", "collector", "emptier", "user", "foreground", "small", "large", "fails", "condition", "dead", "dead-condition", "mutating", "both",
		"updates", "opens", "warns", "dead-open", "none",
	}
	permitting = []string{"updates", "opens", "warns", "dead-open", "none", "url-permits", "url-dead-open"}
)

// deciders are the guards whose answers a preview cannot foresee, with what they answer: nil for those that permit.
var deciders = map[string]*refusal.Refusal{
	"url-denies":     {By: refusal.ByWebhook, Name: "url-denies.example.com", Message: "no"},
	"service-denies": {By: refusal.ByWebhook, Name: "service-denies.example.com", Message: "no"},
	"url-dead":       {By: refusal.ByUnreachableWebhook, Name: "url-dead.example.com"},
	"url-dead-open":  nil,
	"url-permits":    nil,
}

// deciderNames are the names of the deciders, sorted.
func deciderNames() []string {
	var names []string
	for name := range deciders {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// drawGuards gives guards to some objects of a case. Few cases have deciders.
func (w *previewCase) drawGuards(r *rand.Rand) {
	chance := func(percent int) bool { return r.IntN(100) < percent }
	w.large = chance(50)
	if chance(20) {
		return
	}
	guards := foreseeable
	if chance(25) {
		guards = slices.Concat(foreseeable, deciderNames())
	}
	for id := range w.objects {
		if chance(45) {
			w.objects[id].guard = guards[r.IntN(len(guards))]
		}
	}
	if chance(3) {
		w.guard = guards[r.IntN(len(guards))]
	}
}

// guard makes the guards, and waits until the server has them. They stay, for the guards of another test: a server that
// has once lost its last policy with parameters of a kind finds no parameters of this kind any more.
func (c *previewCluster) guard(t *testing.T) {
	t.Helper()
	const name = "guards"
	c.hook = startHook(t, name+".default.svc")
	text, err := os.ReadFile(filepath.Join("testdata", "guards.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	const inHere = "namespaceSelector: {matchLabels: {" + guardedLabel + ": " + name + "}}"
	const rules = `[{apiGroups: ["*"], apiVersions: [v1, v2], operations: [DELETE], resources: [configmaps, secrets, roles, widgets, pods, namespaces]}]`
	const hooks = ", rules: " + rules + ", sideEffects: None, admissionReviewVersions: [v1], "
	_, port, _ := strings.Cut(c.hook.Listener.Addr().String(), ":")
	manifest := strings.NewReplacer("NAME", name, "URL", c.hook.URL, "PORT", port, "AUTHORITY", c.hook.authority,
		"DELETIONS", inHere+", resourceRules: "+rules, "UPDATES", inHere+", resourceRules: "+strings.Replace(rules, "DELETE", "UPDATE", 1),
		"HOOKS", inHere+hooks+"timeoutSeconds: 2", "SLOW", inHere+hooks+"timeoutSeconds: 30",
	).Replace(string(text))
	k := kubectl{"coppice kubectl", []string{binary, "kubectl", "--kubeconfig", c.kubeconfig}, &plane{kubeconfig: c.kubeconfig}}
	k.apply(t, "default", manifest)
	c.guards = name
	for _, large := range []bool{false, true} {
		c.awaitGuards(t, large)
	}
}

// awaitGuards waits until each guard refuses what it is to refuse, and nothing else is refused.
func (c *previewCluster) awaitGuards(t *testing.T, large bool) {
	t.Helper()
	probes := previewCase{large: large}
	for _, name := range slices.Concat(foreseeable, deciderNames()) {
		probes.objects = append(probes.objects, previewObject{id: len(probes.objects), kind: "ConfigMap", guard: name})
	}
	all := c.read(t, c.make(t, probes))
	for _, o := range all.Objects {
		name := o.Labels.Get(guardLabel)
		if name == "" || name == "emptier" { // our server knows that user in terminating namespaces only
			continue
		}
		permits := name == "small" && large || name == "large" && !large || slices.Contains(permitting, name)
		eventually.Agrees(t, func() string {
			var refusals []refusal.Refusal
			for _, by := range []preview.Actor{preview.ByUser, preview.ByCollector} {
				refusals = append(refusals, c.refusalsTo(t, by, o)...)
			}
			isWrong := func(r refusal.Refusal) bool { return strings.HasPrefix(r.Message, "failed to configure") }
			if (len(refusals) == 0) == permits && !slices.ContainsFunc(refusals, isWrong) {
				return ""
			}
			return fmt.Sprintf("guard %s refuses %v", name, refusals)
		})
	}
	c.release(t, all)
}

// knowing is a judge that knows what the deciders answer.
type knowing struct{ preview.Judge }

// Decide implements preview.Judge.
func (k knowing) Decide(d preview.Review) preview.Judgement {
	judgement := k.Judge.Decide(d)
	judgement.Deciders = slices.DeleteFunc(judgement.Deciders, func(by string) bool {
		denies, isDecider := deciderNamed(by)
		if judgement.Refusal == nil {
			judgement.Refusal = denies
		}
		return isDecider
	})
	return judgement
}

// deciderNamed returns the answer of a decider, as a preview names it: "webhook NAME of CONFIGURATION".
func deciderNamed(text string) (denies *refusal.Refusal, isDecider bool) {
	name, _, _ := strings.Cut(strings.TrimPrefix(text, "webhook "), ".example.com of ")
	denies, isDecider = deciders[name]
	return denies, isDecider
}

// undecided returns who decides about the objects of a prediction, sorted.
func undecided(p preview.Prediction) []string {
	var names []string
	for _, o := range p.Outcomes {
		names = append(names, o.Deciders...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// refused describes where the server does not refuse what was predicted, or somebody else does: the requests of the user,
// with their answers, and the deletions of objects that stay, which are tried as a dry run.
func (c *previewCluster) refused(t *testing.T, prediction preview.Prediction, answers map[ownership.UID][]error) string {
	t.Helper()
	var problems []string
	for _, o := range prediction.Outcomes {
		if o.Race {
			continue
		}
		if problem := answered(&o, answers[o.Object.UID]); problem != "" {
			problems = append(problems, problem)
		}
		if o.Refusal == nil || o.Refusal.IsUpdate || o.Refusal.IsList || o.Refusal.To == preview.ByUser || o.Fate == preview.Deleted || o.Fate == preview.Waiting {
			continue
		}
		all := c.refusalsTo(t, o.Refusal.To, o.Object)
		if !slices.ContainsFunc(all, func(r refusal.Refusal) bool { return isSame(r, o.Refusal.Refusal) }) {
			problems = append(problems, fmt.Sprintf("%s %s: the server refuses its deletion to the %s with %v; prediction was %v", o.Object.Kind, o.Object.Name, o.Refusal.To, all, o.Refusal.Refusal))
		}
	}
	return strings.Join(problems, "\n")
}

// answered compares the answers to the requests to delete an object with the prediction, if they depend on guards only,
// and not on how far the deletion was when they came.
func answered(o *preview.Outcome, answers []error) string {
	var got []refusal.Refusal
	for _, err := range answers {
		switch r, isRefused := refusal.Of(err); {
		case isRefused && r.By != refusal.ByServer:
			got = append(got, r)
		case err != nil:
			return ""
		}
	}
	want, isNamed := refusal.In(o.Refused)
	if len(answers) == 0 || isNamed && slices.ContainsFunc(got, func(r refusal.Refusal) bool { return isSame(r, want) }) || !isNamed && len(got) == 0 {
		return ""
	}
	return fmt.Sprintf("%s %s: the requests are refused with %v; prediction was %q", o.Object.Kind, o.Object.Name, got, o.Refused)
}

// isSame reports whether two refusals have the same refuser, with the same words unless the server has its own.
func isSame(a, b refusal.Refusal) bool {
	if a.By == refusal.ByUnreachableWebhook || a.By == refusal.ByConversion {
		a.Message, b.Message = "", ""
	}
	return a == b
}

// foresee predicts the effect of requests as a user who asks does, with what a judge says about admission.
func (c *previewCluster) foresee(t *testing.T, before *inventory.Inventory, requests []preview.Request, judge preview.Judge) preview.Prediction {
	t.Helper()
	facts, err := reader.NewFacts(c.config)
	if err != nil {
		t.Fatal(err)
	}
	cluster := answer.Cluster{Inventory: before, Facts: facts, Judge: judge, Now: before.Read}
	if c.foreign {
		cluster.Order = namespaces.UpstreamOrder()
	}
	return cluster.Preview(t.Context(), requests, false)
}

// refusalsTo returns how the server refuses to delete an object, with any propagation policy, if an actor asks for it.
// These are dry runs.
func (c *previewCluster) refusalsTo(t *testing.T, by preview.Actor, o *inventory.Object) []refusal.Refusal {
	t.Helper()
	config := rest.CopyConfig(c.config)
	config.Impersonate.UserName = c.userName(by)
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	now, err := c.in(o.Resource, o.Namespace).Get(t.Context(), o.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if r, isRefused := refusal.Of(err); isRefused {
		return []refusal.Refusal{r} // it cannot be converted
	}
	if err != nil {
		t.Fatal(err)
	}
	objects := client.Resource(o.Resource.GroupVersionResource).Namespace(o.Namespace)
	var all []refusal.Refusal
	for _, policy := range []metav1.DeletionPropagation{metav1.DeletePropagationBackground, metav1.DeletePropagationForeground} {
		err := objects.Delete(t.Context(), o.Name, metav1.DeleteOptions{
			DryRun: []string{metav1.DryRunAll}, PropagationPolicy: &policy,
			Preconditions: &metav1.Preconditions{UID: new(now.GetUID()), ResourceVersion: new(now.GetResourceVersion())},
		})
		if r, isRefused := refusal.Of(err); isRefused {
			all = append(all, r)
		}
	}
	return all
}

// userName returns the name of the user that deletes as an actor; it is empty for the user who runs the test.
func (c *previewCluster) userName(by preview.Actor) string {
	switch {
	case by == preview.ByCollector && c.foreign:
		return "system:serviceaccount:kube-system:generic-garbage-collector"
	case by == preview.ByCollector:
		return "system:coppice:collector"
	case by == preview.ByNamespaceController && c.foreign:
		return "system:serviceaccount:kube-system:namespace-controller"
	case by == preview.ByNamespaceController:
		return "system:coppice:namespace-controller"
	case by == preview.ByPodCollector && c.foreign:
		return "system:serviceaccount:kube-system:pod-garbage-collector"
	case by == preview.ByPodCollector:
		return "system:coppice:workload-controllers"
	}
	return ""
}
