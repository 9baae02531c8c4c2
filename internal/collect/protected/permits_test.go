package protected

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	testclock "k8s.io/utils/clock/testing"

	"github.com/coppice-dev/coppice/internal/rules/protection"
)

// R32: all replicas of the webhook know for a day which objects may go.
func TestR32_PermitsAreShared(t *testing.T) {
	clock := testclock.NewFakeClock(time.Unix(1_800_000_000, 0))
	client := fake.NewClientset()
	client.PrependReactor("create", "configmaps", func(a clienttesting.Action) (bool, runtime.Object, error) {
		created := a.(clienttesting.CreateAction).GetObject().(*corev1.ConfigMap)
		created.CreationTimestamp = metav1.NewTime(clock.Now())
		return false, nil, nil
	})
	shared := permitsInConfigMaps{client.CoreV1().ConfigMaps("ns"), clock}
	a, b := newPermitted(shared, clock.Now), newPermitted(shared, clock.Now)
	is := func(uid string, want bool) {
		t.Helper()
		for _, p := range []*permitted{a, b} {
			if got, err := p.has(t.Context(), uid); err != nil || got != want {
				t.Errorf("%s is permitted: %t, %v", uid, got, err)
			}
		}
	}
	add := func(root string, uids ...string) {
		t.Helper()
		for range 2 { // as one request does
			if err := a.add(t.Context(), root, uids); err != nil {
				t.Fatal(err)
			}
		}
	}
	is("one", false)
	add("root", "root", "one")
	add("other", "other", "two")
	for _, uid := range []string{"root", "one", "other", "two"} {
		is(uid, true)
	}
	is("three", false)
	clock.Step(PermittedFor - time.Second)
	is("one", true)
	add("root", "root", "one", "three") // that is another set
	clock.Step(2 * time.Second)
	is("two", false)
	is("three", true)
	add("last", "last")
	list, err := client.CoreV1().ConfigMaps("ns").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 2 {
		t.Errorf("%d permits are kept, %v", len(list.Items), err)
	}
}

// R32: a process holds a limited number of permits; it reads the others again.
func TestR32_PermitsAreBounded(t *testing.T) {
	p := newPermitted(nil, time.Now)
	for i := range mostNames + 10 {
		p.hold(fmt.Sprintf("%016x", i), protection.Permit{uint32(i)})
	}
	if len(p.held) != mostNames || p.size != mostNames || p.isHeld(fmt.Sprintf("%016x", 0)) || !p.isHeld(fmt.Sprintf("%016x", mostNames+9)) {
		t.Errorf("%d permits of %d objects are held", len(p.held), p.size)
	}
	p.hold("z", make(protection.Permit, mostHeld))
	if len(p.held) != 1 {
		t.Errorf("%d permits of %d objects are held", len(p.held), p.size)
	}
}

// R17, R32: which options spare the dependents.
func TestR32_WhatOrphans(t *testing.T) {
	policy := func(p metav1.DeletionPropagation) metav1.DeleteOptions {
		return metav1.DeleteOptions{PropagationPolicy: &p}
	}
	for name, test := range map[string]struct {
		finalizers []string
		options    metav1.DeleteOptions
		want       bool
	}{
		"nothing":           {nil, metav1.DeleteOptions{}, false},
		"policy":            {nil, policy(metav1.DeletePropagationOrphan), true},
		"other policy":      {[]string{"orphan"}, policy(metav1.DeletePropagationBackground), false},
		"old field":         {nil, metav1.DeleteOptions{OrphanDependents: new(true)}, true},
		"old field, no":     {[]string{"orphan"}, metav1.DeleteOptions{OrphanDependents: new(false)}, false},
		"finalizer":         {[]string{"orphan"}, metav1.DeleteOptions{}, true},
		"another finalizer": {[]string{"a/b"}, metav1.DeleteOptions{}, false},
	} {
		if got := orphans(&metav1.ObjectMeta{Finalizers: test.finalizers}, &test.options); got != test.want {
			t.Errorf("%s: orphans %t", name, got)
		}
	}
}
