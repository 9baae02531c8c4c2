package controller

import (
	"errors"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"
)

// seenTo is a cache that has come as far as that version.
type seenTo string

func (s seenTo) LastStoreSyncResourceVersion() string { return string(s) }

func handOf(objects ...runtime.Object) (*Hand, *fake.Clientset) {
	client := fake.NewClientset(objects...)
	return &Hand{Client: client, Ledger: NewLedger(seenTo("10")), Events: record.NewFakeRecorder(100)}, client
}

func anOwner() (Owner, *appsv1.ReplicaSet) {
	set := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web", UID: "owner"}}
	return Owner{Object: set, Kind: appsv1.SchemeGroupVersion.WithKind("ReplicaSet")}, set
}

func aPod(version string, change ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web-1", UID: "pod", ResourceVersion: version}}
	for _, c := range change {
		c(pod)
	}
	return pod
}

// TestR25DeletionThatIsNotAnswered: whether the pod is going is asked of the server, until
// it tells. One that is gone, terminating, or replaced counts as leaving; one that is there
// as before does not, and is asked to go again.
func TestR25DeletionThatIsNotAnswered(t *testing.T) {
	now := metav1.Now()
	for name, c := range map[string]struct {
		there   []runtime.Object
		fails   error
		leaving bool
	}{
		"it is gone":        {nil, errors.New("connection reset"), true},
		"it is terminating": {[]runtime.Object{aPod("11", func(p *corev1.Pod) { p.DeletionTimestamp, p.Finalizers = &now, []string{"x/y"} })}, errors.New("connection reset"), true},
		"it is another":     {[]runtime.Object{aPod("11", func(p *corev1.Pod) { p.UID = "another" })}, errors.New("connection reset"), true},
		"it is there":       {[]runtime.Object{aPod("9")}, errors.New("connection reset"), false},
		"a timeout":         {nil, apierrors.NewTimeoutError("late", 1), true},
		"a refusal":         {[]runtime.Object{aPod("9")}, apierrors.NewForbidden(corev1.Resource("pods"), "web-1", nil), false},
		"a conflict":        {[]runtime.Object{aPod("11")}, apierrors.NewConflict(corev1.Resource("pods"), "web-1", errors.New("changed")), false},
	} {
		t.Run(name, func(t *testing.T) {
			hand, client := handOf(c.there...)
			client.PrependReactor("delete", "pods", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, c.fails })
			asked := 0
			client.PrependReactor("get", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
				if asked++; asked < 3 {
					return true, nil, errors.New("connection refused")
				}
				return false, nil, nil
			})
			owner, on := anOwner()
			if err := hand.Delete(t.Context(), owner, on, aPod("9")); err == nil {
				t.Error("it has not failed")
			}
			leaving := hand.Ledger.Leaving(owner.GetUID(), map[types.UID]bool{"pod": false})
			if leaving["pod"] != c.leaving {
				t.Errorf("leaving: %v", leaving)
			}
			if status := apierrors.APIStatus(nil); asked > 0 && errors.As(c.fails, &status) && !apierrors.IsTimeout(c.fails) {
				t.Errorf("an answer that is clear is asked about %d times", asked)
			}
		})
	}
}

// TestR25CreationThatIsNotAnswered: the owner waits for the pods that there are, of its own
// and of a version that the cache has not come to.
func TestR25CreationThatIsNotAnswered(t *testing.T) {
	owner, on := anOwner()
	controlled := func(p *corev1.Pod) { p.OwnerReferences = []metav1.OwnerReference{*owner.Reference()} }
	for name, c := range map[string]struct {
		there  []runtime.Object
		fails  error
		behind bool
	}{
		"it was created":      {[]runtime.Object{aPod("11", controlled)}, errors.New("connection reset"), true},
		"it was not":          {nil, errors.New("connection reset"), false},
		"an earlier one":      {[]runtime.Object{aPod("9", controlled)}, errors.New("connection reset"), false},
		"somebody else's":     {[]runtime.Object{aPod("11")}, errors.New("connection reset"), false},
		"an internal error":   {[]runtime.Object{aPod("11", controlled)}, apierrors.NewInternalError(errors.New("late")), true},
		"a refusal":           {[]runtime.Object{aPod("11", controlled)}, apierrors.NewForbidden(corev1.Resource("pods"), "web-1", nil), false},
		"there is one by now": {[]runtime.Object{aPod("11", controlled)}, apierrors.NewAlreadyExists(corev1.Resource("pods"), "web-1"), false},
	} {
		t.Run(name, func(t *testing.T) {
			hand, client := handOf(c.there...)
			client.PrependReactor("create", "pods", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, c.fails })
			if err := hand.Create(t.Context(), owner, on, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns"}}); err == nil {
				t.Error("it has not failed")
			}
			if got := hand.Ledger.Behind(owner.GetUID()); got != c.behind {
				t.Errorf("behind: %t", got)
			}
		})
	}
}

// TestR25WhatWasDone is known to the ledger: an answer that is good needs no question.
func TestR25WhatWasDone(t *testing.T) {
	hand, client := handOf(aPod("9"))
	client.PrependReactor("create", "pods", func(clienttesting.Action) (bool, runtime.Object, error) { return true, aPod("11"), nil })
	owner, on := anOwner()
	if err := hand.Create(t.Context(), owner, on, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns"}}); err != nil || !hand.Ledger.Behind("owner") {
		t.Errorf("behind %t, %v", hand.Ledger.Behind("owner"), err)
	}
	if err := hand.Delete(t.Context(), owner, on, aPod("9")); err != nil || !hand.Ledger.Leaving("owner", map[types.UID]bool{"pod": false})["pod"] {
		t.Errorf("it does not count as leaving, %v", err)
	}
	if len(client.Actions()) != 2 {
		t.Errorf("requests: %v", client.Actions())
	}
}
