package sections

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"

	"github.com/coppice-dev/coppice/bench/internal/controlplane"
	"github.com/coppice-dev/coppice/bench/internal/rawclient"
	"github.com/coppice-dev/coppice/bench/internal/stopwatch"
)

// bytesOfOwner is the approximate size of an owner reference as JSON.
const bytesOfOwner = 100

// fakeOwners measures how an object with very many owners that do not exist delays the
// cascades of another namespace: the time from an owner's DELETE until its dependent is gone,
// beside that object and beside an equally large one without owners. The second excludes the
// time that the server takes to store and send a megabyte. It is measured on kube-apiserver
// only: coppice up refuses an object with more than 64 owner references.
func fakeOwners(ctx context.Context, b *Bench) error {
	return b.onKubernetes(ctx, func(ctx context.Context, p *controlplane.Plane) error {
		return b.eachCollector(ctx, p, func(ctx context.Context, c collector, _ *controlplane.Collector) error {
			if c.slow { // the one object takes its 20 requests a second for minutes
				return nil
			}
			return b.bystanders(ctx, p, c.side, b.Sizes.Bystanders)
		})
	})
}

// bystanders measures n cascades beside a large object, and then beside one with fake owners.
func (b *Bench) bystanders(ctx context.Context, p *controlplane.Plane, side string, n int) error {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	large := &corev1.ConfigMap{Data: map[string]string{"data": strings.Repeat("x", b.Sizes.FakeOwners*bytesOfOwner)}}
	attack := &corev1.ConfigMap{}
	for i := range b.Sizes.FakeOwners {
		attack.OwnerReferences = append(attack.OwnerReferences,
			metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: fmt.Sprintf("fake-%05d", i), UID: uuid.NewUUID()})
	}
	calm, err := b.beside(ctx, p, large, n)
	if err != nil {
		return err
	}
	attacked, err := b.beside(ctx, p, attack, n)
	if err != nil {
		return err
	}
	b.add(side, "p99 of cascades of one, beside a large object", "ms", calm*1000)
	b.add(side, fmt.Sprintf("p99 of cascades of one, beside an object with %d owners that do not exist", b.Sizes.FakeOwners), "ms", attacked*1000)
	b.add(side, "the second by the first", "times", attacked/calm)
	return nil
}

// beside creates owners with one dependent each, then the other object in another namespace,
// and measures one cascade after the other. It returns p99 in seconds.
func (b *Bench) beside(ctx context.Context, p *controlplane.Plane, other *corev1.ConfigMap, n int) (float64, error) {
	namespace, err := b.newNamespace(ctx, p, "bystanders")
	if err != nil {
		return 0, err
	}
	if other.Namespace, err = b.newNamespace(ctx, p, "attacker"); err != nil {
		return 0, err
	}
	other.Name = "large"
	clients, err := rawclient.Dial(ctx, p.Config, 1)
	if err != nil {
		return 0, err
	}
	defer clients.Close()
	owners := newObjects(namespace, n)
	for i, owner := range owners {
		owner.Name = fmt.Sprintf("owner-%05d", i)
		if err := clients[0].Create(ctx, owner); err != nil {
			return 0, err
		}
		dependent := newObjects(namespace, 1, metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID})[0]
		dependent.Name = dependentOf(owner)
		if err := clients[0].Create(ctx, dependent); err != nil {
			return 0, err
		}
	}
	if err := p.Collecting(ctx); err != nil { // the collector has then observed all of them
		return 0, err
	}
	events, err := watchAll(ctx, p.Metadata.Resource(corev1.SchemeGroupVersion.WithResource("configmaps")).Namespace(namespace))
	if err != nil {
		return 0, err
	}
	defer events.Stop()
	if err := clients[0].Create(ctx, other); err != nil {
		return 0, err
	}
	took := make([]float64, 0, n)
	for _, owner := range owners {
		clock := stopwatch.Start()
		// A cascade may take longer than the server keeps an idle connection: client-go opens a new one.
		if err := p.Client.CoreV1().ConfigMaps(namespace).Delete(ctx, owner.Name, metav1.DeleteOptions{}); err != nil {
			return 0, err
		}
		if err := deleted(ctx, events, dependentOf(owner)); err != nil {
			return 0, err
		}
		took = append(took, clock.Seconds())
	}
	slices.Sort(took)
	return took[len(took)*99/100], nil
}

func dependentOf(owner *corev1.ConfigMap) string { return "dependent-of-" + owner.Name }

func watchAll(ctx context.Context, resource metadata.ResourceInterface) (watch.Interface, error) {
	list, err := resource.List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return nil, err
	}
	return resource.Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
}

// deleted reads events until the object of that name is deleted.
func deleted(ctx context.Context, events watch.Interface, name string) error {
	for {
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s is not deleted: %w", name, ctx.Err())
		case event, open := <-events.ResultChan():
			if !open {
				return fmt.Errorf("the watch ended before %s was deleted", name)
			}
			if object, ok := event.Object.(*metav1.PartialObjectMetadata); ok && object.Name == name && event.Type == watch.Deleted {
				return nil
			}
		}
	}
}
