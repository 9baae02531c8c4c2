package sections

import (
	"context"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/bench/internal/controlplane"
	"github.com/coppice-dev/coppice/bench/internal/rawclient"
	"github.com/coppice-dev/coppice/bench/internal/stopwatch"
)

// scale measures the cost of many objects with owners: the memory for each, and the time that the
// server and the collector take to start with them.
func scale(ctx context.Context, b *Bench) error {
	if err := b.onCoppice(ctx, b.scaleCoppice); err != nil {
		return fmt.Errorf("%s: %w", coppiceUp, err)
	}
	if err := b.onKubernetes(ctx, b.scaleKubernetes); err != nil {
		return fmt.Errorf("%s: %w", kubernetes, err)
	}
	return nil
}

// scaleCoppice measures a server with its collector in the same process.
func (b *Bench) scaleCoppice(ctx context.Context, p *controlplane.Plane) error {
	if err := p.Collecting(ctx); err != nil {
		return err
	}
	if err := b.crowd(ctx, p, coppiceUp); err != nil {
		return err
	}
	if err := b.restart(ctx, p, b.Sizes.Crowd); err != nil {
		return err
	}
	return b.idle(ctx, p, coppiceUp)
}

// restart measures a start of a server and of the collector in its process, on n objects.
func (b *Bench) restart(ctx context.Context, p *controlplane.Plane, n int) error {
	watch := stopwatch.Start()
	if err := p.Restart(ctx); err != nil {
		return err
	}
	ready := p.Ready.Seconds()
	stopped := watch.Seconds() - ready // not part of the start
	if err := p.Collecting(ctx); err != nil {
		return err
	}
	b.add(coppiceUp, with("start of the server to ready", n), "s", ready)
	b.add(coppiceUp, with("start to the first object collected", n), "s", watch.Seconds()-stopped)
	return nil
}

// scaleKubernetes measures kube-apiserver with kube-controller-manager, and then with
// coppice collect in its place.
func (b *Bench) scaleKubernetes(ctx context.Context, p *controlplane.Plane) error {
	flags := append([]string{"--controllers=garbage-collector-controller"}, lifted()...)
	manager, err := p.StartControllerManager(ctx, flags...)
	if err != nil {
		return err
	}
	if err := b.crowd(ctx, p, kubernetes); err != nil {
		return err
	}
	if err := manager.Stop(); err != nil {
		return err
	}
	if err := p.Restart(ctx); err != nil {
		return err
	}
	b.add(kubernetes, with("start of the server to ready", b.Sizes.Crowd), "s", p.Ready.Seconds())
	manager, err = p.StartControllerManager(ctx, flags...)
	if err != nil {
		return err
	}
	b.add(kubernetes, with("start to the first object collected", b.Sizes.Crowd), "s", (p.Ready + manager.Ready).Seconds())
	b.add(kubernetes, with("start of the collector to the first object collected", b.Sizes.Crowd), "s", manager.Ready.Seconds())
	if err := errors.Join(b.idle(ctx, p, kubernetes), manager.Stop()); err != nil {
		return err
	}
	collect, err := p.StartCollect(ctx, b.Coppice)
	if err != nil {
		return err
	}
	b.add(coppiceCollect, with("start of the collector to the first object collected", b.Sizes.Crowd), "s", collect.Ready.Seconds())
	return b.idle(ctx, p, coppiceCollect)
}

// with adds the number of measured objects to a figure's name.
func with(what string, n int) string {
	return fmt.Sprintf("%s, on %d objects", what, n)
}

// crowd creates the objects, and measures the memory of each.
func (b *Bench) crowd(ctx context.Context, p *controlplane.Plane, side string) error {
	clients, err := rawclient.Dial(ctx, p.Config, b.Sizes.Clients)
	if err != nil {
		return err
	}
	defer clients.Close()
	namespace, err := b.newNamespace(ctx, p, "crowd")
	if err != nil {
		return err
	}
	if err := pause(ctx, b.Sizes.Idle); err != nil {
		return err
	}
	before, err := p.Memory()
	if err != nil {
		return err
	}
	var owners []metav1.OwnerReference
	for i := range b.Sizes.CrowdOwners {
		owner, err := newOwner(ctx, p, namespace, fmt.Sprintf("owner-%05d", i))
		if err != nil {
			return err
		}
		owners = append(owners, owner)
	}
	objects := newObjects(namespace, b.Sizes.Crowd-len(owners), owners...)
	if _, err := b.work(ctx, p, work{side, "create", "objects", len(objects)}, func() error {
		return each(ctx, clients, objects, create)
	}); err != nil {
		return err
	}
	if err := p.Collecting(ctx); err != nil { // the collector has then observed all of them
		return err
	}
	if err := pause(ctx, b.Sizes.Idle); err != nil {
		return err
	}
	after, err := p.Memory()
	if err != nil {
		return err
	}
	each := func(all float64) float64 { return all * 1000 / float64(b.Sizes.Crowd) }
	b.add(side, "memory of each object, RssAnon", "kB", each(after.Anonymous-before.Anonymous))
	b.add(side, "memory of each object, PSS", "kB", each(after.Proportional-before.Proportional))
	return nil
}
