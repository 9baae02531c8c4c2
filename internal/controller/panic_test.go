package controller

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
)

// A panic about one object is an error: the others are tried, and the process goes on.
func TestPanicAboutOneObject(t *testing.T) {
	all := make([]int, 100)
	for i := range all {
		all[i] = i
	}
	var tried atomic.Int32
	err := AttemptAll(all, func(one int) error {
		tried.Add(1)
		if one == 0 {
			panic("no such index")
		}
		return nil
	})
	if !isPanic(err) || !strings.Contains(err.Error(), "no such index") || tried.Load() != 100 {
		t.Errorf("%d tried, %v", tried.Load(), err)
	}
	if IsRefusal(err) {
		t.Error("it counts as a refusal of the server")
	}
	err = SlowStartBatch(t.Context(), 1, func(context.Context, int) error { panic("no such index") })
	if logged := fmt.Sprint(stackOf(fmt.Errorf("create: %w", err))...); !isPanic(err) || !strings.Contains(logged, "TestPanicAboutOneObject") {
		t.Errorf("%v, want the panic with its stack: %s", err, logged)
	}
	if strings.Contains(err.Error(), "TestPanicAboutOneObject") {
		t.Errorf("tenants read it in conditions: %v", err)
	}
	if attributes := stackOf(errors.New("no panic")); attributes != nil {
		t.Errorf("%v", attributes)
	}
	controller := &Controller{Reconcile: func(context.Context, cache.ObjectName) (time.Duration, error) { panic("no such index") }}
	if after, err := controller.reconcile(t.Context(), cache.ObjectName{}); after != 0 || !isPanic(err) {
		t.Errorf("reconcile again after %s, %v", after, err)
	}
}

// An object that a source cannot read enqueues nothing, and the next one does.
func TestPanicAboutAnEvent(t *testing.T) {
	var logged bytes.Buffer
	source := For(nil)
	keys := source.Keys
	source.Keys = func(obj any) []cache.ObjectName {
		if pod, ok := obj.(*corev1.Pod); ok && pod.Name == "bad" {
			panic(fmt.Sprint("no label of ", pod.Name))
		}
		return keys(obj)
	}
	source.Ignore = func(any, any) bool { panic(errors.New("not comparable")) }
	var enqueued []string
	handler := source.guarded(t.Context(), slog.New(slog.NewTextHandler(&logged, nil)), "test").handler(func(key cache.ObjectName) {
		enqueued = append(enqueued, key.Name)
	})
	bad, good := newPod("1"), newPod("1")
	bad.Name, good.Name = "bad", "good"
	handler.OnAdd(bad, false)
	handler.OnUpdate(good, bad)
	handler.OnDelete(cache.DeletedFinalStateUnknown{Obj: bad})
	handler.OnAdd(good, false)
	if got := strings.Join(enqueued, " "); got != "good good" {
		t.Errorf("enqueued %q", got)
	}
	if n := strings.Count(logged.String(), "\n"); n != 4 || strings.Count(logged.String(), " stack=") != 4 || !strings.Contains(logged.String(), "controller=test") || !strings.Contains(logged.String(), "not comparable") {
		t.Errorf("%d lines, want 4:\n%s", n, logged.String())
	}
}

// A handler that is no Source goes on after a panic.
func TestPanicOfAHandler(t *testing.T) {
	var logged bytes.Buffer
	var observed []string
	observe := func(what string, obj any) {
		if obj == nil {
			panic("no object is " + what)
		}
		observed = append(observed, what)
	}
	handler := GuardedHandler(t.Context(), slog.New(slog.NewTextHandler(&logged, nil)), "test", cache.ResourceEventHandlerDetailedFuncs{
		AddFunc:    func(obj any, isInInitialList bool) { observe(fmt.Sprint("added ", isInInitialList), obj) },
		UpdateFunc: func(_, now any) { observe("updated", now) },
		DeleteFunc: func(obj any) { observe("deleted", obj) },
	})
	for _, obj := range []any{nil, newPod("1")} {
		handler.OnAdd(obj, true)
		handler.OnUpdate(newPod("0"), obj)
		handler.OnDelete(obj)
	}
	if got := strings.Join(observed, ", "); got != "added true, updated, deleted" {
		t.Errorf("observed: %s", got)
	}
	if n := strings.Count(logged.String(), "\n"); n != 3 || strings.Count(logged.String(), "no object is") != 3 {
		t.Errorf("%d lines, want 3:\n%s", n, logged.String())
	}
}

// The log has the stack of a panic, which conditions and events do not have.
func TestPanicIsLoggedWithItsStack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var logged bytes.Buffer
		requests := make(chan Request)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		c := &Controller{Name: "test", Workers: 1, Requests: requests, Reconcile: func(context.Context, cache.ObjectName) (time.Duration, error) {
			panic("no such index")
		}}
		done := make(chan error)
		go func() { done <- c.Run(ctx, slog.New(slog.NewTextHandler(&logged, nil)), clock.RealClock{}) }()
		requests <- Request{Key: cache.NewObjectName("ns", "a")}
		synctest.Wait()
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if text := logged.String(); !strings.Contains(text, "no such index") || !strings.Contains(text, "TestPanicIsLoggedWithItsStack") {
			t.Error(text)
		}
	})
}
