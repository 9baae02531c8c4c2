package system

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/dynamic"
)

const (
	// pretender is the name of a collector. Who may create namespaces may create this service account.
	pretender = "system:serviceaccount:coppice-system:coppice"
	// gitOps has a name like those of Kubernetes' controllers.
	gitOps = "system:serviceaccount:kube-system:gitops-controller"
)

// waysToHideTheDeletion returns ways that delete little, with which much goes.
func waysToHideTheDeletion() []wayTooMuch {
	background := isRefused(deletes(withPolicy(metav1.DeletePropagationBackground)))
	return []wayTooMuch{
		{"the owner of a namespace", theTenant, background},
		{"the owner of a namespace, confirmed before it grows", theTenant, tenantGrows},
		{"a definition that is not served", theDefinition, unservedDefinition},
		{"a collection by a collector", aCrowd(tooMany), collectionBy(pretender)},
		{"a collection by a GitOps controller", aCrowd(tooMany), collectionBy(gitOps)},
	}
}

func clusterRoles() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles"}
}

// theTenant creates a cluster-scoped object that owns a namespace with objects.
func theTenant(ctx context.Context, in confirmAttempt) ([]subject, error) {
	tenant := subject{resource: clusterRoles(), name: "tenant-" + in.namespace}
	o, err := create(ctx, in.of(tenant), `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":{"name":"`+tenant.name+`"},"rules":[]}`)
	if err != nil {
		return nil, err
	}
	space := subject{resource: corev1.SchemeGroupVersion.WithResource("namespaces"), name: in.namespace}
	err = in.patch(ctx, space, map[string]any{"ownerReferences": []any{map[string]any{
		"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "name": tenant.name, "uid": o.GetUID(),
	}}})
	if err != nil {
		return nil, err
	}
	contents, err := in.createConfigMaps(ctx, tooMany, "")
	return append([]subject{tenant, space}, contents...), err
}

// tenantGrows confirms the deletion of a tenant whose namespace then gets one more object.
func tenantGrows(ctx context.Context, in confirmAttempt, all []subject) error {
	return grownBy(ctx, in, all, func() error {
		_, err := create(ctx, in.of(all[2]), `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"one-more"}}`)
		return err
	})
}

// unservedDefinition deletes a definition whose versions are not served any more. Then they are served again.
func unservedDefinition(ctx context.Context, in confirmAttempt, all []subject) error {
	serve := func(served string) error {
		_, err := in.of(all[0]).Patch(ctx, all[0].name, types.JSONPatchType, []byte(`[{"op":"replace","path":"/spec/versions/0/served","value":`+served+`}]`), metav1.PatchOptions{})
		return err
	}
	isServed := func(want bool) error {
		return becomesTrue(ctx, fmt.Sprintf("the resource is served: %t", want), func(ctx context.Context) (bool, error) {
			_, err := in.of(all[1]).List(ctx, metav1.ListOptions{Limit: 1})
			return (err == nil) == want, nil
		})
	}
	if err := errors.Join(serve("false"), isServed(false)); err != nil {
		return err
	}
	// A list that is in the cache of discovery may count them for a moment, and then the deletion is refused as before.
	return errors.Join(asksToConfirm(deletes(metav1.DeleteOptions{})(ctx, in, all)), serve("true"), isServed(true))
}

// collectionBy deletes a collection as a user with all rights but that to confirm.
func collectionBy(user string) func(context.Context, confirmAttempt, []subject) error {
	return func(ctx context.Context, in confirmAttempt, all []subject) error {
		var err error
		if in.objects, err = dynamic.NewForConfig(as(in.plane.Config, user)); err != nil {
			return err
		}
		return isRefused(deletesCollection(""))(ctx, in, all)
	}
}

// evictionIsRefused returns an error if a refused eviction changes the budget or the pod.
func evictionIsRefused(ctx context.Context, in confirmAttempt) error {
	pod, err := aGuardedPod(ctx, in)
	if err != nil {
		return err
	}
	budgets := in.client.PolicyV1().PodDisruptionBudgets(in.namespace)
	refusal := in.client.PolicyV1().Evictions(in.namespace).Evict(ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: pod.name, Namespace: in.namespace}})
	if err := asksToConfirm(refusal); err != nil {
		return err
	}
	b, err := budgets.Get(ctx, "web", metav1.GetOptions{})
	if err != nil {
		return err
	}
	if b.Status.DisruptionsAllowed != 1 || len(b.Status.DisruptedPods) > 0 {
		return fmt.Errorf("the budget is now %+v", b.Status)
	}
	after, err := in.client.CoreV1().Pods(in.namespace).Get(ctx, pod.name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if slices.ContainsFunc(after.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.DisruptionTarget }) {
		return fmt.Errorf("the pod has the conditions %+v", after.Status.Conditions)
	}
	return nil
}

// aGuardedPod creates running pods and a budget that allows one disruption. The returned pod has more dependents than may go
// unconfirmed.
func aGuardedPod(ctx context.Context, in confirmAttempt) (subject, error) {
	if in.err != nil {
		return subject{}, in.err
	}
	all, err := aReplicaSet(ctx, in)
	if err != nil {
		return subject{}, err
	}
	for _, pod := range all[1:] {
		patch := `{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}`
		if _, err := in.of(pod).Patch(ctx, pod.name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, "status"); err != nil {
			return subject{}, err
		}
	}
	o, err := in.of(all[1]).Get(ctx, all[1].name, metav1.GetOptions{})
	if err != nil {
		return subject{}, err
	}
	if _, err := in.createConfigMaps(ctx, tooMany, ownedBy("v1", "Pod", o.GetName(), o.GetUID())); err != nil {
		return subject{}, err
	}
	budgets := in.client.PolicyV1().PodDisruptionBudgets(in.namespace)
	_, err = budgets.Create(ctx, &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec:       policyv1.PodDisruptionBudgetSpec{MaxUnavailable: new(intstr.FromInt32(1)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}},
	}, metav1.CreateOptions{})
	if err != nil {
		return subject{}, err
	}
	return all[1], becomesTrue(ctx, "the budget allows a disruption", func(ctx context.Context) (bool, error) {
		b, err := budgets.Get(ctx, "web", metav1.GetOptions{})
		return err == nil && b.Status.DisruptionsAllowed == 1, err
	})
}
