package reader

import (
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/coppice-dev/coppice/internal/rules/inuse"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
)

// A deletion also concerns the claims of volumes, and the objects in deletion that name a class, each read once.
func TestSelectionHasUsersByField(t *testing.T) {
	volume := func(name, claim string) *corev1.PersistentVolume {
		return &corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}, Spec: corev1.PersistentVolumeSpec{ClaimRef: &corev1.ObjectReference{UID: types.UID(claim)}},
		}
	}
	claim := func(name, class string, deleted *metav1.Time) *corev1.PersistentVolumeClaim {
		return &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(name), DeletionTimestamp: deleted, Finalizers: []string{inuse.PVCProtection}},
			Spec:       corev1.PersistentVolumeClaimSpec{VolumeAttributesClassName: &class},
		}
	}
	now := metav1.Now()
	objects := []runtime.Object{volume("kept", "other"), claim("leaving", "gold", &now), claim("active", "gold", nil), claim("silver", "silver", &now)}
	members := map[ownership.UID]ownership.Object{
		"gold":  {UID: "gold", Name: "gold", Kind: ownership.Kind{Group: "storage.k8s.io", Kind: "VolumeAttributesClass"}, Phase: ownership.Terminating, Finalizers: []string{inuse.VACProtection}},
		"kept":  {UID: "kept", Name: "kept", Kind: ownership.Kind{Kind: "PersistentVolume"}, Finalizers: []string{inuse.PVProtection}},
		"empty": {UID: "empty", Name: "empty", Kind: ownership.Kind{Kind: "PersistentVolume"}, Phase: ownership.Terminating, Finalizers: []string{inuse.PVProtection}},
	}
	for _, volumes := range []int{1, fewObjects + 1} {
		want := []ownership.UID{"leaving"}
		for i := range volumes {
			uid := ownership.UID("v" + strconv.Itoa(i))
			objects = append(objects, volume(string(uid), "claim-"+string(uid)))
			want = append(want, "claim-"+uid)
			members[uid] = ownership.Object{
				UID: uid, Name: string(uid), Kind: ownership.Kind{Kind: "PersistentVolume"}, Phase: ownership.Terminating, Finalizers: []string{inuse.PVProtection},
			}
		}
		n := &neighborhood{reader: &reader{kubernetes: fake.NewClientset(objects...)}, selection: &inventory.Selection{Members: members}}
		asked := map[ownership.UID]bool{}
		got, err := n.named(t.Context(), asked)
		slices.Sort(got)
		slices.Sort(want)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%d volumes: %v (-want +got)\n%s", volumes, err, diff)
		}
		if again, _ := n.named(t.Context(), asked); len(again) > 0 {
			t.Errorf("asked again: %v", again)
		}
		objects = objects[:4]
	}
}
