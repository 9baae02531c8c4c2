package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/rules/refusal"
	"github.com/coppice-dev/coppice/internal/testing/eventually"
	question "github.com/coppice-dev/coppice/internal/tools/ask"
	"github.com/coppice-dev/coppice/internal/tools/explain"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
	"github.com/coppice-dev/coppice/internal/tools/preview"
)

// mostChains is the number of chains in which objects are explained, of each sort. A sixth of the cases of previews are
// enough for a sample.
const mostChains = 60

// chain is a deletion that waits for its last object: objects that own each other, and others that depend on some of them.
type chain struct {
	previewCase
	// policy is that of the DELETE of the first object. If it is empty, the namespace is deleted.
	policy metav1.DeletionPropagation
}

// drawChain draws a chain.
func drawChain(r *rand.Rand) chain {
	kinds := []string{"ConfigMap", "Secret", "Widget", "Role"}
	policies := []metav1.DeletionPropagation{metav1.DeletePropagationForeground, metav1.DeletePropagationBackground, ""}
	w := chain{policy: policies[r.IntN(len(policies))]}
	w.large = r.IntN(2) == 0
	add := func(owner int, blocks bool) {
		o := previewObject{id: len(w.objects), kind: kinds[r.IntN(len(kinds))]}
		if owner >= 0 {
			o.owners = []previewEdge{{owner: owner, blocks: blocks}}
		}
		w.objects = append(w.objects, o)
	}
	length := 2 + r.IntN(3)
	for id := range length - 1 {
		add(id-1, true)
	}
	for range r.IntN(4) {
		add(r.IntN(length-1), r.IntN(2) == 0)
	}
	add(length-2, true)
	return w
}

// last is the object that the deletion waits for.
func (w *chain) last() *previewObject { return &w.objects[len(w.objects)-1] }

// deleter is the actor that deletes the last object.
func (w *chain) deleter() preview.Actor {
	if w.policy == "" {
		return preview.ByNamespaceController
	}
	return preview.ByCollector
}

// begin makes the objects of a chain and deletes the first one, or the namespace. It returns the last one, and the one
// whose deletion is to be explained: the last one itself if no other waits for it.
func (c *previewCluster) begin(t *testing.T, w chain, prepare func(m madeCase, last *inventory.Object)) (last, subject *inventory.Object) {
	t.Helper()
	m := c.make(t, w.previewCase)
	all := c.read(t, m)
	last = all.Object(ownership.UID(m.uids[w.last().id]))
	prepare(m, last)
	first := all.Object(ownership.UID(m.uids[0]))
	switch w.policy {
	case "":
		first = all.Object(ownership.UID(m.uids[theNamespace]))
		subject = first
	case metav1.DeletePropagationForeground:
		subject = first
	default:
		subject = last
	}
	if err := c.delete(t, first, w.policy); err != nil {
		t.Fatalf("delete %s %s: %v", first.Kind, first.Name, err)
	}
	return last, subject
}

// explain explains an object at a time: with the answer of the collector, if there is one that answers for the present,
// and from the cluster.
func (c *previewCluster) explain(t *testing.T, o *inventory.Object, at time.Time, fromCluster bool) explain.Explanation {
	t.Helper()
	namespace := o.Namespace
	if namespace == "" {
		namespace = o.Name
	}
	sources := question.Sources{Config: c.config, Namespace: namespace, Now: func() time.Time { return at }}
	answer, err := sources.Explain(t.Context(), question.Existence{
		Objects: question.Objects{Args: []string{o.Resource.GroupResource().String() + "/" + o.Name}}, Watch: fromCluster,
	})
	if err != nil || len(answer.Objects) != 1 {
		t.Fatalf("explain %s %s: %v, %+v", o.Kind, o.Name, err, answer)
	}
	return answer.Objects[0]
}

// TestExplanationNamesTheRefuser makes random deletions that wait for an object which a policy or a webhook keeps: each
// explanation says that the deletion is stuck, and names the refuser.
func TestExplanationNamesTheRefuser(t *testing.T) {
	c := ownPreviewCluster(t, "refused", byHand)
	chains := min(mostChains, (*previewCases+5)/6)
	c.prepare(t, chains+2)
	c.guard(t)
	for n := range chains {
		seed := *previewSeed + uint64(n)
		r := rand.New(rand.NewPCG(seed, seed))
		w := drawChain(r)
		guards := c.refusing(&w)
		w.last().guard = guards[r.IntN(len(guards))]
		if problem := c.explainsRefusal(t, w); problem != "" {
			t.Errorf("-preview.seed=%d: %s\nin this chain, with policy %q:\n%s", seed, problem, w.policy, w)
		}
	}
}

// refusing returns the guards that refuse the deletion of the last object of a chain.
func (c *previewCluster) refusing(w *chain) []string {
	guards := []string{"all", "fails", "dead", "mutating", "both", "url-denies", "service-denies", "url-dead", "small"}
	if w.large {
		guards[len(guards)-1] = "large"
	}
	if w.deleter() == preview.ByNamespaceController {
		return guards // the collector would delete what only the namespace controller may not
	}
	return append(guards, "collector", "condition", "dead-condition")
}

// explainsRefusal makes a chain, and describes what is wrong with the explanation. A refusal that may end by itself is
// stuck only after a while, so the explanation is that of two minutes later.
func (c *previewCluster) explainsRefusal(t *testing.T, w chain) (problem string) {
	t.Helper()
	last, subject := c.begin(t, w, func(madeCase, *inventory.Object) {})
	defer func() { c.free(t, last) }()
	c.settle(t)
	refusals := c.refusalsTo(t, w.deleter(), last)
	if len(refusals) == 0 {
		return fmt.Sprintf("the server would delete %s %s", last.Kind, last.Name)
	}
	x := c.explain(t, subject, time.Now().Add(2*time.Minute), true)
	if x.State == explain.Stuck && slices.ContainsFunc(x.Leaves(), func(w *explain.Wait) bool { return names(w, refusals) }) {
		return ""
	}
	return fmt.Sprintf("the explanation names none of %v:\n%s", refusals, x.Text(time.Now()))
}

// names reports whether a wait is stuck and names a refuser.
func names(w *explain.Wait, refusals []refusal.Refusal) bool {
	return w.State == explain.Stuck && slices.ContainsFunc(refusals, func(r refusal.Refusal) bool { return strings.Contains(w.Says, r.Name) })
}

// free lets an object go that a guard keeps.
func (c *previewCluster) free(t *testing.T, o *inventory.Object) {
	t.Helper()
	free := fmt.Sprintf(`{"metadata":{"finalizers":null,"labels":{%q:null}}}`, guardLabel)
	_, err := c.in(o.Resource, o.Namespace).Patch(t.Context(), o.Name, types.MergePatchType, []byte(free), metav1.PatchOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatalf("free %s %s: %v", o.Kind, o.Name, err)
	}
}

// TestSlowDeletionIsNotCalledStuck makes random deletions that wait for an object which takes its time: a finalizer whose
// controller works, a grace period, a webhook that does not answer yet. No explanation calls any of them stuck, and each
// ends once the object is done.
func TestSlowDeletionIsNotCalledStuck(t *testing.T) {
	c := ownPreviewCluster(t, "slow", byHand)
	chains := min(mostChains, (*previewCases+5)/6)
	c.prepare(t, chains+2)
	c.guard(t)
	c.makeOperators(t)
	for n := range chains {
		seed := *previewSeed + uint64(n)
		r := rand.New(rand.NewPCG(seed, seed))
		w := drawChain(r)
		sort := slownesses[r.IntN(len(slownesses))]
		if problem := c.explainsSlowness(t, w, sort); problem != "" {
			t.Errorf("-preview.seed=%d: %s\nin this chain with %s:\n%s", seed, problem, sort, w)
		}
	}
}

// slowness is why an object takes its time.
type slowness string

const (
	leased   slowness = "a controller that renews its Lease"
	deployed slowness = "a controller whose Deployment is ready"
	grace    slowness = "a pod in its grace period"
	late     slowness = "a webhook that answers late"
)

var slownesses = []slowness{leased, deployed, grace, late}

// makeOperators makes what shows that the controllers of slow finalizers work, and the node of slow pods.
func (c *previewCluster) makeOperators(t *testing.T) {
	t.Helper()
	const namespace = metav1.NamespaceDefault
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "leased-operator"}, Spec: coordinationv1.LeaseSpec{
		HolderIdentity: new("leased-operator-0"), LeaseDurationSeconds: new(int32(3600)), RenewTime: &metav1.MicroTime{Time: time.Now()},
	}}
	if _, err := c.kube.CoordinationV1().Leases(namespace).Create(t.Context(), lease, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	labels := map[string]string{"app": "deployed-operator"}
	c.grant(t, "deployed-operator")
	deployment, err := c.kube.AppsV1().Deployments(namespace).Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "deployed-operator"},
		Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
				ServiceAccountName: "deployed-operator", Containers: []corev1.Container{{Name: "operator", Image: "operator"}},
			},
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	deployment.Status = appsv1.DeploymentStatus{Replicas: 1, ReadyReplicas: 1, AvailableReplicas: 1, UpdatedReplicas: 1, ObservedGeneration: 1}
	if _, err := c.kube.AppsV1().Deployments(namespace).UpdateStatus(t.Context(), deployment, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	node, err := c.kube.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "slow-node"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	if _, err := c.kube.CoreV1().Nodes().UpdateStatus(t.Context(), node, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, none := context.WithoutCancel(t.Context()), metav1.DeleteOptions{}
		_ = c.kube.CoordinationV1().Leases(namespace).Delete(ctx, lease.Name, none)
		_ = c.kube.AppsV1().Deployments(namespace).Delete(ctx, deployment.Name, none)
		_ = c.kube.CoreV1().Nodes().Delete(ctx, node.Name, none)
	})
}

// grant lets a service account of the namespace "default" change everything.
func (c *previewCluster) grant(t *testing.T, name string) {
	t.Helper()
	rbac, meta := c.kube.RbacV1(), metav1.ObjectMeta{Name: name}
	if _, err := rbac.ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{
		ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{Verbs: []string{"update"}, APIGroups: []string{"*"}, Resources: []string{"*"}}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := rbac.ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: metav1.NamespaceDefault, Name: name}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, none := context.WithoutCancel(t.Context()), metav1.DeleteOptions{}
		_ = rbac.ClusterRoleBindings().Delete(ctx, name, none)
		_ = rbac.ClusterRoles().Delete(ctx, name, none)
	})
}

// explainsSlowness makes a chain whose last object takes its time, and describes what is wrong with the explanations.
func (c *previewCluster) explainsSlowness(t *testing.T, w chain, sort slowness) (problem string) {
	t.Helper()
	if sort == late {
		w.last().guard = "slow"
	}
	var pod *inventory.Object
	last, subject := c.begin(t, w, func(m madeCase, last *inventory.Object) {
		switch sort {
		case leased, deployed:
			c.holdBy(t, last, sort)
		case grace:
			pod = c.makePod(t, m, last)
		case late:
		}
	})
	if sort == late {
		eventually.Holds(t, "the webhook is asked", func() bool { return c.hook.isAsked(last.Namespace, last.Name) })
	} else {
		c.settle(t)
	}
	if pod != nil && w.policy == metav1.DeletePropagationBackground {
		subject = pod
	}
	for _, fromCluster := range []bool{false, true} {
		x := c.explain(t, subject, time.Now(), fromCluster)
		if x.State == explain.Kept || slices.ContainsFunc(x.Leaves(), func(w *explain.Wait) bool { return w.State == explain.Stuck }) {
			problem = fmt.Sprintf("it is called %s:\n%s", x.State, x.Text(time.Now()))
		}
	}
	switch {
	case pod != nil:
		at := metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}
		if err := c.kube.CoreV1().Pods(pod.Namespace).Delete(t.Context(), pod.Name, at); err != nil {
			t.Fatal(err)
		}
	case sort == late:
		c.hook.answer()
	default:
		c.free(t, last)
	}
	eventually.Holds(t, "the deletion ends", func() bool {
		_, err := c.in(subject.Resource, subject.Namespace).Get(t.Context(), subject.Name, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
	return problem
}

// holdBy adds the finalizer of a controller that works, as this controller does.
func (c *previewCluster) holdBy(t *testing.T, o *inventory.Object, sort slowness) {
	t.Helper()
	name := "deployed-operator"
	if sort == leased {
		name = "leased-operator"
	}
	hold := fmt.Sprintf(`{"metadata":{"finalizers":["%s.example.com/wait"]}}`, name)
	_, err := c.in(o.Resource, o.Namespace).Patch(t.Context(), o.Name, types.MergePatchType, []byte(hold), metav1.PatchOptions{FieldManager: name})
	if err != nil {
		t.Fatal(err)
	}
}

// makePod makes a running pod that depends on an object and has a long grace period.
func (c *previewCluster) makePod(t *testing.T, m madeCase, owner *inventory.Object) *inventory.Object {
	t.Helper()
	pod, err := c.kube.CoreV1().Pods(m.namespace).Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "slow", OwnerReferences: []metav1.OwnerReference{{
			APIVersion: owner.Resource.GroupVersion().String(), Kind: owner.Kind.Kind, Name: owner.Name, UID: types.UID(owner.UID), BlockOwnerDeletion: new(true),
		}}},
		Spec: corev1.PodSpec{
			NodeName: "slow-node", TerminationGracePeriodSeconds: new(int64(600)), Containers: []corev1.Container{{Name: "main", Image: "main"}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pods := &inventory.Resource{GroupVersionResource: corev1.SchemeGroupVersion.WithResource("pods"), Kind: "Pod", Namespaced: true, Deletable: true}
	o := &inventory.Object{Resource: pods}
	o.UID, o.Kind, o.Namespace, o.Name = ownership.UID(pod.UID), pods.OwnerKind(), pod.Namespace, pod.Name
	return o
}
