package controller

import (
	"errors"
	"fmt"
	"net/http"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	webhookerrors "k8s.io/apiserver/pkg/admission/plugin/webhook/errors"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"
)

func newPodControl(objects ...runtime.Object) (*PodControl, *fake.Clientset) {
	client, cache := fake.NewClientset(objects...), fakeCache("10")
	return &PodControl{Client: client, Expectations: NewExpectations(&cache), Events: record.NewFakeRecorder(100)}, client
}

func newOwner() (Owner, *appsv1.ReplicaSet) {
	set := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web", UID: "owner"}}
	return Owner{Object: set, Kind: appsv1.SchemeGroupVersion.WithKind("ReplicaSet")}, set
}

func newPod(version string, change ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web-1", UID: "pod", ResourceVersion: version}}
	for _, c := range change {
		c(pod)
	}
	return pod
}

// refuse makes the first requests fail, as if the server were unreachable or had revoked the
// permission. It returns a counter of these failures.
func refuse(client *fake.Clientset, verb string, times int, refusal error) *int {
	refused := 0
	client.PrependReactor(verb, "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		if refused == times {
			return false, nil, nil
		}
		refused++
		return true, nil, refusal
	})
	return &refused
}

// count returns how often a verb was requested.
func count(client *fake.Clientset, verb string) int {
	n := 0
	for _, action := range client.Actions() {
		if action.GetVerb() == verb {
			n++
		}
	}
	return n
}

// TestR25_DeletionThatIsNotAnswered: the pod is read until the server responds, and nothing else
// is deleted before. A pod that is gone, terminating or replaced counts as leaving; an unchanged
// pod does not, and is deleted again.
func TestR25_DeletionThatIsNotAnswered(t *testing.T) {
	now := metav1.Now()
	reset := errors.New("connection reset")
	for name, c := range map[string]struct {
		there   []runtime.Object
		fails   error
		leaving bool
	}{
		"it is gone":        {nil, reset, true},
		"it is terminating": {[]runtime.Object{newPod("11", func(p *corev1.Pod) { p.DeletionTimestamp, p.Finalizers = &now, []string{"x/y"} })}, reset, true},
		"it is another":     {[]runtime.Object{newPod("11", func(p *corev1.Pod) { p.UID = "another" })}, reset, true},
		"it is there":       {[]runtime.Object{newPod("9")}, reset, false},
		"a timeout":         {nil, apierrors.NewTimeoutError("late", 1), true},
	} {
		for kind, refusal := range map[string]error{
			"unreachable": errors.New("connection refused"), "forbidden": apierrors.NewForbidden(corev1.Resource("pods"), "", nil),
		} {
			t.Run(name+", "+kind, func(t *testing.T) {
				podControl, client := newPodControl(c.there...)
				client.PrependReactor("delete", "pods", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, c.fails })
				refused := refuse(client, "get", 2, refusal)
				owner, on := newOwner()
				for range 3 { // deleted and asked, asked, asked and told
					if err := podControl.Delete(t.Context(), owner, on, newPod("9")); err == nil {
						t.Error("it has not failed")
					}
				}
				if n := count(client, "delete"); n != 1 || *refused != 2 {
					t.Errorf("%d deletions were requested, and %d questions refused", n, *refused)
				}
				pending := podControl.Expectations.PendingDeletions(owner.GetUID(), map[types.UID]bool{"pod": false})
				if pending["pod"] != c.leaving {
					t.Errorf("pending: %v", pending)
				}
				if !podControl.Expectations.unknown(owner.GetUID()).none() {
					t.Error("the outcome still counts as unknown")
				}
			})
		}
	}
}

// TestR25_DecisionWithoutTheOutcome: a decision that began while an outcome was unknown was made
// without it. None of its requests is sent, not even those that come after the outcome is known.
func TestR25_DecisionWithoutTheOutcome(t *testing.T) {
	podControl, client := newPodControl()
	client.PrependReactor("create", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("connection reset")
	})
	refuse(client, "list", 1, errors.New("connection refused"))
	owner, on := newOwner()
	e := podControl.Expectations
	if !e.Satisfied(owner.GetUID()) || podControl.Create(t.Context(), owner, on, newPod("")) == nil {
		t.Fatal("the first creation has not failed")
	}
	if !e.Satisfied(owner.GetUID()) {
		t.Fatal("nothing was written that the cache could be behind of")
	}
	for range 3 {
		if err := podControl.Create(t.Context(), owner, on, newPod("")); !apierrors.IsConflict(err) {
			t.Errorf("the second decision: %v, want a conflict", err)
		}
	}
	if n := count(client, "create"); n != 1 {
		t.Errorf("%d creations were requested, want the first one only", n)
	}
	if !e.Satisfied(owner.GetUID()) || e.isStale(owner.GetUID()) || len(e.owners) > 0 {
		t.Error("the third decision does not begin afresh")
	}
}

// TestR25_DeletionThatIsRefused: after a definite response, no further request is needed.
func TestR25_DeletionThatIsRefused(t *testing.T) {
	for name, refusal := range map[string]error{
		"a refusal":  apierrors.NewForbidden(corev1.Resource("pods"), "web-1", nil),
		"a conflict": apierrors.NewConflict(corev1.Resource("pods"), "web-1", errors.New("changed")),
	} {
		t.Run(name, func(t *testing.T) {
			podControl, client := newPodControl(newPod("9"))
			client.PrependReactor("delete", "pods", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, refusal })
			owner, on := newOwner()
			if err := podControl.Delete(t.Context(), owner, on, newPod("9")); err == nil {
				t.Error("it has not failed")
			}
			if pending := podControl.Expectations.PendingDeletions(owner.GetUID(), map[types.UID]bool{"pod": false}); len(pending) > 0 {
				t.Errorf("pending: %v", pending)
			}
			if len(client.Actions()) != 1 {
				t.Errorf("requests: %v", client.Actions())
			}
		})
	}
}

// TestR25_CreationThatIsNotAnswered: the owner waits for its existing pods whose versions the
// cache has not reached, and nothing is created before they are known.
func TestR25_CreationThatIsNotAnswered(t *testing.T) {
	owner, on := newOwner()
	controlled := func(p *corev1.Pod) { p.OwnerReferences = []metav1.OwnerReference{*owner.Reference()} }
	reset := errors.New("connection reset")
	for name, c := range map[string]struct {
		there     []runtime.Object
		fails     error
		refused   int
		creations int // of three calls
		satisfied bool
	}{
		"it was created":      {[]runtime.Object{newPod("11", controlled)}, reset, 0, 3, false},
		"it is not known yet": {[]runtime.Object{newPod("11", controlled)}, reset, 2, 1, false},
		"it was not":          {nil, reset, 0, 3, true},
		"an earlier one":      {[]runtime.Object{newPod("9", controlled)}, reset, 0, 3, true},
		"another owner's":     {[]runtime.Object{newPod("11")}, reset, 0, 3, true},
		"an internal error":   {[]runtime.Object{newPod("11", controlled)}, apierrors.NewInternalError(errors.New("late")), 0, 3, false},
		"a refusal":           {[]runtime.Object{newPod("11", controlled)}, apierrors.NewForbidden(corev1.Resource("pods"), "web-1", nil), 0, 3, true},
		"there is one by now": {[]runtime.Object{newPod("11", controlled)}, apierrors.NewAlreadyExists(corev1.Resource("pods"), "web-1"), 0, 3, true},
	} {
		t.Run(name, func(t *testing.T) {
			podControl, client := newPodControl(c.there...)
			client.PrependReactor("create", "pods", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, c.fails })
			refuse(client, "list", c.refused, apierrors.NewForbidden(corev1.Resource("pods"), "", nil))
			for range 3 {
				if err := podControl.Create(t.Context(), owner, on, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns"}}); err == nil {
					t.Error("it has not failed")
				}
			}
			if got := podControl.Expectations.Satisfied(owner.GetUID()); got != c.satisfied {
				t.Errorf("satisfied: %t", got)
			}
			if n := count(client, "create"); n != c.creations {
				t.Errorf("%d creations were requested, want %d", n, c.creations)
			}
		})
	}
}

// TestR25_CreationsAtOnce: a list that began before another creation failed does not show the
// outcome of that creation.
func TestR25_CreationsAtOnce(t *testing.T) {
	cache := fakeCache("10")
	e := NewExpectations(&cache)
	e.creationUnknown("owner")
	asked := e.unknown("owner").creations
	e.creationUnknown("owner")
	if e.creationsKnown("owner", asked); e.unknown("owner").none() {
		t.Error("the second creation counts as known")
	}
	if e.creationsKnown("owner", 2); !e.unknown("owner").none() || len(e.owners) > 0 {
		t.Error("both creations are known, and count as unknown")
	}
}

// TestR25_WhatWasDone: successful requests are expected, and need no further request.
func TestR25_WhatWasDone(t *testing.T) {
	podControl, client := newPodControl(newPod("9"))
	client.PrependReactor("create", "pods", func(clienttesting.Action) (bool, runtime.Object, error) { return true, newPod("11"), nil })
	owner, on := newOwner()
	if err := podControl.Create(t.Context(), owner, on, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns"}}); err != nil || podControl.Expectations.Satisfied("owner") {
		t.Errorf("satisfied %t, %v", podControl.Expectations.Satisfied("owner"), err)
	}
	if err := podControl.Delete(t.Context(), owner, on, newPod("9")); err != nil || !podControl.Expectations.PendingDeletions("owner", map[types.UID]bool{"pod": false})["pod"] {
		t.Errorf("it does not count as leaving, %v", err)
	}
	if len(client.Actions()) != 2 {
		t.Errorf("requests: %v", client.Actions())
	}
}

// denial is the answer of an API server to a request that a webhook denies. The webhook may choose a code.
func denial(code int32) error {
	return webhookerrors.ToStatusErr("keep.example.com", &metav1.Status{Code: code, Message: "it is kept"})
}

// A pod whose deletion a webhook denies is there, and stays, whatever code the webhook chooses.
func TestDeniedDeletion(t *testing.T) {
	codes := []int32{0, http.StatusForbidden, http.StatusNotFound, http.StatusConflict, http.StatusInternalServerError, http.StatusGatewayTimeout}
	for _, code := range codes {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			p, client := newPodControl(newPod("9"))
			events := record.NewFakeRecorder(1)
			p.Events = events
			refuse(client, "delete", 1, denial(code))
			owner, set := newOwner()
			err := p.Delete(t.Context(), owner, set, newPod("9"))
			if !IsRefusal(err) || isStaleCache(err) || len(events.Events) != 1 {
				t.Errorf("%v, with %d events", err, len(events.Events))
			}
			if IgnoreNotFound(err) == nil || IsNotFound(err) || IsConflict(err) || IsAlreadyExists(err) {
				t.Errorf("%v counts as the answer of the server about the object", err)
			}
		})
	}
}

// A webhook may also choose a reason.
func TestDeniedByReason(t *testing.T) {
	for _, reason := range []metav1.StatusReason{metav1.StatusReasonInternalError, metav1.StatusReasonTimeout, metav1.StatusReasonServerTimeout} {
		err := webhookerrors.ToStatusErr("keep.example.com", &metav1.Status{Code: http.StatusForbidden, Reason: reason, Message: "it is kept"})
		if !IsRefusal(err) || isUnanswered(err) {
			t.Errorf("%s: refusal %t, unanswered %t", reason, IsRefusal(err), isUnanswered(err))
		}
	}
}

// A webhook that denies a creation may choose the cause of a namespace that is being deleted: the creation is repeated.
func TestDeniedLikeANamespaceThatIsBeingDeleted(t *testing.T) {
	causes := &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}}
	server := apierrors.NewForbidden(corev1.Resource("pods"), "web-1", errors.New("unable to create new content in namespace ns because it is being terminated"))
	server.ErrStatus.Details.Causes = causes.Causes
	for name, test := range map[string]struct {
		answer error
		want   bool
	}{
		"the server": {server, true},
		"a webhook":  {webhookerrors.ToStatusErr("keep.example.com", &metav1.Status{Code: http.StatusForbidden, Message: "no", Details: causes}), false},
	} {
		p, client := newPodControl()
		events := record.NewFakeRecorder(1)
		p.Events = events
		refuse(client, "create", 1, test.answer)
		owner, set := newOwner()
		err := p.Create(t.Context(), owner, set, newPod(""))
		if isIgnored := IgnoreNamespaceTerminating(err) == nil; isIgnored != test.want || (len(events.Events) == 0) != test.want {
			t.Errorf("%s: %v is ignored: %t, with %d events", name, err, isIgnored, len(events.Events))
		}
	}
}

// A webhook may choose the reason of another answer of the server.
func TestDeniedCreation(t *testing.T) {
	p, client := newPodControl()
	events := record.NewFakeRecorder(1)
	p.Events = events
	refuse(client, "create", 1, webhookerrors.ToStatusErr("keep.example.com", &metav1.Status{Code: http.StatusConflict, Reason: metav1.StatusReasonAlreadyExists}))
	owner, set := newOwner()
	if err := p.Create(t.Context(), owner, set, newPod("")); !IsRefusal(err) || IsAlreadyExists(err) || len(events.Events) != 1 {
		t.Errorf("%v, with %d events", err, len(events.Events))
	}
}

// A dry run of a deletion says whether the server refuses it. Nothing is known if a webhook supports no dry run.
func TestDryRunOfADeletion(t *testing.T) {
	protected := apierrors.NewForbidden(corev1.Resource("pods"), "web-1", nil)
	for name, c := range map[string]struct {
		answer, want error
		events       int
	}{
		"accepted":                {nil, nil, 0},
		"gone":                    {apierrors.NewNotFound(corev1.Resource("pods"), "web-1"), nil, 0},
		"changed":                 {apierrors.NewConflict(corev1.Resource("pods"), "web-1", nil), apierrors.NewConflict(corev1.Resource("pods"), "web-1", nil), 0},
		"refused":                 {protected, protected, 1},
		"dry runs do not work":    {apierrors.NewBadRequest("admission webhook does not support dry run"), nil, 0},
		"the server is not there": {errors.New("connection refused"), errors.New("connection refused"), 1},
		"denied":                  {denial(0), denial(0), 1},
		"denied like one gone":    {denial(http.StatusNotFound), denial(http.StatusNotFound), 1},
		"denied like one changed": {denial(http.StatusConflict), denial(http.StatusConflict), 1},
	} {
		t.Run(name, func(t *testing.T) {
			p, client := newPodControl()
			events := record.NewFakeRecorder(1)
			p.Events = events
			client.PrependReactor("delete", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
				options := action.(clienttesting.DeleteActionImpl).DeleteOptions
				if len(options.DryRun) != 1 || *options.Preconditions.ResourceVersion != "9" || *options.Preconditions.UID != "pod" {
					t.Errorf("%+v", options)
				}
				return true, nil, c.answer
			})
			owner, set := newOwner()
			err := p.CheckDeletion(t.Context(), set, newPod("9"))
			if (err == nil) != (c.want == nil) || err != nil && errors.Unwrap(err).Error() != c.want.Error() || len(events.Events) != c.events {
				t.Errorf("%v, with %d events", err, len(events.Events))
			}
			if p.Expectations.isStale(owner.GetUID()) {
				t.Error("a dry run has an outcome that is unknown")
			}
		})
	}
}
