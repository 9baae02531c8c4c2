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
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
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
	if !isPanic(err) || !strings.Contains(err.Error(), "TestPanicAboutOneObject") {
		t.Errorf("%v, want the panic with its stack", err)
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
	if n := strings.Count(logged.String(), "\n"); n != 4 || !strings.Contains(logged.String(), "controller=test") || !strings.Contains(logged.String(), "not comparable") {
		t.Errorf("%d lines, want 4:\n%s", n, logged.String())
	}
}
