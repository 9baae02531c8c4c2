package builtin

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/registry/rest"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/coppice-dev/coppice/internal/apiserver/registry"
)

// statusOf returns the field Status of an object's Go type, if it has one. These tests check the rows against the
// types, not against their own declarations. The status of a CSINode does not count: nothing of it is stored, because
// its feature is not enabled by default.
func statusOf(obj runtime.Object) (reflect.Value, bool) {
	if _, ok := obj.(*storagev1.CSINode); ok {
		return reflect.Value{}, false
	}
	status := reflect.ValueOf(obj).Elem().FieldByName("Status")
	return status, status.IsValid()
}

// TestStatusIsDeclared checks that a row whose type has a status has a /status endpoint.
func TestStatusIsDeclared(t *testing.T) {
	schemes := NewSchemes()
	eachResource(t, func(t *testing.T, resource registry.Resource) {
		want := reflect.ValueOf(resource.New()).Elem().FieldByName("Status").IsValid()
		if resource.HasStatus() != want {
			t.Errorf("HasStatus() = %t, the type's field Status: %t", resource.HasStatus(), want)
		}
		storages, err := registry.NewStorages(resource, schemes.Hub, fakeConfig(newFakeStorage(), fakeDeleter{}))
		if err != nil {
			t.Fatal(err)
		}
		if _, served := storages[resource.Plural+"/status"]; served != want {
			t.Errorf("/status is served: %t, the type's field Status: %t", served, want)
		}
	})
}

// eachWithStatus runs a test for every resource whose Go type has a status.
func eachWithStatus(t *testing.T, test func(t *testing.T, resource registry.Resource)) {
	t.Helper()
	eachResource(t, func(t *testing.T, resource registry.Resource) {
		if _, ok := statusOf(resource.New()); !ok {
			t.Skip("the type has no status")
		}
		test(t, resource)
	})
}

// TestMainEndpointKeepsStatus checks that the main endpoint keeps the stored status, whatever a client sends.
func TestMainEndpointKeepsStatus(t *testing.T) {
	schemes := NewSchemes()
	eachWithStatus(t, func(t *testing.T, resource registry.Resource) {
		fill := newFuzzer(t, schemes)
		for range fuzzRounds {
			old, obj := resource.New(), resource.New()
			fill.Fill(old)
			fill.Fill(obj)
			before := old.DeepCopyObject()
			mainREST(t, resource, schemes).UpdateStrategy.PrepareForUpdate(t.Context(), obj, old)

			want, _ := statusOf(before)
			got, _ := statusOf(obj)
			if diff := statusDiff(want, got); diff != "" {
				t.Fatalf("the update changes the status (-want +got):\n%s", diff)
			}
		}
	})
}

// statusDiff compares two statuses.
func statusDiff(want, got reflect.Value) string {
	if equality.Semantic.DeepEqual(want.Interface(), got.Interface()) {
		return ""
	}
	// Strategies that set conditions themselves use the current time.
	return cmp.Diff(want.Interface(), got.Interface(), cmp.Comparer(func(a, b metav1.Time) bool {
		return a.Sub(b.Time).Abs() < time.Minute
	}))
}

// TestStatusEndpointKeepsTheRest checks that a status update changes only annotations in the metadata, and only the
// status in the rest. It tries many objects, so that each field is set in some of them.
func TestStatusEndpointKeepsTheRest(t *testing.T) {
	schemes := NewSchemes()
	eachWithStatus(t, func(t *testing.T, resource registry.Resource) {
		fill := newFuzzer(t, schemes)
		for range fuzzRounds {
			old, obj := resource.New(), resource.New()
			fill.Fill(old)
			fill.Fill(obj)
			sent, before := obj.DeepCopyObject(), old.DeepCopyObject()
			strategyOf(t, resource, schemes, "status").PrepareForUpdate(t.Context(), obj, old)
			if want := withStatusOf(sent, before, obj); !equality.Semantic.DeepEqual(want, obj) {
				t.Fatalf("(-want +got):\n%s", cmp.Diff(want, obj))
			}
			if !equality.Semantic.DeepEqual(before, old) {
				t.Fatalf("the update changes what is stored:\n%s", cmp.Diff(before, old))
			}
		}
	})
}

// withStatusOf returns the stored object with the status of the sent one, and with the times that the strategy has set
// in the updated one.
func withStatusOf(sent, stored, updated runtime.Object) runtime.Object {
	want := stored.DeepCopyObject()
	to, _ := statusOf(want)
	from, _ := statusOf(sent)
	to.Set(from)
	switch want := want.(type) {
	case *corev1.Pod:
		completeStatus(&want.Status, &stored.(*corev1.Pod).Status)
	case *corev1.Node:
		want.Status.Config = nil
	case *corev1.PersistentVolumeClaim:
		want.Status.HealthStatus = nil // its feature is off
	case *corev1.PersistentVolume:
		if since := &want.Status.LastPhaseTransitionTime; *since == nil { // a phase other than the stored one
			*since = updated.(*corev1.PersistentVolume).Status.LastPhaseTransitionTime
		}
	case *resourcev1.ResourceClaim:
		if a := want.Status.Allocation; a != nil {
			want.Status.Allocation = a.DeepCopy()
			for i := range want.Status.Allocation.Devices.Results { // its feature is off
				want.Status.Allocation.Devices.Results[i].SkipNodeOperations = nil
			}
		}
	}
	w, s := metaOf(want), metaOf(sent)
	w.SetAnnotations(s.GetAnnotations())
	w.SetManagedFields(s.GetManagedFields())
	w.SetName(s.GetName())
	w.SetNamespace(s.GetNamespace())
	w.SetUID(s.GetUID())
	w.SetResourceVersion(s.GetResourceVersion())
	return want
}

// completeStatus sets the fields that the status of a pod may leave out, and removes the fields that the server drops.
// Generated conditions have types that the stored status does not have.
func completeStatus(s, before *corev1.PodStatus) {
	if s.QOSClass == "" {
		s.QOSClass = before.QOSClass
	}
	if s.ObservedGeneration == 0 {
		s.ObservedGeneration = before.ObservedGeneration
	}
	if s.ResourceClaimStatuses == nil {
		s.ResourceClaimStatuses = before.ResourceClaimStatuses
	}
	if s.ExtendedResourceClaimStatus == nil {
		s.ExtendedResourceClaimStatus = before.ExtendedResourceClaimStatus
	}
	s.NodeAllocatableResourceClaimStatuses, s.VolumeHealth = nil, nil
	for _, c := range slices.Concat(s.InitContainerStatuses, s.ContainerStatuses, s.EphemeralContainerStatuses) {
		for i := range c.VolumeMounts {
			c.VolumeMounts[i].VolumeStatus = nil
		}
	}
}

// TestCreateClearsStatus checks that a client that creates an object cannot set its status.
func TestCreateClearsStatus(t *testing.T) {
	// Node agents report a status when they register. The default flow schemas are created
	// together with their priority levels, and their status says so.
	keeps := map[string]bool{"nodes": true, "flowschemas": true}
	schemes := NewSchemes()
	eachWithStatus(t, func(t *testing.T, resource registry.Resource) {
		fill := newFuzzer(t, schemes)
		for range fuzzRounds {
			sent := resource.New()
			fill.Fill(sent)
			bare := sent.DeepCopyObject()
			status, _ := statusOf(bare)
			status.SetZero()
			strategy := mainREST(t, resource, schemes).CreateStrategy
			created := sent.DeepCopyObject()
			strategy.PrepareForCreate(t.Context(), created)
			strategy.PrepareForCreate(t.Context(), bare)
			got, _ := statusOf(created)
			want, _ := statusOf(bare)
			if keeps[resource.Plural] {
				if node, ok := sent.(*corev1.Node); ok {
					node.Status.Config = nil
				}
				want, _ = statusOf(sent)
			}
			if diff := statusDiff(want, got); diff != "" {
				t.Fatalf("(-want +got):\n%s", diff)
			}
		}
	})
}

func TestGenerationCountsChangesOfTheSpec(t *testing.T) {
	schemes := NewSchemes()
	eachResource(t, func(t *testing.T, resource registry.Resource) {
		r := mainREST(t, resource, schemes)
		fill := newFuzzer(t, schemes)
		obj := resource.New()
		fill.Fill(obj)
		metaOf(obj).SetGeneration(9)
		r.CreateStrategy.PrepareForCreate(t.Context(), obj)
		counts := resource.Strategy.Desired != nil
		if got := metaOf(obj).GetGeneration(); counts && got != 1 {
			t.Errorf("a new object is of generation %d", got)
		}
		metaOf(obj).SetGeneration(4)
		same, other := obj.DeepCopyObject(), resource.New()
		r.UpdateStrategy.PrepareForUpdate(t.Context(), same, obj)
		if got := metaOf(same).GetGeneration(); got != 4 {
			t.Errorf("an update that changes nothing makes generation %d", got)
		}
		if !counts || equality.Semantic.DeepEqual(resource.Strategy.Desired(other), resource.Strategy.Desired(obj)) {
			return // the fuzzer left everything empty
		}
		r.UpdateStrategy.PrepareForUpdate(t.Context(), other, obj)
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
		"main":                fieldpath.NewSet(fieldpath.MakePathOrDie("status")),
		"status":              fieldpath.NewSet(append(meta, fieldpath.MakePathOrDie("spec"))...),
		"finalize":            fieldpath.NewSet(append(meta, fieldpath.MakePathOrDie("status"))...),
		"resize":              fieldpath.NewSet(append(meta, fieldpath.MakePathOrDie("metadata", "annotations"))...),
		"ephemeralcontainers": fieldpath.NewSet(append(meta, fieldpath.MakePathOrDie("metadata", "annotations"))...),
	}
	eachResource(t, func(t *testing.T, resource registry.Resource) {
		versions := []schema.GroupVersion{resource.GroupVersion}
		for _, l := range resource.Legacy {
			versions = append(versions, l.GroupVersion)
		}
		for _, p := range resource.Peers {
			versions = append(versions, p.GroupVersion)
		}
		check := func(endpoint string, got map[fieldpath.APIVersion]*fieldpath.Set) {
			t.Helper()
			if !resource.HasStatus() {
				if got != nil {
					t.Errorf("%s resets %v", endpoint, got)
				}
				return
			}
			want := paths[endpoint]
			if endpoint == "main" {
				for _, name := range resource.Unmanaged {
					want = want.Union(fieldpath.NewSet(fieldpath.MakePathOrDie(name)))
				}
			}
			for _, version := range versions {
				if set := got[fieldpath.APIVersion(version.String())]; len(got) != len(versions) || !want.Equals(set) {
					t.Errorf("%s resets %v in %s, want %v", endpoint, set, version, want)
				}
			}
		}
		check("main", mainREST(t, resource, schemes).GetResetFields())
		if resource.HasStatus() {
			check("status", strategyOf(t, resource, schemes, "status").(rest.ResetFieldsStrategy).GetResetFields())
		}
		if resource.Plural == "pods" {
			check("resize", strategyOf(t, resource, schemes, "resize").(rest.ResetFieldsStrategy).GetResetFields())
			check("ephemeralcontainers", strategyOf(t, resource, schemes, "ephemeralcontainers").(rest.ResetFieldsStrategy).GetResetFields())
		}
		if resource.Plural == "namespaces" {
			check("finalize", strategyOf(t, resource, schemes, "finalize").(rest.ResetFieldsStrategy).GetResetFields())
		}
	})
}

// TestUpdatePermissions checks that the same updates are allowed as in kube-apiserver.
func TestUpdatePermissions(t *testing.T) {
	creates := map[string]bool{
		"services": true, "endpoints": true, "events": true, "leases": true, "limitranges": true,
		"roles": true, "rolebindings": true, "clusterroles": true, "clusterrolebindings": true, "runtimeclasses": true,
	}
	conditional := map[string]bool{
		"apiservices": true, "leases": true, "poddisruptionbudgets": true,
		"validatingwebhookconfigurations": true, "mutatingwebhookconfigurations": true,
		"validatingadmissionpolicies": true, "validatingadmissionpolicybindings": true,
		"mutatingadmissionpolicies": true, "mutatingadmissionpolicybindings": true,
		"runtimeclasses": true, "csidrivers": true, "csinodes": true, "csistoragecapacities": true, "volumeattachments": true,
		"clustertrustbundles": true, "podcertificaterequests": true, "devicetaintrules": true, "storageversionmigrations": true,
	}
	objects := map[string]bool{
		"pods": true, "services": true, "serviceaccounts": true, "persistentvolumes": true, "persistentvolumeclaims": true, "namespaces": true,
		"resourcequotas": true,
		"deviceclasses":  true, "resourceclaims": true, "resourceclaimtemplates": true, "resourceslices": true,
		"podtemplates": true, "storageclasses": true, "csidrivers": true, "csinodes": true, "volumeattachments": true, "volumeattributesclasses": true,
	}
	propagation := map[string]metav1.DeletionPropagation{
		"replicationcontrollers": metav1.DeletePropagationOrphan, "jobs": metav1.DeletePropagationOrphan,
	}
	schemes := NewSchemes()
	eachResource(t, func(t *testing.T, resource registry.Resource) {
		s := mainREST(t, resource, schemes).UpdateStrategy
		if got := s.AllowCreateOnUpdate(t.Context()); got != creates[resource.Plural] {
			t.Errorf("create on update: %t", got)
		}
		if got := s.AllowUnconditionalUpdate(t.Context()); got == conditional[resource.Plural] {
			t.Errorf("unconditional update: %t", got)
		}
		if resource.ReturnDeletedObject != objects[resource.Plural] {
			t.Errorf("answers with the object: %t", resource.ReturnDeletedObject)
		}
		if got := resource.Deletion.DefaultPropagation; got != propagation[resource.Plural] {
			t.Errorf("default propagation: %q", got)
		}
	})
}

// TestOnlyPodsAreDeletedGracefully checks that only pods are deleted gracefully.
func TestOnlyPodsAreDeletedGracefully(t *testing.T) {
	eachResource(t, func(t *testing.T, resource registry.Resource) {
		if graceful := resource.Deletion.Grace != nil; graceful != (resource.Plural == "pods") {
			t.Errorf("is deleted gracefully: %t", graceful)
		}
	})
}

func TestPodsAreSelectedByFields(t *testing.T) {
	schemes := NewSchemes()
	attributes := func(resource string, obj runtime.Object) (labels.Set, fields.Set) {
		t.Helper()
		set, selectable, err := mainREST(t, rowFor(t, resource), schemes).PredicateFunc(labels.Everything(), fields.Everything()).GetAttrs(obj)
		if err != nil {
			t.Fatal(err)
		}
		return set, selectable
	}
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "b", Labels: map[string]string{"c": "d"}, UID: types.UID("u")}}
	p.Spec.NodeName = "n1"
	set, selectable := attributes("pods", p)
	if set["c"] != "d" {
		t.Errorf("labels %v", set)
	}
	for label, want := range map[string]string{"metadata.name": "a", "metadata.namespace": "b", "spec.nodeName": "n1", "status.phase": "", "spec.hostNetwork": "false"} {
		if got, ok := selectable[label]; !ok || got != want {
			t.Errorf("%s = %q, want %q", label, got, want)
		}
	}
	if _, selectable := attributes("nodes", &corev1.Node{}); selectable.Has("metadata.namespace") {
		t.Error("nodes have no namespace to select by")
	}
}
