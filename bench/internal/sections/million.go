package sections

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/bench/internal/controlplane"
	"github.com/coppice-dev/coppice/bench/internal/rawclient"
	"github.com/coppice-dev/coppice/bench/internal/stopwatch"
)

const (
	// millionPiece is the number of objects that the benchmark has in memory at a time.
	millionPiece = 50_000
	// countInterval is the interval at which the remaining objects are counted, and endInterval the one for the last
	// tenth. The server reads the key of each object for that.
	countInterval = 5 * time.Second
	endInterval   = time.Second
)

// million measures a million dependents of one owner: the start with them, their memory, and their cascade.
func million(ctx context.Context, b *Bench) error {
	return b.onCoppice(ctx, func(ctx context.Context, p *controlplane.Plane) error {
		if err := p.Collecting(ctx); err != nil {
			return err
		}
		namespace, err := b.newNamespace(ctx, p, "million")
		if err != nil {
			return err
		}
		if err := b.createMillion(ctx, p, namespace); err != nil {
			return err
		}
		if err := b.restart(ctx, p, b.Sizes.Million); err != nil {
			return err
		}
		if err := pause(ctx, b.Sizes.Settle); err != nil {
			return err
		}
		if err := b.memory(p, coppiceUp, "idle memory, RssAnon"); err != nil {
			return err
		}
		return b.collectMillion(ctx, p, namespace)
	})
}

func (b *Bench) createMillion(ctx context.Context, p *controlplane.Plane, namespace string) error {
	clients, err := rawclient.Dial(ctx, p.Config, b.Sizes.Clients)
	if err != nil {
		return err
	}
	defer clients.Close()
	owner, err := newOwner(ctx, p, namespace, ownerName)
	if err != nil {
		return err
	}
	_, err = b.work(ctx, p, work{coppiceUp, "create", "objects", b.Sizes.Million}, func() error {
		for done := 0; done < b.Sizes.Million; done += millionPiece {
			objects := newObjects(namespace, min(millionPiece, b.Sizes.Million-done), owner)
			for i, object := range objects {
				object.Name = fmt.Sprintf("object-%07d", done+i)
			}
			if err := each(ctx, clients, objects, createInTheEnd); err != nil {
				return err
			}
		}
		return nil
	})
	return err
}

// createInTheEnd creates an object although the server may not answer in time: in the minutes that a million objects take,
// the disk of a machine may stall for longer than etcd waits for it.
func createInTheEnd(ctx context.Context, client *rawclient.Client, object *corev1.ConfigMap) error {
	err := create(ctx, client, object)
	if !rawclient.IsStatus(err, http.StatusGatewayTimeout) {
		return err
	}
	if err = create(ctx, client, object); rawclient.IsStatus(err, http.StatusConflict) {
		return nil // the first request was carried out
	}
	return err
}

// collectMillion deletes the owner. A watch would begin a watch cache of all objects: the remaining ones are counted.
func (b *Bench) collectMillion(ctx context.Context, p *controlplane.Plane, namespace string) error {
	var peak, lastTenth float64
	sampled := samplePeak(ctx, p, &peak)
	_, err := b.work(ctx, p, work{coppiceUp, "background cascade", "objects", b.Sizes.Million}, func() (err error) {
		background := metav1.DeletePropagationBackground
		err = p.Client.CoreV1().ConfigMaps(namespace).Delete(ctx, ownerName, metav1.DeleteOptions{PropagationPolicy: &background})
		if err != nil {
			return err
		}
		lastTenth, err = awaitEmpty(ctx, p, namespace, b.Sizes.Million/10)
		return err
	})
	if err := errors.Join(err, sampled()); err != nil {
		return err
	}
	b.add(coppiceUp, "background cascade, the last tenth", "objects/s", lastTenth)
	b.add(coppiceUp, "peak, RssAnon", "MB", peak)
	if err := pause(ctx, b.Sizes.Settle); err != nil {
		return err
	}
	return b.memory(p, coppiceUp, fmt.Sprintf("%.0f s after the last one went, RssAnon", b.Sizes.Settle.Seconds()))
}

// awaitEmpty waits until a namespace has no ConfigMaps of this benchmark, and returns at which rate the last ones went.
func awaitEmpty(ctx context.Context, p *controlplane.Plane, namespace string, last int) (rate float64, err error) {
	var watch stopwatch.Stopwatch
	counted := 0 // when the watch was started
	for {
		left, err := remaining(ctx, p, namespace)
		switch {
		case err != nil:
			return 0, err
		case left == 0:
			return watch.Rate(counted), nil
		case counted == 0 && left <= last:
			watch, counted = stopwatch.Start(), left
		}
		interval := countInterval
		if left <= last {
			interval = endInterval
		}
		if err := pause(ctx, interval); err != nil {
			return 0, err
		}
	}
}

// remaining counts the objects of a namespace by listing one of them.
func remaining(ctx context.Context, p *controlplane.Plane, namespace string) (int, error) {
	list, err := p.Metadata.Resource(corev1.SchemeGroupVersion.WithResource("configmaps")).Namespace(namespace).List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return 0, err
	}
	n := len(list.Items)
	if list.RemainingItemCount != nil {
		n += int(*list.RemainingItemCount)
	}
	if n == 1 && list.Items[0].Name == "kube-root-ca.crt" {
		return 0, nil
	}
	return n, nil
}
