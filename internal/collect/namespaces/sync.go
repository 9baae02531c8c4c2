package namespaces

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/internal/rules/refusal"
)

// sync makes as much progress with one namespace as is possible now, and returns the time until its
// next sync.
func (c *Controller) sync(ctx context.Context, name string) (after time.Duration, err error) {
	ns, silences, err := readNamespace(ctx, c.namespaces, name)
	if refusal.IsGone(err, name) {
		return never, nil
	}
	if err != nil {
		return 0, fmt.Errorf("get namespace %s: %w", name, err)
	}
	if !Pending(ns) {
		return never, nil
	}
	t, _ := c.termination(ns)
	if ns, err = c.markTerminating(ctx, ns); err != nil {
		return 0, err
	}
	began := c.clock.Now()
	survey := c.discover(ctx, t)
	trust := c.newTrust(ns, silences)
	step, err := c.sweep(ctx, t, survey, trust)
	if err != nil {
		return 0, err
	}
	switch step := step.(type) {
	case Wait:
		return c.wait(ctx, ns, t, survey, step)
	case Finalize:
		if wait := c.settle - began.Sub(t.since); wait > 0 {
			return wait, nil
		}
		return never, c.finalize(trust.conditional(ctx), ns, survey)
	case Verify:
		// At once; with back-off only if contents keep coming and going.
		return c.backoff.When(name) - minBackoff, nil
	case Read, Delete:
	}
	return 0, fmt.Errorf("namespace %s: sync ended with step %T", name, step)
}

// markTerminating sets the phase on servers that set deletionTimestamp only: admission depends on
// the phase, and objects that it still admits are seen only by lists that begin later (R21).
func (c *Controller) markTerminating(ctx context.Context, ns *corev1.Namespace) (*corev1.Namespace, error) {
	if ns.Status.Phase == corev1.NamespaceTerminating {
		return ns, nil
	}
	next := ns.DeepCopy()
	next.Status.Phase = corev1.NamespaceTerminating
	marked, err := c.namespaces.UpdateStatus(ctx, next, metav1.UpdateOptions{})
	if err != nil {
		return nil, fmt.Errorf("mark namespace %s as terminating: %w", ns.Name, err)
	}
	return marked, nil
}

// discover returns a survey of the resource types that may have objects in the namespace.
func (c *Controller) discover(ctx context.Context, t *termination) *Survey {
	ask := c.catalogue.recent
	if t.rediscover {
		ask = c.catalogue.fresh
	}
	resources, err := ask(ctx)
	t.rediscover = err != nil
	return &Survey{Resources: resources, Order: c.order, Discovery: err}
}

// sweep carries out steps until one ends the sync. Their number is bounded: each type is listed
// twice and deleted from once at most.
func (c *Controller) sweep(ctx context.Context, t *termination, survey *Survey, trust *trust) (Step, error) {
	for {
		switch step := Next(survey).(type) {
		case Read:
			survey.Record(c.contents.read(ctx, trust, step.Resources, t.parked(c.clock.Now())))
		case Delete:
			if err := c.delete(ctx, t, survey, step, trust); err != nil {
				return nil, err
			}
		case Verify, Wait, Finalize:
			return step, nil
		}
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("namespace %s: %w", trust.name, err)
		}
	}
}

// delete deletes the contents of a step. An error ends the sync.
func (c *Controller) delete(ctx context.Context, t *termination, survey *Survey, step Delete, trust *trust) error {
	name := trust.name
	errs, attempts, lost := c.contents.delete(ctx, name, step.Contents, trust)
	c.note(name, t, attempts)
	t.forget(c.clock.Now())
	for i, content := range step.Contents {
		survey.Sweep(content.Resource, errs[i])
		resource := content.Resource.GroupResource()
		of := []any{"namespace", name, "stage", survey.Order.Name(step.Stage), "resource", resource, "objects", len(content.Active)}
		if errs[i] != nil {
			c.failures.Warn(ctx, "contents of namespace not deleted", name+"/"+resource.String(), errs[i], of...)
			continue
		}
		if lost == nil {
			c.log.InfoContext(ctx, "deleted contents of namespace", of...)
		}
	}
	return lost
}

// wait reports in the conditions what the namespace waits for, and returns the time until the next
// sync: short while contents become fewer, with back-off while there is no progress.
func (c *Controller) wait(ctx context.Context, ns *corev1.Namespace, t *termination, survey *Survey, step Wait) (time.Duration, error) {
	for _, content := range survey.contents {
		// Either the type is gone, or the discovery that included it is old.
		t.rediscover = t.rediscover || apierrors.IsNotFound(content.Err)
	}
	released := t.release(step, c.clock.Now())
	if released || step.Progressed(t.last) {
		c.backoff.Forget(ns.Name)
	}
	t.last = step
	if released {
		return c.backoff.When(ns.Name), nil // the next sync reports what stays
	}
	c.hold(t, step)
	c.log.DebugContext(ctx, "namespace waits", "namespace", ns.Name, "stage", survey.Order.Name(step.Stage), "remaining", step.Remaining, "reason", step.Reason)
	if _, err := c.report(ctx, ns, survey); err != nil {
		return 0, err
	}
	return c.backoff.When(ns.Name), nil
}

// report writes the conditions if they have changed.
func (c *Controller) report(ctx context.Context, ns *corev1.Namespace, survey *Survey) (*corev1.Namespace, error) {
	conditions, changed := Conditions(ns.Status.Conditions, survey, metav1.NewTime(c.clock.Now()))
	if !changed {
		return ns, nil
	}
	next := ns.DeepCopy()
	next.Status.Conditions = conditions
	reported, err := c.namespaces.UpdateStatus(ctx, next, metav1.UpdateOptions{})
	if err != nil {
		return nil, fmt.Errorf("report on namespace %s: %w", ns.Name, err)
	}
	return reported, nil
}

// finalize removes our finalizer (NS-02). The object carries the UID and resourceVersion that were
// read, so the server rejects the request if the namespace has changed or is another one.
func (c *Controller) finalize(ctx context.Context, ns *corev1.Namespace, survey *Survey) (err error) {
	remaining := withoutOurs(ns.Spec.Finalizers)
	if len(remaining) > 0 || len(ns.Finalizers) > 0 {
		// Another finalizer keeps it. Only then are conditions about its empty contents worth a
		// write.
		if ns, err = c.report(ctx, ns, survey); err != nil {
			return err
		}
	}
	next := ns.DeepCopy()
	next.Spec.Finalizers = remaining
	_, err = c.namespaces.Finalize(ctx, next, metav1.UpdateOptions{})
	if refusal.IsGone(err, ns.Name) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("finalize namespace %s: %w", ns.Name, err)
	}
	c.log.InfoContext(ctx, "finalized namespace", "namespace", ns.Name, "uid", ns.UID)
	return nil
}
