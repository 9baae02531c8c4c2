package registry

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/registry/rest"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// TestMainEndpointKeepsStatus: whatever is sent, on every kind that has a status.
func TestMainEndpointKeepsStatus(t *testing.T) {
	schemes := NewSchemes()
	eachRow(t, func(t *testing.T, k Kind) {
		if !k.HasStatus() {
			t.Skip("has no status")
		}
		fill := newFuzzer(t, schemes)
		old, obj := k.New(), k.New()
		fill.Fill(old)
		fill.Fill(obj)
		newStrategy(k, schemes.Hub).PrepareForUpdate(t.Context(), obj, old)

		same := obj.DeepCopyObject()
		k.behaviour.status(same, old)
		if !equality.Semantic.DeepEqual(same, obj) {
			t.Errorf("the update changes the status:\n%s", cmp.Diff(same, obj))
		}
	})
}

// TestStatusEndpointKeepsTheRest: of the metadata, only annotations come from a
// report, and of the rest only the status.
func TestStatusEndpointKeepsTheRest(t *testing.T) {
	schemes := NewSchemes()
	eachRow(t, func(t *testing.T, k Kind) {
		if !k.HasStatus() {
			t.Skip("has no status")
		}
		fill := newFuzzer(t, schemes)
		old, obj := k.New(), k.New()
		fill.Fill(old)
		fill.Fill(obj)
		sent, before := obj.DeepCopyObject(), old.DeepCopyObject()
		endpointStrategy(t, k, schemes, "status").PrepareForUpdate(t.Context(), obj, old)

		want := old.DeepCopyObject()
		k.behaviour.status(want, sent)
		k.behaviour.reporting(want, old)
		w, s := metaOf(want), metaOf(sent)
		w.SetAnnotations(s.GetAnnotations())
		w.SetManagedFields(s.GetManagedFields())
		w.SetName(s.GetName())
		w.SetNamespace(s.GetNamespace())
		w.SetUID(s.GetUID())
		w.SetResourceVersion(s.GetResourceVersion())
		if !equality.Semantic.DeepEqual(want, obj) {
			t.Errorf("(-want +got):\n%s", cmp.Diff(want, obj))
		}
		if !equality.Semantic.DeepEqual(before, old) {
			t.Errorf("the update changes what is stored:\n%s", cmp.Diff(before, old))
		}
	})
}

func TestCreateClearsStatus(t *testing.T) {
	schemes := NewSchemes()
	eachRow(t, func(t *testing.T, k Kind) {
		if !k.HasStatus() || k.behaviour.statusFromCreator {
			t.Skip("nothing to clear")
		}
		fill := newFuzzer(t, schemes)
		one, other := k.New(), k.New()
		fill.Fill(one)
		k.assign(other, one.DeepCopyObject())
		k.behaviour.status(other, k.New())
		newStrategy(k, schemes.Hub).PrepareForCreate(t.Context(), one)
		newStrategy(k, schemes.Hub).PrepareForCreate(t.Context(), other)
		if !equality.Semantic.DeepEqual(one, other) {
			t.Errorf("something of the client's status is left:\n%s", cmp.Diff(other, one))
		}
	})
}

func TestGeneration(t *testing.T) {
	schemes := NewSchemes()
	eachRow(t, func(t *testing.T, k Kind) {
		s := newStrategy(k, schemes.Hub)
		fill := newFuzzer(t, schemes)
		obj := k.New()
		fill.Fill(obj)
		metaOf(obj).SetGeneration(9)
		s.PrepareForCreate(t.Context(), obj)
		counts := k.behaviour.desired != nil
		if got := metaOf(obj).GetGeneration(); counts && got != 1 {
			t.Errorf("a new object is of generation %d", got)
		}
		metaOf(obj).SetGeneration(4)
		same, other := obj.DeepCopyObject(), k.New()
		s.PrepareForUpdate(t.Context(), same, obj)
		if got := metaOf(same).GetGeneration(); got != 4 {
			t.Errorf("an update that changes nothing makes generation %d", got)
		}
		if !counts || equality.Semantic.DeepEqual(k.behaviour.desired(other), k.behaviour.desired(obj)) {
			return // the filler left everything out
		}
		s.PrepareForUpdate(t.Context(), other, obj)
		if got := metaOf(other).GetGeneration(); got != 5 {
			t.Errorf("an update that changes everything makes generation %d", got)
		}
	})
}

func TestResetFields(t *testing.T) {
	schemes := NewSchemes()
	meta := []fieldpath.Path{
		fieldpath.MakePathOrDie("metadata", "labels"),
		fieldpath.MakePathOrDie("metadata", "finalizers"),
		fieldpath.MakePathOrDie("metadata", "ownerReferences"),
	}
	paths := map[string]*fieldpath.Set{
		"main":     fieldpath.NewSet(fieldpath.MakePathOrDie("status")),
		"status":   fieldpath.NewSet(append(meta, fieldpath.MakePathOrDie("spec"))...),
		"finalize": fieldpath.NewSet(append(meta, fieldpath.MakePathOrDie("status"))...),
	}
	eachRow(t, func(t *testing.T, k Kind) {
		versions := append(k.legacyVersions(), k.GroupVersion)
		check := func(endpoint string, got map[fieldpath.APIVersion]*fieldpath.Set) {
			t.Helper()
			if !k.HasStatus() {
				if got != nil {
					t.Errorf("%s resets %v", endpoint, got)
				}
				return
			}
			for _, version := range versions {
				if set := got[fieldpath.APIVersion(version.String())]; len(got) != len(versions) || !paths[endpoint].Equals(set) {
					t.Errorf("%s resets %v in %s, want %v", endpoint, set, version, paths[endpoint])
				}
			}
		}
		check("main", newStrategy(k, schemes.Hub).GetResetFields())
		if k.HasStatus() {
			check("status", endpointStrategy(t, k, schemes, "status").(rest.ResetFieldsStrategy).GetResetFields())
		}
		if k.Resource == "namespaces" {
			check("finalize", endpointStrategy(t, k, schemes, "finalize").(rest.ResetFieldsStrategy).GetResetFields())
		}
	})
}

// TestUpdatePermissions holds the rows to what clients know from upstream.
func TestUpdatePermissions(t *testing.T) {
	creates := map[string]bool{
		"services": true, "endpoints": true, "events": true, "leases": true,
		"roles": true, "rolebindings": true, "clusterroles": true, "clusterrolebindings": true,
	}
	conditional := map[string]bool{
		"serviceaccounts": true, "leases": true, "poddisruptionbudgets": true,
		"validatingwebhookconfigurations": true, "mutatingwebhookconfigurations": true,
		"validatingadmissionpolicies": true, "validatingadmissionpolicybindings": true,
	}
	objects := map[string]bool{
		"pods": true, "services": true, "serviceaccounts": true, "persistentvolumes": true, "persistentvolumeclaims": true, "namespaces": true,
	}
	propagation := map[string]metav1.DeletionPropagation{
		"replicationcontrollers": metav1.DeletePropagationOrphan, "jobs": metav1.DeletePropagationOrphan,
	}
	eachRow(t, func(t *testing.T, k Kind) {
		s := newStrategy(k, NewSchemes().Hub)
		if got := s.AllowCreateOnUpdate(t.Context()); got != creates[k.Resource] {
			t.Errorf("create on update: %t", got)
		}
		if got := s.AllowUnconditionalUpdate(t.Context()); got == conditional[k.Resource] {
			t.Errorf("unconditional update: %t", got)
		}
		if k.AnswersWithObject != objects[k.Resource] {
			t.Errorf("answers with the object: %t", k.AnswersWithObject)
		}
		if got := k.Deletion.DefaultPropagation; got != propagation[k.Resource] {
			t.Errorf("default propagation: %q", got)
		}
	})
}

func TestPodGrace(t *testing.T) {
	seconds := func(n int64) *int64 { return &n }
	bound := corev1.PodSpec{NodeName: "n1", TerminationGracePeriodSeconds: seconds(45)}
	tests := []struct {
		name      string
		spec      corev1.PodSpec
		phase     corev1.PodPhase
		requested *int64
		want      int64
	}{
		{"as the pod says", bound, corev1.PodRunning, nil, 45},
		{"as the request says", bound, corev1.PodRunning, seconds(5), 5},
		{"at once, by request", bound, corev1.PodRunning, seconds(0), 0},
		{"not bound", corev1.PodSpec{TerminationGracePeriodSeconds: seconds(45)}, corev1.PodPending, nil, 0},
		{"not bound, whatever the request says", corev1.PodSpec{}, corev1.PodPending, seconds(5), 0},
		{"has succeeded", bound, corev1.PodSucceeded, seconds(5), 0},
		{"has failed", bound, corev1.PodFailed, nil, 0},
		{"says nothing", corev1.PodSpec{NodeName: "n1"}, corev1.PodRunning, nil, 0},
		{"negative", corev1.PodSpec{NodeName: "n1", TerminationGracePeriodSeconds: seconds(-5)}, corev1.PodRunning, nil, 1},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, graceful := podGrace(&corev1.Pod{Spec: test.spec, Status: corev1.PodStatus{Phase: test.phase}}, test.requested)
			if got != test.want || !graceful {
				t.Errorf("podGrace() = %d, %t; want %d", got, graceful, test.want)
			}
		})
	}
	eachRow(t, func(t *testing.T, k Kind) {
		if graceful := k.Deletion.Grace != nil; graceful != (k.Resource == "pods") {
			t.Errorf("is deleted gracefully: %t", graceful)
		}
	})
}

func TestSelectors(t *testing.T) {
	k := rowFor(t, "pods")
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "b", Labels: map[string]string{"c": "d"}, UID: types.UID("u")}}
	p.Spec.NodeName = "n1"
	labels, fields, err := k.attributes(p)
	if err != nil || labels["c"] != "d" {
		t.Errorf("labels %v, %v", labels, err)
	}
	for label, want := range map[string]string{"metadata.name": "a", "metadata.namespace": "b", "spec.nodeName": "n1", "status.phase": "", "spec.hostNetwork": "false"} {
		if got, ok := fields[label]; !ok || got != want {
			t.Errorf("%s = %q, want %q", label, got, want)
		}
	}
	triggers, indexers := k.indexes()
	if got := triggers["spec.nodeName"](p); got != "n1" {
		t.Errorf("trigger: %q", got)
	}
	if got, err := (*indexers)["f:spec.nodeName"](p); err != nil || len(got) != 1 || got[0] != "n1" {
		t.Errorf("index: %q, %v", got, err)
	}
	if _, fields, _ := rowFor(t, "nodes").attributes(&corev1.Node{}); fields.Has("metadata.namespace") {
		t.Error("nodes have no namespace to select by")
	}
}
