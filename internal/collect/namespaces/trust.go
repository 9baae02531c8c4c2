package namespaces

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/coppice-dev/coppice/internal/collect/pace"
)

// latest is how long a DELETE may wait for its connection. A connection that takes longer may lead to a server that was
// put back to an earlier state.
const latest = 3 * time.Second

// errDoubted means that a request was not sent, because another one of the same sync got no answer before.
var errDoubted = errors.New("an earlier request got no answer")

// trust is what one sync may rely on: that the namespace is still the terminating one that it has read. A request without
// an answer ends that, since a backup in which the namespace is active may be restored during an outage (R4).
type trust struct {
	name      string
	confirmed func(ctx context.Context) error // reads the namespace again
	clock     clock.PassiveClock
	lost      atomic.Bool
}

// newTrust returns the trust of a sync that has just read a namespace.
func (c *Controller) newTrust(was *corev1.Namespace) *trust {
	name := was.Name
	return &trust{name: name, clock: c.clock, confirmed: func(ctx context.Context) error {
		ns, err := c.namespaces.Get(ctx, name, metav1.GetOptions{})
		switch {
		case err != nil:
			return fmt.Errorf("get namespace %s after a request without an answer: %w", name, err)
		case ns.UID != was.UID || !Pending(ns) || ns.Status.Phase != corev1.NamespaceTerminating:
			return fmt.Errorf("namespace %s changed while a request got no answer: it is not emptied any more", name)
		}
		return nil
	}}
}

// note ends the trust if an error means that a request got no answer.
func (t *trust) note(err error) {
	if isUnanswered(err) {
		t.lost.Store(true)
	}
}

// isLost reports whether a request got no answer since the namespace was read.
func (t *trust) isLost() bool { return t.lost.Load() }

// confirm reads the namespace again if the trust was lost.
func (t *trust) confirm(ctx context.Context) error {
	if !t.isLost() {
		return nil
	}
	if err := t.confirmed(ctx); err != nil {
		return err
	}
	t.lost.Store(false)
	return nil
}

// conditional returns a context for a write that is sent only soon, and only while the trust is not lost.
func (t *trust) conditional(ctx context.Context) context.Context {
	began := t.clock.Now()
	return pace.WithCondition(ctx, func() error {
		if t.isLost() || t.clock.Since(began) > latest {
			return errDoubted
		}
		return nil
	})
}

// isUnanswered reports whether a request got no answer, or one of a gateway in place of the server.
func isUnanswered(err error) bool {
	var status apierrors.APIStatus
	switch {
	case err == nil:
		return false
	case !errors.As(err, &status):
		return true
	}
	switch status.Status().Code {
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}
