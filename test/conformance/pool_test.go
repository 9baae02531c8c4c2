package conformance

import (
	"context"
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	gc "github.com/coppice-dev/coppice/collector"
	"github.com/coppice-dev/coppice/internal/cli/conformance/probe"
	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

// TestPoolSleeps: an idle cluster of a pool sleeps, wakes when an owner is deleted, and sleeps again. The
// server's own writes, such as Leases, do not keep it awake.
func TestPoolSleeps(t *testing.T) {
	w := quiet(t)
	p := gc.NewPool(gc.PoolOptions{IdleAfter: time.Second, ProbeInterval: 200 * time.Millisecond})
	if err := p.Add("one", w.server.Config); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	for turn := range 3 {
		owner := w.Create(probe.ConfigMaps, fmt.Sprint("owner-", turn))
		dependent := w.Create(probe.Secrets, fmt.Sprint("dependent-", turn), probe.OwnedBy(probe.NotBlocking(owner)))
		eventually.Agrees(t, func() string {
			if s := p.Cluster("one").Status(); s.AsleepSince.IsZero() {
				return fmt.Sprintf("the cluster does not sleep: %+v", s)
			}
			return ""
		})
		if _, err := w.Delete(owner, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		w.EventuallyGone(owner, dependent)
	}
}
