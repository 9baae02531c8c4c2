package sections

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/bench/internal/controlplane"
	"github.com/coppice-dev/coppice/bench/internal/stopwatch"
)

// chains measures the foreground deletion of a chain: each object waits for its dependent, so the
// collector deletes them one after the other, from the last.
func chains(ctx context.Context, b *Bench) error {
	return b.onBoth(ctx, func(ctx context.Context, p *controlplane.Plane, side string) error {
		n := b.Sizes.Levels
		if side == kubernetes {
			if _, err := p.StartControllerManager(ctx, append([]string{"--controllers=garbage-collector-controller"}, lifted()...)...); err != nil {
				return err
			}
		}
		ctx, cancel := context.WithTimeout(ctx, stepTimeout)
		defer cancel()
		namespace, err := b.chain(ctx, p, n)
		if err != nil {
			return err
		}
		if err := p.Collecting(ctx); err != nil { // the collector has then observed all objects created before
			return err
		}
		foreground := metav1.DeletePropagationForeground
		effect, err := observe(ctx, p, namespace, foreground, n-1)
		if err != nil {
			return err
		}
		defer effect.close()
		clock := stopwatch.Start()
		if err := p.Client.CoreV1().ConfigMaps(namespace).Delete(ctx, ownerName, metav1.DeleteOptions{PropagationPolicy: &foreground}); err != nil {
			return err
		}
		if err := effect.wait(ctx); err != nil {
			return err
		}
		took := clock.Seconds() * 1000
		b.add(side, "levels of the chain", "", float64(n))
		b.add(side, "a level of a foreground deletion", "ms", took/float64(n))
		return nil
	})
}

// chain creates n objects, each the owner of the next one, and returns their namespace.
func (b *Bench) chain(ctx context.Context, p *controlplane.Plane, n int) (namespace string, err error) {
	if namespace, err = b.newNamespace(ctx, p, "chain"); err != nil {
		return "", err
	}
	owner, err := newOwner(ctx, p, namespace, ownerName)
	if err != nil {
		return "", err
	}
	for i := range n - 1 {
		object := newObjects(namespace, 1, owner)[0]
		object.Name = fmt.Sprintf("level-%06d", i+1)
		created, err := p.Client.CoreV1().ConfigMaps(namespace).Create(ctx, object, metav1.CreateOptions{})
		if err != nil {
			return "", err
		}
		owner.Name, owner.UID = created.Name, created.UID
	}
	return namespace, nil
}
