package namespaces

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// NS-06: contents of known types are deleted; the namespace stays, with a condition that
// says why, until the group is back.
func TestR22_DiscoveryFailureHoldsTheEndOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFakeServer(t, everyType...)
		w.discovery = &Incomplete{Groups: map[schema.GroupVersion]error{{Group: "metrics.k8s.io", Version: "v1beta1"}: errors.New("down")}}
		w.create("shop", configMaps, "a")
		w.create("shop", roles, "r")
		w.terminating("shop")
		w.run()
		<-time.After(time.Minute)
		if len(w.existing(configMaps))+len(w.existing(roles)) > 0 {
			t.Error("contents of known types are left")
		}
		if w.namespace("shop") == nil || w.count("finalize") > 0 {
			t.Fatal("finalized without knowing all types")
		}
		want := "True: Discovery failed for some groups, 1 failing: unable to retrieve the complete list of server APIs: metrics.k8s.io/v1beta1: down"
		if got := w.condition("shop", "NamespaceDeletionDiscoveryFailure"); got != want {
			t.Errorf("condition %q, want %q", got, want)
		}
		w.mu.Lock()
		w.discovery = nil
		w.mu.Unlock()
		w.goneWithin("shop", 2*maxBackoff)
	})
}

// NS-22: a pod that hangs holds everything else back.
func TestR22_HangingPodHoldsTheRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFakeServer(t, everyType...)
		w.create("shop", pods, "a", "example.com/x")
		w.create("shop", configMaps, "b")
		w.terminating("shop")
		w.run()
		for range 60 { // a user updates the namespace all the time: that is no reason to look at its contents
			<-time.After(time.Second)
			w.touch("shop")
		}
		if len(w.existing(configMaps)) != 1 {
			t.Error("the ConfigMap went before the pod")
		}
		for kind, want := range map[corev1.NamespaceConditionType]string{
			"NamespaceContentRemaining":    "True: Some resources are remaining: pods. has 1 resource instances",
			"NamespaceFinalizersRemaining": "True: Some content in the namespace has finalizers remaining: example.com/x in 1 resource instances",
		} {
			if got := w.condition("shop", kind); got != want {
				t.Errorf("%s: %q, want %q", kind, got, want)
			}
		}
		if got := w.count("delete pods"); got != 1 {
			t.Errorf("the pod was deleted %d times, want once", got)
		}
		if syncs := w.count("get namespace"); syncs > 22 {
			t.Errorf("%d syncs in a minute in which nothing moved", syncs)
		}
		if writes := w.count("status namespace"); writes != 1 {
			t.Errorf("the same conditions were written %d times", writes)
		}
		w.release(pods)
		w.goneWithin("shop", maxBackoff+time.Second)
	})
}

// An object that hangs holds back only later stages and its namespace, not other types of
// its stage and not other namespaces.
func TestR22_HangingConfigMap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFakeServer(t, everyType...)
		w.create("shop", configMaps, "a", "example.com/x")
		w.create("shop", deployments, "d")
		w.create("shop", bindings, "rb")
		w.create("other", configMaps, "b")
		w.terminating("shop")
		w.terminating("other")
		w.run(func(c *Config) { c.Workers = 1 })
		w.goneWithin("other", 50*time.Millisecond)
		<-time.After(time.Minute)
		if len(w.existing(deployments)) != 0 || len(w.existing(bindings)) != 1 {
			t.Errorf("left: %d deployments and %d role bindings, want 0 and 1", len(w.existing(deployments)), len(w.existing(bindings)))
		}
		w.release(configMaps)
		w.goneWithin("shop", maxBackoff+time.Second)
	})
}

// A type that cannot be listed counts as present; one that is no longer served is dropped after the
// next discovery.
func TestR22_UnreadableTypeCountsAsPresent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFakeServer(t, everyType...)
		w.broken["list deployments"] = errors.New("conversion webhook")
		w.terminating("shop")
		w.run()
		<-time.After(time.Minute)
		want := "True: Failed to delete all resource types, 1 remaining: list deployments.apps: conversion webhook"
		if got := w.condition("shop", "NamespaceDeletionContentFailure"); got != want {
			t.Errorf("condition %q, want %q", got, want)
		}
		before := w.count("discover")
		w.mu.Lock()
		w.broken["list deployments"] = apierrors.NewNotFound(deployments.GroupResource(), "")
		w.mu.Unlock()
		<-time.After(2 * maxBackoff)
		if w.namespace("shop") == nil {
			t.Fatal("a 404 was taken for an empty list")
		}
		if w.count("discover") == before {
			t.Error("no discovery after a 404")
		}
		w.mu.Lock()
		w.types = slices.DeleteFunc(w.types, func(r Resource) bool { return r == deployments })
		w.mu.Unlock()
		w.goneWithin("shop", 3*maxBackoff)
	})
}

// A DELETE that is denied is reported and retried.
func TestR22_DeniedDeleteIsReportedAndRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFakeServer(t, everyType...)
		w.broken["delete configmaps a"] = errors.New("denied by a webhook")
		w.create("shop", configMaps, "a")
		w.terminating("shop")
		w.run()
		<-time.After(time.Minute)
		want := "True: Failed to delete all resource types, 1 remaining: delete configmaps a: denied by a webhook"
		if got := w.condition("shop", "NamespaceDeletionContentFailure"); got != want {
			t.Errorf("condition %q, want %q", got, want)
		}
		if tries := w.count("delete configmaps"); tries < 10 || tries > 25 {
			t.Errorf("tried %d times in a minute", tries)
		}
		w.mu.Lock()
		delete(w.broken, "delete configmaps a")
		w.mu.Unlock()
		w.goneWithin("shop", 2*maxBackoff)
	})
}

// NS-02: a namespace that another finalizer keeps is left alone, with correct conditions.
func TestR22_ForeignFinalizersStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFakeServer(t, everyType...)
		w.terminating("shop", func(ns *corev1.Namespace) {
			ns.Spec.Finalizers = []corev1.FinalizerName{"example.com/a", "kubernetes"}
		})
		w.run()
		<-time.After(time.Minute)
		if diff := cmp.Diff([]corev1.FinalizerName{"example.com/a"}, w.namespace("shop").Spec.Finalizers); diff != "" {
			t.Errorf("spec.finalizers (-want +got):\n%s", diff)
		}
		if got := w.condition("shop", "NamespaceContentRemaining"); got != "False: All content successfully removed" {
			t.Errorf("condition %q", got)
		}
		if got := w.count("finalize"); got != 1 || w.count("get namespace") > 2 {
			t.Errorf("requests: %v", w.tally())
		}
	})
}

// Progress resets the back-off.
func TestR22_ProgressEndsTheBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFakeServer(t, everyType...)
		w.create("shop", configMaps, "a", "example.com/x")
		w.create("shop", deployments, "d", "example.com/x")
		w.terminating("shop")
		w.run()
		<-time.After(time.Minute)
		w.release(configMaps)
		for w.condition("shop", "NamespaceContentRemaining") != "True: Some resources are remaining: deployments.apps has 1 resource instances" {
			<-time.After(time.Millisecond)
		}
		w.release(deployments)
		if took := w.goneWithin("shop", maxBackoff); took > 100*time.Millisecond {
			t.Errorf("took %v after the progress", took)
		}
	})
}

// A change brings forward the sync of a namespace that is in back-off, and of no other.
func TestR22_ChangedWakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFakeServer(t, everyType...)
		w.create("shop", pods, "a", "example.com/x")
		w.terminating("shop")
		c := w.run()
		<-time.After(time.Minute + 100*time.Millisecond)
		w.release(pods)
		for range 1000 {
			c.Changed("shop")
			c.Changed("active")
		}
		before := w.count("get namespace")
		if took := w.goneWithin("shop", maxBackoff); took > 2*minBackoff {
			t.Errorf("took %v after the change", took)
		}
		if syncs := w.count("get namespace") - before; syncs > 2 {
			t.Errorf("%d syncs for one burst of changes", syncs)
		}
	})
}

// Very many objects that hang must not hide those behind them, and each is deleted once.
func TestR22_ManyHangingObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFakeServer(t, everyType...)
		const n = 4*pageSize + 10
		for i := range n {
			w.create("shop", configMaps, fmt.Sprintf("c%d", i), "example.com/x")
		}
		w.terminating("shop")
		w.run()
		<-time.After(10 * time.Second)
		if deleting := slices.IndexFunc(w.existing(configMaps), func(o metav1.PartialObjectMetadata) bool { return o.DeletionTimestamp == nil }); deleting >= 0 {
			t.Errorf("object %d was never deleted", deleting)
		}
		want := fmt.Sprintf("True: Some resources are remaining: configmaps. has %d resource instances", n)
		if got := w.condition("shop", "NamespaceContentRemaining"); got != want {
			t.Errorf("condition %q, want %q", got, want)
		}
		w.release(configMaps)
		w.goneWithin("shop", maxBackoff+time.Second)
	})
}

// A webhook that refuses every deletion takes one line of the log in a minute for each kind of contents, however many
// objects and tries there are.
func TestRefusedContentsTakeFewLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFakeServer(t, everyType...)
		for i := range 300 {
			w.create("shop", configMaps, fmt.Sprint("c-", i))
		}
		w.before = func(request string) {
			w.mu.Lock()
			defer w.mu.Unlock()
			if strings.HasPrefix(request, "delete") {
				w.broken[request] = apierrors.NewInternalError(errors.New("failed calling webhook"))
			}
		}
		w.terminating("shop")
		var logged strings.Builder
		w.run(func(c *Config) { c.Logger = slog.New(slog.NewTextHandler(&logged, nil)) })
		time.Sleep(time.Minute - time.Second)
		synctest.Wait()
		tries := w.count("deletecollection configmaps") + w.count("delete configmaps")
		if lines := strings.Count(logged.String(), "level=WARN"); lines != 1 || tries < 10 {
			t.Errorf("%d lines, want 1, for %d tries:\n%s", lines, tries, logged.String())
		}
	})
}
