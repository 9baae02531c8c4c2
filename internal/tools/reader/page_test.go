package reader

import (
	"bytes"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	protobufencoding "k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/rest"

	"github.com/coppice-dev/coppice/internal/tools/inventory"
)

// fullMetadata returns metadata with all fields, whether or not they matter.
func fullMetadata(name string) metav1.ObjectMeta {
	at := metav1.NewTime(time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC))
	entry := func(manager, fields string) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Manager: manager, Operation: "Update", APIVersion: "v1", Time: &at, FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(fields)}
	}
	return metav1.ObjectMeta{
		Name: name, Namespace: "shop", UID: "u-1", ResourceVersion: "7", Generation: 3, CreationTimestamp: at,
		DeletionTimestamp: &at, DeletionGracePeriodSeconds: new(int64(30)),
		Labels: map[string]string{"app": "web", "tier": "front"}, Annotations: map[string]string{"note": "long"},
		Finalizers:      []string{"example.com/hold", "foregroundDeletion"},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "rs", UID: "o", Controller: new(true), BlockOwnerDeletion: new(true)}},
		ManagedFields: []metav1.ManagedFieldsEntry{
			entry("operator", `{"f:metadata":{"f:finalizers":{".":{},"v:\"example.com/hold\"":{}}}}`),
			entry("somebody", `{"f:metadata":{"f:ownerReferences":{}}}`),
			entry("kubectl", `{"f:metadata":{"f:labels":{}}}`),
			entry("kube-controller-manager", `{"f:metadata":{"f:ownerReferences":{}}}`),
		},
	}
}

func fullPod() corev1.Pod {
	return corev1.Pod{
		ObjectMeta: fullMetadata("p"),
		Spec: corev1.PodSpec{
			NodeName: "n1", TerminationGracePeriodSeconds: new(int64(45)), ServiceAccountName: "default",
			Volumes: []corev1.Volume{
				{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}},
				{Name: "scratch", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}},
			},
			Containers: []corev1.Container{{
				Name: "main", Image: "image", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("1")}},
				Lifecycle: &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 9}}},
			}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}, PodIP: "10.0.0.1"},
	}
}

func asProtobuf(t *testing.T, object runtime.Object) []byte {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if err := protobufencoding.NewSerializer(scheme, scheme).Encode(object, &text); err != nil {
		t.Fatal(err)
	}
	return text.Bytes()
}

func asJSON(t *testing.T, object runtime.Object) []byte {
	t.Helper()
	text, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestDecodersKeepTheSameFields: for every encoding of a list, the decoder keeps the same fields as from whole objects.
func TestDecodersKeepTheSameFields(t *testing.T) {
	pods := &corev1.PodList{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, ListMeta: metav1.ListMeta{Continue: "next", ResourceVersion: "9"},
		Items: []corev1.Pod{fullPod()},
	}
	metadata := &metav1.PartialObjectMetadataList{
		TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadataList"}, ListMeta: pods.ListMeta,
		Items: []metav1.PartialObjectMetadata{{ObjectMeta: fullMetadata("p")}},
	}
	r := &inventory.Resource{Kind: "Pod", GroupVersionResource: corev1.SchemeGroupVersion.WithResource("pods")}
	want := newConverter(r).object(new(fullMetadata("p")))
	if len(want.Managers()) != 1 || len(want.SetBy.Owners) != 1 {
		t.Fatalf("%+v", want)
	}
	wantAsked := want.Namespace + " [" + want.Owners[0].Kind + "]"
	wantPod := inventory.NewPod(new(fullPod()))
	if wantPod.Sleep != 9*time.Second || len(wantPod.Claims) != 2 || !wantPod.Ready {
		t.Fatalf("%+v", wantPod)
	}
	for _, test := range []struct {
		what   string
		text   []byte
		isPods bool
	}{
		{"pods", asProtobuf(t, pods), true},
		{"pods in JSON", asJSON(t, pods), true},
		{"metadata", asProtobuf(t, metadata), false},
		{"metadata in JSON", asJSON(t, metadata), false},
		{"whole objects of a server that has nothing else", asJSON(t, pods), false},
	} {
		var objects []*inventory.Object
		var read []*inventory.Pod
		d := &listDecoder{isPods: test.isPods, ofMetadata: keptOfMetadata(), ofPod: keptOfPod(), visit: func(m *metav1.ObjectMeta, p *inventory.Pod) {
			objects, read = append(objects, newConverter(r).object(m)), append(read, p)
		}}
		next, err := d.decode(bytes.NewReader(test.text))
		if err != nil || next != "next" || len(objects) != 1 {
			t.Errorf("%s: %v, then %q, %d objects", test.what, err, next, len(objects))
			continue
		}
		if diff := cmp.Diff(want, objects[0]); diff != "" {
			t.Errorf("%s: %s", test.what, diff)
		}
		if diff := cmp.Diff(wantPod, read[0]); test.isPods && diff != "" || !test.isPods && read[0] != nil {
			t.Errorf("%s: %s", test.what, diff)
		}
		var asked string
		d.isWanted = func(namespace string, owners iter.Seq[string]) bool {
			asked = fmt.Sprint(namespace, " ", slices.Collect(owners))
			return false
		}
		if _, err := d.decode(bytes.NewReader(test.text)); err != nil || len(objects) != 1 || asked != wantAsked {
			t.Errorf("%s: %v, %d objects although the only one is not wanted; asked about %q, want %q", test.what, err, len(objects)-1, asked, wantAsked)
		}
		if _, err := d.decode(bytes.NewReader(test.text[:len(test.text)/2])); err == nil {
			t.Errorf("%s: half of it is taken for the whole", test.what)
		}
	}
}

// Requests over a network allow compression.
func TestRequestsOverANetworkAllowCompression(t *testing.T) {
	for host, want := range map[string]bool{
		"https://127.0.0.1:6443": true, "https://[::1]:6443": true, "localhost:8080": true,
		"https://10.0.0.1:6443": false, "https://api.example.com": false, "https://localhost.example.com": false, "://": false,
	} {
		if got := isLocal(&rest.Config{Host: host}); got != want {
			t.Errorf("%s: %v", host, got)
		}
	}
}
