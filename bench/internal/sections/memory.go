package sections

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/bench/internal/controlplane"
	"github.com/coppice-dev/coppice/bench/internal/rawclient"
)

const (
	// burstPayload is the number of bytes that an object of the section memory has besides its
	// metadata.
	burstPayload = 1024
	// sampleInterval is the interval at which memory is read for its peak.
	sampleInterval = 250 * time.Millisecond
)

// memoryComesBack measures the memory that many objects take while they are created, stored and
// collected, and the memory that is still in use afterwards.
func memoryComesBack(ctx context.Context, b *Bench) error {
	err := b.onCoppice(ctx, func(ctx context.Context, p *controlplane.Plane) error {
		if err := p.Collecting(ctx); err != nil {
			return err
		}
		return b.burst(ctx, p, coppiceUp)
	})
	if err != nil {
		return fmt.Errorf("%s: %w", coppiceUp, err)
	}
	err = b.onKubernetes(ctx, func(ctx context.Context, p *controlplane.Plane) error {
		manager, err := p.StartControllerManager(ctx, append([]string{"--controllers=garbage-collector-controller"}, lifted()...)...)
		if err != nil {
			return err
		}
		return errors.Join(b.burst(ctx, p, kubernetes), manager.Stop())
	})
	if err != nil {
		return fmt.Errorf("%s: %w", kubernetes, err)
	}
	return nil
}

// burst creates the dependents of one owner, deletes it, and measures the memory meanwhile.
func (b *Bench) burst(ctx context.Context, p *controlplane.Plane, side string) error {
	if err := pause(ctx, b.Sizes.Idle); err != nil {
		return err
	}
	if err := b.memory(p, side, "before, RssAnon"); err != nil {
		return err
	}
	var peak float64
	sampled := samplePeak(ctx, p, &peak)
	if err := errors.Join(b.createAndCollect(ctx, p, side), sampled()); err != nil {
		return err
	}
	b.add(side, "peak, RssAnon", "MB", peak)
	if err := pause(ctx, b.Sizes.Settle); err != nil {
		return err
	}
	if err := b.memory(p, side, fmt.Sprintf("%.0f s after the last one went, RssAnon", b.Sizes.Settle.Seconds())); err != nil {
		return err
	}
	return b.profileHeap(ctx, p, side+" afterwards")
}

func (b *Bench) createAndCollect(ctx context.Context, p *controlplane.Plane, side string) error {
	clients, err := rawclient.Dial(ctx, p.Config, b.Sizes.Clients)
	if err != nil {
		return err
	}
	defer clients.Close()
	namespace, err := b.newNamespace(ctx, p, "burst")
	if err != nil {
		return err
	}
	owner, err := newOwner(ctx, p, namespace, ownerName)
	if err != nil {
		return err
	}
	objects := newObjects(namespace, b.Sizes.Crowd, owner)
	for _, object := range objects {
		object.Data["payload"] = strings.Repeat("x", burstPayload)
	}
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
	if err := b.memory(p, side, "with the objects stored, RssAnon"); err != nil {
		return err
	}
	if err := b.profileHeap(ctx, p, side+" stored"); err != nil {
		return err
	}
	effect, err := observe(ctx, p, namespace, metav1.DeletePropagationBackground, len(objects))
	if err != nil {
		return err
	}
	defer effect.close()
	_, err = b.work(ctx, p, work{side, "background cascade", "objects", len(objects)}, func() error {
		background := metav1.DeletePropagationBackground
		if err := p.Client.CoreV1().ConfigMaps(namespace).Delete(ctx, ownerName, metav1.DeleteOptions{PropagationPolicy: &background}); err != nil {
			return err
		}
		return effect.wait(ctx)
	})
	return err
}

// memory adds the anonymous memory of all processes as it is now.
func (b *Bench) memory(p *controlplane.Plane, side, figure string) error {
	now, err := p.Memory()
	if err != nil {
		return err
	}
	b.add(side, figure, "MB", now.Anonymous)
	return nil
}

// samplePeak measures the peak of the anonymous memory of a plane's processes. The function that it
// returns ends the measurement and sets peak.
func samplePeak(ctx context.Context, p *controlplane.Plane, peak *float64) (end func() error) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		for {
			now, err := p.Memory()
			if err != nil {
				ended <- err
				return
			}
			*peak = max(*peak, now.Anonymous)
			if pause(ctx, sampleInterval) != nil {
				ended <- nil
				return
			}
		}
	}()
	return func() error {
		cancel()
		return <-ended
	}
}
