package namespaces

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/utils/clock"

	"github.com/coppice-dev/coppice/internal/collect/pace"
)

// latest is how long a DELETE may wait for its connection, and how long the server may give no answer before it. After a
// longer time, the server may have been put back to an earlier state.
const latest = 3 * time.Second

var (
	// errDoubted means that a request was not sent, because another one of the same sync got no answer before.
	errDoubted = errors.New("an earlier request got no answer")
	// errLate means that a request was not sent, because its connection came late.
	errLate = errors.New("the connection to the server came late: it may lead to a server that was restored from a backup")
	// errReplaced means that the answer to a request was not one of an API server, although its code is that of a success.
	errReplaced = errors.New("something in front of the API server has answered in its place: check the load balancer or the proxy")
)

// trust is what one sync may rely on: that the namespace is still the terminating one that it has read. A request without
// an answer ends that, since a backup in which the namespace is active may be restored during an outage (R4). So does a
// silence of the server.
type trust struct {
	name      string
	confirmed func(ctx context.Context) (silences int64, err error) // reads the namespace again
	clock     clock.PassiveClock
	contact   *contact      // nil: silences are not observed
	renewing  chan struct{} // has an element while renew reads the namespace

	lost     atomic.Bool
	silences atomic.Int64 // of the contact, when the namespace was read
}

// readNamespace reads a namespace. It returns the number of silences before the answer.
func readNamespace(ctx context.Context, client corev1client.NamespaceInterface, name string) (ns *corev1.Namespace, silences int64, err error) {
	var d delivery
	ns, err = client.Get(context.WithValue(ctx, deliveryKey{}, &d), name, metav1.GetOptions{})
	return ns, d.silences.Load(), err
}

// newTrust returns the trust of a sync that has read a namespace, after a number of silences.
func (c *Controller) newTrust(was *corev1.Namespace, silences int64) *trust {
	name := was.Name
	t := &trust{name: name, clock: c.clock, contact: c.contact, renewing: make(chan struct{}, 1)}
	t.silences.Store(silences)
	t.confirmed = func(ctx context.Context) (int64, error) {
		ns, silences, err := readNamespace(ctx, c.confirming, name)
		switch {
		case err != nil:
			return 0, fmt.Errorf("get namespace %s after a request without an answer: %w", name, err)
		case ns.UID != was.UID || !Pending(ns) || ns.Status.Phase != corev1.NamespaceTerminating:
			return 0, fmt.Errorf("namespace %s changed while a request got no answer: it is not emptied any more", name)
		}
		return silences, nil
	}
	return t
}

// note ends the trust if the server did not answer a request with a context of reading or conditional. It returns an error
// then, also if something in front of the server has answered that all is well. A request that has not left the client is no
// evidence: it waited for the rate limit until its end, or its condition did not hold.
func (t *trust) note(ctx context.Context, err error) (unanswered error) {
	if !deliveryOf(ctx).isUnanswered(err) {
		return nil
	}
	t.lost.Store(true)
	return cmp.Or(err, errReplaced)
}

// isLost reports whether a request got no answer since the namespace was read.
func (t *trust) isLost() bool { return t.lost.Load() }

// confirm reads the namespace again if the trust was lost.
func (t *trust) confirm(ctx context.Context) error {
	if !t.isLost() {
		return nil
	}
	silences, err := t.confirmed(ctx)
	if err != nil {
		return err
	}
	t.silences.Store(silences)
	t.lost.Store(false)
	return nil
}

// renew reads the namespace again if the server was silent since it was read. A request calls it when it leaves, with its
// context, after all waits in the client. If that fails, the trust is lost.
func (t *trust) renew(ctx context.Context) {
	select {
	case t.renewing <- struct{}{}:
		defer func() { <-t.renewing }()
	case <-ctx.Done():
		return
	}
	if t.isLost() || t.contact.lasts(t.silences.Load()) {
		return
	}
	silences, err := t.confirmed(pace.WithCondition(ctx, func() error { return nil })) // that of the request is not for the read
	switch {
	case err == nil:
		t.silences.Store(silences)
	case ctx.Err() == nil: // else the request has ended
		t.lost.Store(true)
	}
}

// reading returns a context for one read, or for several ones that end with the first error.
func (t *trust) reading(ctx context.Context) context.Context {
	return context.WithValue(ctx, deliveryKey{}, &delivery{isUnobserved: t.contact == nil})
}

// conditional returns a context for a write that is sent only soon after the server has answered and the write has begun to
// leave, and only while the trust is not lost.
func (t *trust) conditional(ctx context.Context) context.Context {
	d, began := &delivery{trust: t, isUnobserved: t.contact == nil}, t.clock.Now()
	d.began.Store(&began)
	return pace.WithCondition(context.WithValue(ctx, deliveryKey{}, d), func() error {
		switch {
		case t.isLost():
			return errDoubted
		case t.clock.Since(*d.began.Load()) > latest || !t.contact.lasts(t.silences.Load()):
			return errLate
		}
		return nil
	})
}
