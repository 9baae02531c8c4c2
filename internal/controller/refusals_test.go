package controller

import (
	"errors"
	"maps"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// Refusals of pods and of owners that are gone are forgotten.
func TestRefusalsOfPresentPods(t *testing.T) {
	r, web, db := NewRefusals(), cache.ObjectName{Name: "web"}, cache.ObjectName{Name: "db"}
	for _, pod := range []types.UID{"a", "a", "b"} {
		r.Add(web, pod)
	}
	r.Add(db, "a")
	if got := r.Present(web, map[types.UID]bool{"a": false, "c": true}); !maps.Equal(got, map[types.UID]int{"a": 2}) {
		t.Errorf("%v", got)
	}
	if got := r.Present(web, map[types.UID]bool{"a": false, "b": false}); !maps.Equal(got, map[types.UID]int{"a": 2}) {
		t.Errorf("%v, want that b is forgotten", got)
	}
	if r.Present(web, nil); len(r.byOwner) != 1 {
		t.Errorf("without pods: %v", r.byOwner)
	}
	if r.Forget(db); len(r.byOwner) != 0 {
		t.Errorf("without owners: %v", r.byOwner)
	}
}

// An error that says nothing about the pod does not change the order in which pods are deleted.
func TestIsRefusal(t *testing.T) {
	pods := corev1.Resource("pods")
	for err, want := range map[error]bool{
		nil:                                    false,
		apierrors.NewForbidden(pods, "a", nil): true,
		apierrors.NewConflict(pods, "a", nil):  false,
		apierrors.NewInternalError(errors.New("no answer")): false,
		errors.New("connection reset"):                      false,
	} {
		if IsRefusal(err) != want {
			t.Errorf("%v: %t", err, !want)
		}
	}
}
