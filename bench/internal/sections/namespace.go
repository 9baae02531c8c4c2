package sections

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/coppice-dev/coppice/bench/internal/controlplane"
	"github.com/coppice-dev/coppice/bench/internal/stopwatch"
)

// stepTimeout bounds one step of a measurement.
const stepTimeout = 10 * time.Minute

// emptyNamespace measures the deletion of namespaces that contain only the objects that controllers
// create in each: the service account default and the ConfigMap kube-root-ca.crt.
func emptyNamespace(ctx context.Context, b *Bench) error {
	return b.onBoth(ctx, func(ctx context.Context, p *controlplane.Plane, side string) error {
		if side == kubernetes {
			if _, err := p.StartControllerManager(ctx); err != nil {
				return err
			}
		}
		for range b.Sizes.Namespaces {
			took, err := b.deleteNamespace(ctx, p)
			if err != nil {
				return err
			}
			b.add(side, "an empty namespace, from DELETE to gone", "ms", took.Seconds()*1000)
		}
		return nil
	})
}

func (b *Bench) deleteNamespace(ctx context.Context, p *controlplane.Plane) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	name, err := b.populatedNamespace(ctx, p)
	if err != nil {
		return 0, err
	}
	client := p.Client.CoreV1().Namespaces()
	namespace, err := client.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return 0, err
	}
	events, err := client.Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name, ResourceVersion: namespace.ResourceVersion})
	if err != nil {
		return 0, err
	}
	defer events.Stop()
	clock := stopwatch.Start()
	if err := client.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		return 0, err
	}
	for event := range events.ResultChan() {
		if event.Type == watch.Deleted {
			return clock.Elapsed(), nil
		}
	}
	return 0, fmt.Errorf("the watch of namespace %s ended before it was gone", name)
}

// populatedNamespace creates a namespace and waits for the objects that controllers create in it.
func (b *Bench) populatedNamespace(ctx context.Context, p *controlplane.Plane) (string, error) {
	name, err := b.newNamespace(ctx, p, "namespace")
	if err != nil {
		return "", err
	}
	return name, populated(ctx, p, name)
}

// populated waits for the objects that controllers create in a namespace.
func populated(ctx context.Context, p *controlplane.Plane, name string) error {
	return controlplane.Poll(ctx, "the namespace gets no service account or no certificate", func(ctx context.Context) (bool, error) {
		_, account := p.Client.CoreV1().ServiceAccounts(name).Get(ctx, "default", metav1.GetOptions{})
		_, certificate := p.Client.CoreV1().ConfigMaps(name).Get(ctx, "kube-root-ca.crt", metav1.GetOptions{})
		if apierrors.IsNotFound(account) || apierrors.IsNotFound(certificate) {
			return false, nil
		}
		err := errors.Join(account, certificate)
		return err == nil, err
	})
}
