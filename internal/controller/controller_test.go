package controller

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// Nothing is kept about an owner that is gone, even if the watch missed its deletion.
func TestExpectationsOfOwnersThatAreGone(t *testing.T) {
	owner := &corev1.ReplicationController{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "web", UID: "1"}}
	for name, gone := range map[string]any{
		"seen":   owner,
		"missed": cache.DeletedFinalStateUnknown{Key: "team/web", Obj: owner},
	} {
		t.Run(name, func(t *testing.T) {
			expectations := NewExpectations(new(fakeCache))
			expectations.ExpectDeletion("1", "a")
			expectations.ExpectDeletion("2", "b")
			var keys []cache.ObjectName
			For(nil, expectations).handler(func(key cache.ObjectName) { keys = append(keys, key) }).OnDelete(gone)
			if len(expectations.owners) != 1 || expectations.owners["2"] == nil {
				t.Errorf("%v, want what is about the other owner", expectations.owners)
			}
			if len(keys) != 1 || keys[0].String() != "team/web" {
				t.Errorf("%v, want that the owner is reconciled", keys)
			}
		})
	}
}

func TestMatchingOwners(t *testing.T) {
	sets := []*corev1.ReplicationController{
		{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: corev1.ReplicationControllerSpec{Selector: map[string]string{"app": "web"}}},
		{ObjectMeta: metav1.ObjectMeta{Name: "db"}, Spec: corev1.ReplicationControllerSpec{Selector: map[string]string{"app": "db"}}},
		{ObjectMeta: metav1.ObjectMeta{Name: "all"}},
		{ObjectMeta: metav1.ObjectMeta{Name: "unreadable"}, Spec: corev1.ReplicationControllerSpec{Selector: map[string]string{"app": "no label!"}}},
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}}}
	got := MatchingOwners(pod, sets, func(rc *corev1.ReplicationController) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: rc.Spec.Selector}
	})
	if len(got) != 1 || got[0].Name != "web" {
		t.Errorf("%v, want web alone", got)
	}
}
