package system

import (
	"context"
	"runtime"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Resets keep nothing of what they end: neither the handlers and caches of a definition, nor a namespace that goes. One
// definition takes a few hundred kilobytes while it is served.
func TestResetsKeepNoMemory(t *testing.T) {
	const (
		first  = 20 // what the first ones make, such as pools and caches, stays
		more   = 60
		growth = 6 << 20 // bytes
	)
	o := ephemeral(t)
	runWithPlane(t, o, func(ctx context.Context, p Plane) error {
		c, err := newResetClients(t, p)
		if err != nil {
			return err
		}
		cycle := func() {
			c.define(ctx)
			if _, err := c.kube.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}, metav1.CreateOptions{}); err != nil {
				t.Error(err)
			}
			if err := c.kube.CoreV1().Namespaces().Delete(ctx, "shop", metav1.DeleteOptions{}); err != nil {
				t.Error(err)
			}
			c.reset(ctx)
		}
		for range first {
			cycle()
		}
		heap, goroutines := liveHeap()
		for range more {
			cycle()
		}
		var heapAfter uint64
		var goroutinesAfter int
		// On a busy machine, goroutines of the last resets are still ending.
		err = becomesTrue(ctx, "resets keep nothing", func(context.Context) (bool, error) {
			heapAfter, goroutinesAfter = liveHeap()
			return heapAfter <= heap+growth && goroutinesAfter < goroutines+more, nil
		})
		t.Logf("after %d more resets: heap %d kB, before %d kB; %d goroutines, before %d", more, heapAfter>>10, heap>>10, goroutinesAfter, goroutines)
		return err
	})
}

// liveHeap returns the bytes of live objects and the number of goroutines.
func liveHeap() (heap uint64, goroutines int) {
	runtime.GC()
	runtime.GC() // finalizers have run
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc, runtime.NumGoroutine()
}
