package protected

import (
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	testclock "k8s.io/utils/clock/testing"
)

// R32: all replicas of the webhook know for a day what was permitted, also if they write at the same time.
func TestR32_PermitsAreShared(t *testing.T) {
	client, clock := fake.NewClientset(), testclock.NewFakeClock(time.Unix(1_800_000_000, 0))
	conflicts := 2
	client.PrependReactor("update", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
		conflicts--
		return conflicts >= 0, nil, apierrors.NewConflict(schema.GroupResource{Resource: "configmaps"}, permitsName, fmt.Errorf("changed"))
	})
	a, b := permitsInConfigMap{client.CoreV1().ConfigMaps("ns"), clock}, permitsInConfigMap{client.CoreV1().ConfigMaps("ns"), clock}
	is := func(uid types.UID, want bool) {
		t.Helper()
		if got, err := b.IsPermitted(t.Context(), uid); err != nil || got != want {
			t.Errorf("%s is permitted: %t, %v", uid, got, err)
		}
	}
	is("one", false)
	for _, uid := range []types.UID{"one", "two"} {
		if err := a.Permit(t.Context(), uid); err != nil {
			t.Fatal(err)
		}
	}
	is("one", true)
	is("two", true)
	is("three", false)
	clock.Step(permittedFor - time.Second)
	is("one", true)
	if err := a.Permit(t.Context(), "three"); err != nil {
		t.Fatal(err)
	}
	clock.Step(2 * time.Second)
	is("one", false)
	is("three", true)
	if err := a.Permit(t.Context(), "four"); err != nil {
		t.Fatal(err)
	}
	all, err := client.CoreV1().ConfigMaps("ns").Get(t.Context(), permitsName, metav1.GetOptions{})
	if err != nil || len(all.Data) != 2 {
		t.Errorf("kept are %v, %v", all.Data, err)
	}
}

// R32: the number of permits is bounded; the oldest go first.
func TestR32_PermitsAreBounded(t *testing.T) {
	now, all := time.Unix(1_800_000_000, 0).UTC(), map[string]string{"no": "time"}
	for i := range mostPermits + 10 {
		all[fmt.Sprint(i)] = now.Add(-time.Duration(i) * time.Second).Format(time.RFC3339)
	}
	got := currentPermits(all, now)
	if len(got) != mostPermits-1 || got["0"] == "" || got[fmt.Sprint(mostPermits)] != "" || got["no"] != "" {
		t.Errorf("%d permits, the newest %q", len(got), got["0"])
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
