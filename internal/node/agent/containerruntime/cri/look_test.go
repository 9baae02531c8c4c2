package cri

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/coppice-dev/coppice/internal/node/agent/lifecycle"
)

// corrupt is a runtime that cannot describe the containers with some IDs.
type corrupt struct {
	*fake

	mu      sync.Mutex
	answers map[string]func(context.Context) error // guarded by mu; by ID
	asked   atomic.Int32                           // requests for the status of such a container
}

// ContainerStatus implements internalapi.ContainerManager.
func (c *corrupt) ContainerStatus(ctx context.Context, id string, verbose bool) (*runtimeapi.ContainerStatusResponse, error) {
	c.mu.Lock()
	answer := c.answers[id]
	if answer != nil {
		c.asked.Add(1)
	}
	c.mu.Unlock()
	if answer != nil {
		return nil, answer(ctx)
	}
	return c.fake.ContainerStatus(ctx, id, verbose)
}

func (c *corrupt) set(id string, answer func(context.Context) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answers = map[string]func(context.Context) error{}
	if answer != nil {
		c.answers[id] = answer
	}
}

// exit ends a container on its own.
func (c *corrupt) exit(t *testing.T, id string) {
	t.Helper()
	if err := c.FakeRuntimeService.StopContainer(t.Context(), bare(id), 0); err != nil {
		t.Fatal(err)
	}
}

// twoPods starts two pods, and returns the IDs of their containers.
func twoPods(t *testing.T, f *fake, dir string) (ids map[types.UID]string) {
	t.Helper()
	r := f.open(t, dir)
	ids = map[types.UID]string{}
	for _, uid := range []types.UID{"u-1", "u-2"} {
		pod := aPod()
		pod.UID, pod.Name = uid, string(uid)
		mustDo(t, r, pod, lifecycle.CreateSandbox{})
		mustDo(t, r, pod, lifecycle.Start{Container: "c"})
		ids[uid] = r.Observe(uid).Instances[0].ID
	}
	return ids
}

// TestPodThatCannotBeDescribed checks that a pod that the runtime cannot describe keeps neither the agent from starting
// nor other pods from being observed. It is unknown, and known as soon as the runtime describes it.
func TestPodThatCannotBeDescribed(t *testing.T) {
	f, dir := &corrupt{fake: newFake()}, t.TempDir()
	ids := twoPods(t, f.fake, dir)
	f.set(bare(ids["u-1"]), func(context.Context) error { return errors.New("corrupt") })
	var log strings.Builder
	r, err := open(t.Context(), Config{Dir: dir, Logger: slog.New(slog.NewTextHandler(&log, nil))}, services{f, f.images})
	if err != nil {
		t.Fatal(err)
	}
	if !r.Observe("u-1").Unknown || len(r.Observe("u-2").Instances) != 1 || !slices.Contains(r.cache.known(), "u-1") {
		t.Errorf("%+v, %+v", r.Observe("u-1"), r.Observe("u-2"))
	}
	for range 5 {
		f.exit(t, ids["u-2"])
		if _, err := r.look(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if r.Observe("u-2").Instances[0].Alive() {
		t.Error("the end of another pod's container was not observed")
	}
	if n := strings.Count(log.String(), "pod not described"); n != 1 {
		t.Errorf("%d lines:\n%s", n, log.String())
	}
	f.set("", nil)
	if changed, err := r.look(t.Context()); err != nil || !slices.Equal(changed, []types.UID{"u-1"}) {
		t.Errorf("changed %v, %v", changed, err)
	}
	if got := r.Observe("u-1"); got.Unknown || len(got.Instances) != 1 {
		t.Errorf("%+v", got)
	}
	f.set(bare(ids["u-1"]), func(context.Context) error { return errors.New("corrupt") })
	if err := r.refresh(t.Context(), "u-1"); err == nil || r.Observe("u-1").Unknown {
		t.Errorf("%v: what was known is lost", err)
	}
}

// TestUnknownPodThatIsGone checks that a pod that was never described, and is not listed any more, is no longer unknown.
func TestUnknownPodThatIsGone(t *testing.T) {
	f, dir := &corrupt{fake: newFake()}, t.TempDir()
	ids := twoPods(t, f.fake, dir)
	f.set(bare(ids["u-1"]), func(context.Context) error { return errors.New("corrupt") })
	r, err := open(t.Context(), Config{Dir: dir, Logger: slog.New(slog.DiscardHandler)}, services{f, f.images})
	if err != nil {
		t.Fatal(err)
	}
	listings, err := r.listings(t.Context(), "u-1")
	if err != nil {
		t.Fatal(err)
	}
	if err := r.removeSandboxes(t.Context(), listings["u-1"]); err != nil {
		t.Fatal(err)
	}
	if changed, err := r.look(t.Context()); err != nil || !slices.Contains(changed, "u-1") || r.Observe("u-1").Unknown {
		t.Errorf("changed %v, %v: %+v", changed, err, r.Observe("u-1"))
	}
}

// TestStatusThatHangs checks that a status that the runtime does not return holds up neither the start of an agent nor
// a look for long, and that it is asked for once at a time.
func TestStatusThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, dir := &corrupt{fake: newFake()}, t.TempDir()
		ids := twoPods(t, f.fake, dir)
		f.set(bare(ids["u-1"]), func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		})
		began := time.Now()
		r, err := open(t.Context(), Config{Dir: dir, Logger: slog.New(slog.DiscardHandler)}, services{f, f.images})
		if took := time.Since(began); err != nil || took != describeWithin {
			t.Fatalf("after %s: %v", took, err)
		}
		ctx, stop := context.WithCancel(t.Context())
		f.exit(t, ids["u-2"])
		began = time.Now()
		changed, err := r.look(ctx)
		if took := time.Since(began); err != nil || took != lookWithin || !slices.Equal(changed, []types.UID{"u-2"}) {
			t.Errorf("after %s: changed %v, %v", took, changed, err)
		}
		if changed, err := r.look(ctx); err != nil || len(changed) != 0 || f.asked.Load() != 2 {
			t.Errorf("changed %v, %v after %d requests", changed, err, f.asked.Load())
		}
		f.set("", nil)
		time.Sleep(describeWithin)
		if changed, err := r.look(ctx); err != nil || !slices.Equal(changed, []types.UID{"u-1"}) {
			t.Errorf("when it answers: changed %v, %v", changed, err)
		}
		stop()
		r.steps.Wait()
	})
}
