package process

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/coppice-dev/coppice/collector/report"
)

// settleInterval is the time between two checks of controllers that are not at rest.
const settleInterval = 5 * time.Millisecond

// Settle waits until collection has come to rest, or ctx ends: the controllers have observed the
// state of the server, no namespace is left to empty, and no object waits in the queue, in back-off
// or at the barrier. Objects that the server refuses to delete or to change until somebody acts are at
// rest (R31). Settle is for test suites: it lists all objects of the server and compares them with the
// graph.
func (c Controllers) Settle(ctx context.Context) report.Settlement {
	var s report.Settlement
	// An error means that ctx has ended; s has the unfinished work.
	_ = wait.PollUntilContextCancel(ctx, settleInterval, true, func(ctx context.Context) (bool, error) {
		s = c.settlement(ctx)
		return s.Settled, nil
	})
	return s
}

// settlement checks once. If all work is finished before and after the comparison with the server,
// and no work began in between, the work for the compared objects is finished.
func (c Controllers) settlement(ctx context.Context) report.Settlement {
	s := report.Settlement{Unfinished: []string{}, Held: []report.HeldObject{}}
	if err := c.Ready(); err != nil {
		s.Unfinished = append(s.Unfinished, err.Error())
		return s
	}
	before, unfinished := c.work(nil)
	if len(unfinished) > 0 || c.Collector == nil {
		s.Settled, s.Unfinished = len(unfinished) == 0, append(s.Unfinished, unfinished...)
		return s
	}
	terminating, behind, err := c.Collector.Parts().Engine.Compare(ctx)
	switch {
	case err != nil:
		s.Unfinished = append(s.Unfinished, err.Error())
		return s
	case len(behind) > 0:
		s.Unfinished = append(s.Unfinished, behind...)
		return s
	}
	for _, o := range terminating {
		s.Held = append(s.Held, report.HeldObject{
			Kind: o.Kind.String(), Namespace: o.Namespace, Name: o.Name, UID: report.UID(o.UID), Finalizers: slices.Clone(o.Finalizers),
			ResourceVersion: o.ResourceVersion,
		})
	}
	after, unfinished := c.work(s.Held)
	if before != after {
		unfinished = append(unfinished, "the controllers have just been working")
	}
	s.Settled, s.Unfinished = len(unfinished) == 0, append(s.Unfinished, unfinished...)
	return s
}

// begun counts the objects and syncs that the controllers have begun.
type begun struct{ objects, syncs int }

// work counts the work that the controllers have begun and lists the work that is unfinished, given
// the terminating objects.
func (c Controllers) work(deleted []report.HeldObject) (b begun, unfinished []string) {
	if c.Collector != nil {
		b.objects, unfinished = c.Collector.Parts().Engine.Work()
	}
	if c.Namespaces != nil {
		underWay := 0
		if b.syncs, underWay = c.Namespaces.Syncs(); underWay > 0 {
			unfinished = append(unfinished, "the namespace controller is working")
		}
		unfinished = append(unfinished, c.Namespaces.Unsettled(namespacesOf(deleted))...)
	}
	if c.Others != nil {
		unfinished = append(unfinished, c.Others(deleted)...)
	}
	return b, unfinished
}

// namespacesOf returns the names of the namespaces among objects.
func namespacesOf(objects []report.HeldObject) []string {
	var names []string
	for _, o := range objects {
		if o.Kind == "Namespace" {
			names = append(names, o.Name)
		}
	}
	return names
}
