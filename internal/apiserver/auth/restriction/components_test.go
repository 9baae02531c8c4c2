package restriction

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// TestR16_CollectorChanges checks the changes that the collector may make to an object, built-in or custom.
func TestR16_CollectorChanges(t *testing.T) {
	const foreign = "example.com/hold"
	owner := func(uid string, blocking bool) metav1.OwnerReference {
		return metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: uid, UID: types.UID(uid), BlockOwnerDeletion: &blocking, Controller: new(uid == "a")}
	}
	before := func() *corev1.ConfigMap {
		return &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{
				Name: "cm", Generation: 3, ResourceVersion: "7", Labels: map[string]string{"a": "b"},
				OwnerReferences: []metav1.OwnerReference{owner("a", true), owner("b", false)},
				Finalizers:      []string{foreign, "foregroundDeletion", "orphan"},
			},
			Data: map[string]string{"key": "value"},
		}
	}
	for name, test := range map[string]struct {
		change func(*corev1.ConfigMap)
		want   bool
	}{
		"nothing": {func(*corev1.ConfigMap) {}, true},
		"what every write changes": {func(cm *corev1.ConfigMap) {
			cm.ResourceVersion, cm.ManagedFields = "8", []metav1.ManagedFieldsEntry{{Manager: "coppice"}}
		}, true},
		"the first owner goes":         {func(cm *corev1.ConfigMap) { cm.OwnerReferences = cm.OwnerReferences[1:] }, true},
		"all owners go":                {func(cm *corev1.ConfigMap) { cm.OwnerReferences = nil }, true},
		"one stops blocking":           {func(cm *corev1.ConfigMap) { cm.OwnerReferences[0].BlockOwnerDeletion = new(false) }, true},
		"one says nothing of blocking": {func(cm *corev1.ConfigMap) { cm.OwnerReferences[0].BlockOwnerDeletion = nil }, true},
		"one begins to block":          {func(cm *corev1.ConfigMap) { cm.OwnerReferences[1].BlockOwnerDeletion = new(true) }, false},
		"one is another":               {func(cm *corev1.ConfigMap) { cm.OwnerReferences[0].UID = "other" }, false},
		"one controls no more":         {func(cm *corev1.ConfigMap) { cm.OwnerReferences[0].Controller = nil }, false},
		"one is added":                 {func(cm *corev1.ConfigMap) { cm.OwnerReferences = append(cm.OwnerReferences, owner("c", false)) }, false},
		"one is there twice":           {func(cm *corev1.ConfigMap) { cm.OwnerReferences = append(cm.OwnerReferences, owner("b", false)) }, false},
		"the order changes": {func(cm *corev1.ConfigMap) {
			cm.OwnerReferences = []metav1.OwnerReference{cm.OwnerReferences[1], cm.OwnerReferences[0]}
		}, false},
		"its finalizers go":      {func(cm *corev1.ConfigMap) { cm.Finalizers = []string{foreign} }, true},
		"another's goes":         {func(cm *corev1.ConfigMap) { cm.Finalizers = cm.Finalizers[1:] }, false},
		"all finalizers go":      {func(cm *corev1.ConfigMap) { cm.Finalizers = nil }, false},
		"a finalizer comes":      {func(cm *corev1.ConfigMap) { cm.Finalizers = append(cm.Finalizers, "x/y") }, false},
		"data":                   {func(cm *corev1.ConfigMap) { cm.Data["key"] = "other" }, false},
		"a label":                {func(cm *corev1.ConfigMap) { cm.Labels = nil }, false},
		"a generation":           {func(cm *corev1.ConfigMap) { cm.Generation++ }, false},
		"data with an owner":     {func(cm *corev1.ConfigMap) { cm.OwnerReferences, cm.Data = nil, nil }, false},
		"a time of its deletion": {func(cm *corev1.ConfigMap) { cm.DeletionTimestamp = &metav1.Time{} }, false},
	} {
		t.Run(name, func(t *testing.T) {
			after := before()
			test.change(after)
			after.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"} // the result of a patch has them
			if err := checkCollectorUpdate(before(), after); (err == nil) != test.want {
				t.Errorf("typed: %v", err)
			}
			if err := checkCollectorUpdate(custom(t, before()), custom(t, after)); (err == nil) != test.want {
				t.Errorf("custom: %v", err)
			}
		})
	}
}

func custom(t *testing.T, obj runtime.Object) *unstructured.Unstructured {
	t.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		t.Fatal(err)
	}
	return &unstructured.Unstructured{Object: content}
}

func TestMetadataOnly(t *testing.T) {
	const one, list = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1", "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
	for header, want := range map[string]string{
		"":                                "",
		"*/*":                             "",
		"application/json":                "",
		one:                               one,
		"application/json," + one:         one,
		list + ", " + one + ",text/plain": list + "," + one,
		one + ";as=Table":                 "",
		"application/json;as=Table;g=meta.k8s.io;v=v1":                       "",
		"application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1beta1":  "",
		"application/json;as=PartialObjectMetadata":                          "",
		`application/json;x=",";as=PartialObjectMetadata;g=meta.k8s.io;v=v1`: "",
		"Application/JSON;AS=PartialObjectMetadata;g=meta.k8s.io;v=v1;q=0.1": one,
		"application/json;as=partialobjectmetadata;g=meta.k8s.io;v=v1":       "",
	} {
		if got := metadataOnly([]string{header}); got != want {
			t.Errorf("%q: %q, want %q", header, got, want)
		}
	}
}
