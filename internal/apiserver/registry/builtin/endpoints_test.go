package builtin

import (
	"context"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/coppice-dev/coppice/internal/apiserver/registry"
	"github.com/coppice-dev/coppice/internal/rules/protection"
)

func runningPod(t *testing.T, r *registry.REST) *corev1.Pod {
	t.Helper()
	_, obj := decode(t, NewSchemes(), `{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {containers: [{name: a, image: "a:1"}]}}`)
	return put(t, r, obj).(*corev1.Pod)
}

func TestPodIsBoundOnce(t *testing.T) {
	_, r, storages := registries(t, "pods", fakeDeleter{})
	binding := storages["pods/binding"].(rest.NamedCreater)
	ctx := requestContext(r.Resource)
	pod := runningPod(t, r)

	bind := func(b *corev1.Binding) error {
		t.Helper()
		_, err := binding.Create(ctx, "web", b, nil, &metav1.CreateOptions{})
		return err
	}
	to := func(node string, change func(*corev1.Binding)) *corev1.Binding {
		b := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Target: corev1.ObjectReference{Kind: "Node", Name: node}}
		if change != nil {
			change(b)
		}
		return b
	}
	refused := map[string]*corev1.Binding{
		"name in URL":          to("n1", func(b *corev1.Binding) { b.Name = "other" }),
		"target.name: Require": to("", nil),
		"target.name: Invalid": to("No_Node", nil),
		"target.kind: Unsupp":  to("n1", func(b *corev1.Binding) { b.Target.Kind = "Pod" }),
		"Precondition failed":  to("n1", func(b *corev1.Binding) { b.UID = "another" }),
		`pods/binding "web" is forbidden: a Binding cannot set labels and annotations of coppice.dev`: to("n1", func(b *corev1.Binding) {
			b.Labels = map[string]string{protection.Label: string(protection.Always)}
		}),
	}
	for want, b := range refused {
		if err := bind(b); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if err := bind(to("n1", func(b *corev1.Binding) {
		b.UID = pod.UID
		b.Annotations = map[string]string{"a": "b"}
	})); err != nil {
		t.Fatal(err)
	}
	got, err := r.Get(ctx, "web", &metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	bound := got.(*corev1.Pod)
	if bound.Spec.NodeName != "n1" || bound.Labels[protection.Label] != "" || bound.Annotations["a"] != "b" || bound.Generation != 1 || len(bound.Status.Conditions) != 1 {
		t.Fatalf("bound as %+v", bound)
	}
	if c := bound.Status.Conditions[0]; c.Type != corev1.PodScheduled || c.Status != corev1.ConditionTrue || !c.LastTransitionTime.Time.Equal(testNow()) {
		t.Errorf("condition %+v", c)
	}
	if err := bind(to("n2", nil)); !apierrors.IsConflict(err) {
		t.Errorf("bound twice: %v", err)
	}
	gone := to("n1", func(b *corev1.Binding) { b.Name = "gone" })
	if _, err := binding.Create(ctx, "gone", gone, nil, &metav1.CreateOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("bound a pod that is not there: %v", err)
	}
}

func TestScaleReadsAndWritesReplicas(t *testing.T) {
	_, r, storages := registries(t, "deployments", fakeDeleter{})
	ctx := requestContext(r.Resource)
	_, obj := decode(t, NewSchemes(), `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec: {replicas: 2, selector: {matchLabels: {app: web}}, template: {metadata: {labels: {app: web}}, spec: {containers: [{name: a, image: a}]}}}`)
	d := obj.(*appsv1.Deployment)
	d.ManagedFields = []metav1.ManagedFieldsEntry{{
		Manager: "me", Operation: metav1.ManagedFieldsOperationApply, APIVersion: "apps/v1", FieldsType: "FieldsV1",
		FieldsV1: &metav1.FieldsV1{Raw: []byte(`{"f:spec":{"f:replicas":{}}}`)},
	}}
	put(t, r, d)
	scale := storages["deployments/scale"].(rest.Patcher)

	got, err := scale.Get(ctx, "web", &metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s := got.(*autoscalingv1.Scale)
	if s.Name != "web" || s.Spec.Replicas != 2 || s.Status.Selector != "app=web" || s.ResourceVersion == "" || len(s.ManagedFields) != 1 || s.ManagedFields[0].APIVersion != "autoscaling/v1" {
		t.Errorf("%+v", s)
	}
	update := func(s *autoscalingv1.Scale) (runtime.Object, error) {
		out, _, err := scale.Update(ctx, "web", rest.DefaultUpdatedObjectInfo(s), nil, nil, false, &metav1.UpdateOptions{})
		return out, err
	}
	five := s.DeepCopy()
	five.Spec.Replicas = 5
	if out, err := update(five); err != nil || out.(*autoscalingv1.Scale).Spec.Replicas != 5 {
		t.Fatalf("%+v, %v", out, err)
	}
	after, err := r.Get(ctx, "web", &metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if d := after.(*appsv1.Deployment); *d.Spec.Replicas != 5 || d.Generation != 2 || len(d.ManagedFields) != 1 || d.ManagedFields[0].APIVersion != "apps/v1" {
		t.Errorf("replicas %d, generation %d, %+v", *d.Spec.Replicas, d.Generation, d.ManagedFields)
	}
	if _, err := update(five); !apierrors.IsConflict(err) {
		t.Errorf("an old resourceVersion: %v", err)
	}
	patch := func(uid types.UID) error {
		patched := rest.DefaultUpdatedObjectInfo(nil, func(_ context.Context, _, before runtime.Object) (runtime.Object, error) {
			six := before.DeepCopyObject().(*autoscalingv1.Scale)
			six.UID, six.Spec.Replicas = uid, 6
			return six, nil
		})
		_, _, err := scale.Update(ctx, "web", patched, nil, nil, false, &metav1.UpdateOptions{})
		return err
	}
	want := `Operation cannot be fulfilled on deployments/scale.apps "web": Precondition failed: UID in precondition: other, UID in object meta: ` + string(s.UID)
	if err := patch("other"); !apierrors.IsConflict(err) || err.Error() != want {
		t.Errorf("a patch with another UID: %v", err)
	}
	for _, uid := range []types.UID{"", s.UID} {
		if err := patch(uid); err != nil {
			t.Errorf("a patch with the UID %q: %v", uid, err)
		}
	}
	negative := &autoscalingv1.Scale{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: autoscalingv1.ScaleSpec{Replicas: -1}}
	if _, err := update(negative); !apierrors.IsInvalid(err) {
		t.Errorf("negative replicas: %v", err)
	}
	eachResource(t, func(t *testing.T, resource registry.Resource) {
		if resource.Strategy.Scale == nil {
			t.Skip("does not scale")
		}
		obj := resource.New()
		if resource.Strategy.Scale.StatusReplicas(obj) != 0 || *resource.Strategy.Scale.Replicas(obj) != nil {
			t.Error("an empty object has replicas")
		}
		resource.Strategy.Scale.Selector(obj)
	})
}
