package sections

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/bench/internal/controlplane"
	"github.com/coppice-dev/coppice/bench/internal/stopwatch"
)

const (
	// testsOfSuite is the number of tests, and objectsOfTest the number of objects that each leaves.
	testsOfSuite, objectsOfTest = 20, 100
	resetPath                   = "/coppice/v1/reset"
)

// reset measures how a suite gets a control plane for each of its tests: coppice resets one, and upstream starts another.
func reset(ctx context.Context, b *Bench) error {
	err := b.onCoppice(ctx, func(ctx context.Context, p *controlplane.Plane) error {
		b.add(coppiceUp, "the first control plane", "s", p.Ready.Seconds())
		for n := range testsOfSuite {
			if err := test(ctx, p); err != nil {
				return err
			}
			watch := stopwatch.Start()
			if err := p.Client.CoreV1().RESTClient().Post().AbsPath(resetPath).Do(ctx).Error(); err != nil {
				return fmt.Errorf("reset after test %d: %w", n, err)
			}
			b.add(coppiceUp, "the next control plane", "s", watch.Seconds())
		}
		return b.memory(p, coppiceUp, "memory after that")
	}, controlplane.Ephemeral, "--controllers=gc,namespace", "--nodes=0")
	if err != nil {
		return err
	}
	return b.onKubernetes(ctx, func(ctx context.Context, p *controlplane.Plane) error {
		b.add(kubernetes, "the first control plane", "s", p.Ready.Seconds())
		b.add(kubernetes, "the next control plane", "s", p.Ready.Seconds())
		if err := test(ctx, p); err != nil {
			return err
		}
		return b.memory(p, kubernetes, "memory after that")
	})
}

// test makes objects that a finalizer holds, and deletes them.
func test(ctx context.Context, p *controlplane.Plane) error {
	maps := p.Client.CoreV1().ConfigMaps(metav1.NamespaceDefault)
	for i := range objectsOfTest {
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("object-%d", i), Finalizers: []string{"example.com/hold"}}}
		if _, err := maps.Create(ctx, object, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	return maps.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
}
