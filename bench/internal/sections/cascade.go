package sections

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/coppice-dev/coppice/bench/internal/controlplane"
	"github.com/coppice-dev/coppice/bench/internal/rawclient"
)

func policies() []metav1.DeletionPropagation {
	return []metav1.DeletionPropagation{metav1.DeletePropagationBackground, metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan}
}

// ownerName is the name of the owner whose dependents a cascade deletes or orphans.
const ownerName = "owner"

// cascades measures cascades of each policy: on coppice up, and on one kube-apiserver by each
// collector in turn; and how fast either server deletes objects for a client.
func cascades(ctx context.Context, b *Bench) error {
	err := b.onCoppice(ctx, func(ctx context.Context, p *controlplane.Plane) error {
		clients, err := rawclient.Dial(ctx, p.Config, b.Sizes.Clients)
		if err != nil {
			return err
		}
		defer clients.Close()
		m := meter{Bench: b, plane: p, clients: clients}
		if err := m.plain(ctx, coppiceUp); err != nil {
			return err
		}
		_, err = m.policies(ctx, coppiceUp, b.Sizes.Dependents)
		return err
	})
	if err != nil {
		return fmt.Errorf("%s: %w", coppiceUp, err)
	}
	return b.onKubernetes(ctx, func(ctx context.Context, p *controlplane.Plane) error {
		clients, err := rawclient.Dial(ctx, p.Config, b.Sizes.Clients)
		if err != nil {
			return err
		}
		defer clients.Close()
		m := meter{Bench: b, plane: p, clients: clients}
		if err := m.plain(ctx, serverAlone); err != nil {
			return err
		}
		return m.compare(ctx)
	})
}

// meter measures cascades on one server.
type meter struct {
	*Bench
	plane   *controlplane.Plane
	clients rawclient.Clients
	// deleted and patched are the numbers of objects per second that the server deletes, and whose owners it removes, for
	// clients without a cascade.
	deleted, patched float64
}

// plain measures how fast the server serves the requests of which cascades consist.
func (m *meter) plain(ctx context.Context, side string) error {
	if err := m.plainDelete(ctx, side); err != nil {
		return err
	}
	return m.plainPatch(ctx, side)
}

// plainDelete measures how fast the server deletes objects without dependents.
func (m *meter) plainDelete(ctx context.Context, side string) error {
	namespace, err := m.newNamespace(ctx, m.plane, "plain")
	if err != nil {
		return err
	}
	objects := newObjects(namespace, m.Sizes.Dependents)
	if err := each(ctx, m.clients, objects, create); err != nil {
		return err
	}
	what := fmt.Sprintf("plain DELETE by %d clients", len(m.clients))
	m.deleted, err = m.work(ctx, m.plane, work{side, what, "objects", len(objects)}, func() error {
		return each(ctx, m.clients, objects, remove)
	})
	return err
}

// plainPatch measures how fast the server removes the owners of objects. The patches are those of a collector, and a watch
// has their events, as in an orphan cascade: it costs a watch cache.
func (m *meter) plainPatch(ctx context.Context, side string) error {
	namespace, err := m.newNamespace(ctx, m.plane, "plain")
	if err != nil {
		return err
	}
	owner, err := newOwner(ctx, m.plane, namespace, ownerName)
	if err != nil {
		return err
	}
	objects := newObjects(namespace, m.Sizes.Dependents, owner)
	if err := each(ctx, m.clients, objects, create); err != nil {
		return err
	}
	watching, err := observe(ctx, m.plane, namespace, metav1.DeletePropagationOrphan, len(objects))
	if err != nil {
		return err
	}
	defer watching.close()
	what := fmt.Sprintf("plain PATCH of owners by %d clients", len(m.clients))
	m.patched, err = m.work(ctx, m.plane, work{side, what, "objects", len(objects)}, func() error {
		return each(ctx, m.clients, objects, disown)
	})
	if err != nil {
		return err
	}
	return each(ctx, m.clients, objects, remove)
}

// disown removes the owners of an object.
func disown(ctx context.Context, client *rawclient.Client, object *corev1.ConfigMap) error {
	return client.Patch(ctx, object, fmt.Appendf(nil, `{"metadata":{"ownerReferences":null,"resourceVersion":%q,"uid":%q}}`, object.ResourceVersion, object.UID))
}

// compare measures each collector in turn.
func (m *meter) compare(ctx context.Context) error {
	speeds := map[string]map[metav1.DeletionPropagation]float64{}
	err := m.eachCollector(ctx, m.plane, func(ctx context.Context, c collector, _ *controlplane.Collector) error {
		n := m.Sizes.Dependents
		if c.slow {
			n = m.Sizes.FewDependents
		}
		var err error
		speeds[c.side], err = m.policies(ctx, c.side, n)
		return err
	})
	if err != nil {
		return err
	}
	for _, policy := range policies() {
		for _, other := range []string{asItComes, limitsLifted} {
			what := fmt.Sprintf("%s, coppice collect compared with %s", strings.ToLower(string(policy)), other)
			m.add(coppiceCollect, what, "times", speeds[coppiceCollect][policy]/speeds[other][policy])
		}
	}
	return nil
}

// policies measures a cascade of n dependents for each policy and returns the rates.
func (m *meter) policies(ctx context.Context, side string, n int) (map[metav1.DeletionPropagation]float64, error) {
	m.add(side, "dependents of each cascade", "", float64(n))
	speeds := map[metav1.DeletionPropagation]float64{}
	for _, policy := range policies() {
		speed, err := m.cascade(ctx, side, policy, n)
		if err != nil {
			return nil, fmt.Errorf("%s cascade: %w", policy, err)
		}
		speeds[policy] = speed
	}
	return speeds, nil
}

// cascade creates an owner with n dependents, deletes it, and measures the time until the policy is
// carried out.
func (m *meter) cascade(ctx context.Context, side string, policy metav1.DeletionPropagation, n int) (float64, error) {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	namespace, err := m.newNamespace(ctx, m.plane, "cascade")
	if err != nil {
		return 0, err
	}
	owner, err := newOwner(ctx, m.plane, namespace, ownerName)
	if err != nil {
		return 0, err
	}
	objects := newObjects(namespace, n, owner)
	if err := each(ctx, m.clients, objects, create); err != nil {
		return 0, err
	}
	if err := m.plane.Collecting(ctx); err != nil { // the collector has then observed all objects created before
		return 0, err
	}
	effect, err := observe(ctx, m.plane, namespace, policy, n)
	if err != nil {
		return 0, err
	}
	defer effect.close()
	before, err := m.plane.Requests(ctx)
	if err != nil {
		return 0, err
	}
	what := strings.ToLower(string(policy)) + " cascade"
	speed, err := m.work(ctx, m.plane, work{side, what, "objects", n}, func() error {
		if err := m.plane.Client.CoreV1().ConfigMaps(namespace).Delete(ctx, ownerName, metav1.DeleteOptions{PropagationPolicy: &policy}); err != nil {
			return err
		}
		return effect.wait(ctx)
	})
	if err != nil {
		return 0, err
	}
	after, err := m.plane.Requests(ctx)
	if err != nil {
		return 0, err
	}
	// The DELETE of the owner and one reading of the metrics are the benchmark's own.
	m.add(side, what+", requests for each", "", (after-before-2)/float64(n))
	if policy != metav1.DeletePropagationOrphan {
		m.add(side, what+", share of the plain DELETE rate", "%", 100*speed/m.deleted)
	} else {
		m.add(side, what+", share of the plain PATCH rate", "%", 100*speed/m.patched)
		err = each(ctx, m.clients, objects, remove)
	}
	return speed, err
}

// effect observes what a policy does to an owner and its dependents.
type effect struct {
	orphan    bool
	ownerGone bool
	left      int // dependents

	watcher rawclient.Clients
	done    chan struct{}
	failed  chan error
}

// observe begins to observe an owner and its n dependents in a namespace.
func observe(ctx context.Context, p *controlplane.Plane, namespace string, policy metav1.DeletionPropagation, n int) (*effect, error) {
	list, err := p.Client.CoreV1().ConfigMaps(namespace).List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return nil, err
	}
	watcher, err := rawclient.Dial(ctx, p.Config, 1)
	if err != nil {
		return nil, err
	}
	e := &effect{
		orphan: policy == metav1.DeletePropagationOrphan, left: n,
		watcher: watcher, done: make(chan struct{}), failed: make(chan error, 2),
	}
	w, err := watcher[0].Watch(ctx, rawclient.ConfigMaps(namespace), list.ResourceVersion, e.event)
	if err != nil {
		watcher.Close()
		return nil, err
	}
	go func() { e.failed <- <-w.Failed }()
	return e, nil
}

func (e *effect) close() { e.watcher.Close() }

// event applies an event: the policy is carried out when the owner is gone and every dependent is
// gone or, with orphan, has no owner.
func (e *effect) event(encoded rawclient.Event) {
	if e.ownerGone && e.left == 0 {
		return
	}
	var object corev1.ConfigMap
	kind, err := encoded.Decode(&object)
	switch {
	case err != nil:
		return // the watch ends with it
	case object.Name == ownerName:
		e.ownerGone = e.ownerGone || kind == watch.Deleted
	case kind == watch.Deleted && e.orphan:
		select {
		case e.failed <- fmt.Errorf("%s was deleted, not orphaned", object.Name):
		default:
		}
	case kind == watch.Deleted, kind == watch.Modified && e.orphan && len(object.OwnerReferences) == 0:
		e.left--
	}
	if e.ownerGone && e.left == 0 {
		close(e.done)
	}
}

// wait waits until the policy is carried out.
func (e *effect) wait(ctx context.Context) error {
	select {
	case <-e.done:
		return nil
	case err := <-e.failed:
		return err
	case <-ctx.Done():
		return fmt.Errorf("the cascade is not done: %w", ctx.Err())
	}
}
