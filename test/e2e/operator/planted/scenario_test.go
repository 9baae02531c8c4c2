package planted

import (
	"context"
	"errors"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
)

const (
	lasting = 12 // Pools that live through the whole scenario, or are recreated
	brief   = 6  // Pools that come in each phase, and are deleted soon
	orders  = 3  // orders of a Pool at the same time
	size    = 4  // of a Pool
)

// live is the scenario: Pools come, change, are recreated and go, and the operator is restarted three times. Others add entries
// to the directory, and finalizers to Pools.
func (w *fixture) live(ctx context.Context) error {
	if err := w.create(ctx, &corev1.ConfigMap{ObjectMeta: objectMeta(Directory, nil), Data: map[string]string{"version": "1"}}); err != nil {
		return err
	}
	if err := w.start(ctx); err != nil {
		return err
	}
	err := w.acts(ctx)
	return errors.Join(err, w.stop())
}

func (w *fixture) acts(ctx context.Context) error {
	if err := w.create(ctx, order("lost", "no-such-pool")); err != nil { // an orphan, which goes
		return err
	}
	for n, phase := range []func(context.Context, int) error{w.arrive, w.grow, w.change, w.grow, w.leave} {
		visits := make(chan error, 1)
		go func() {
			visits <- each(ctx, brief, func(ctx context.Context, i int) error { return w.visit(ctx, lasting+i) })
		}()
		err := each(ctx, lasting, func(ctx context.Context, i int) error {
			w.pause(ctx, 200)
			return phase(ctx, i)
		})
		if err == nil && 0 < n && n < 4 { // lists of the new operator are as before the phase, perhaps
			err = w.restart(ctx)
		}
		if err := errors.Join(err, <-visits); err != nil {
			return err
		}
		if err := w.settle(ctx); err != nil {
			return err
		}
		w.raiseFloors()
	}
	return w.conclude(ctx)
}

// each lets users act at the same time.
func each(ctx context.Context, number int, act func(context.Context, int) error) error {
	var group sync.WaitGroup
	failed := make([]error, number)
	for i := range number {
		group.Go(func() { failed[i] = act(ctx, i) })
	}
	group.Wait()
	for _, err := range failed {
		if _, ok := errors.AsType[finding](err); ok {
			return err
		}
	}
	return errors.Join(failed...)
}

// raiseFloors says that no member may go from now on.
func (w *fixture) raiseFloors() {
	w.history.mu.Lock()
	defer w.history.mu.Unlock()
	for uid, wanted := range w.plan {
		wanted.floor = wanted.size
		w.plan[uid] = wanted
	}
}

func poolName(i int) string { return fmt.Sprintf("pool-%d", i) }

// pool returns the live Pool of a user.
func (w *fixture) pool(i int) *Pool {
	w.history.mu.Lock()
	defer w.history.mu.Unlock()
	for uid, wanted := range w.plan {
		if wanted.name == poolName(i) && !wanted.gone {
			return &Pool{ObjectMeta: w.now.pools[uid].ObjectMeta}
		}
	}
	return nil
}

// arrive creates a Pool and its orders, and lets others act on it.
func (w *fixture) arrive(ctx context.Context, i int) error {
	pool, err := w.newPool(ctx, i, size)
	if err != nil {
		return err
	}
	err = w.order(ctx, pool)
	if i%2 == 1 {
		err = errors.Join(err, w.audit(ctx, pool))
	}
	return errors.Join(err, w.enter(ctx, fmt.Sprintf("arrival-%d", i)))
}

func (w *fixture) newPool(ctx context.Context, i, size int) (*Pool, error) {
	pool := &Pool{ObjectMeta: objectMeta(poolName(i), nil), Spec: PoolSpec{Size: size, Color: "red"}}
	err := w.create(ctx, pool)
	if err == nil {
		w.wants(pool.UID, func(wanted *wish) { *wanted = wish{name: pool.Name, size: size, color: "red"} })
	}
	return pool, err
}

// visit creates a Pool and deletes it as soon as it has a record, or has served its orders.
func (w *fixture) visit(ctx context.Context, i int) error {
	pool, err := w.newPool(ctx, i, 1)
	if err != nil {
		return err
	}
	if i%2 == 0 {
		err = w.await(ctx, func(now *state) string {
			if !of(now.records, pool.UID) {
				return "records: there is none of Pool " + pool.Name
			}
			return ""
		})
	} else {
		err = errors.Join(w.order(ctx, pool), w.order(ctx, pool))
		err = errors.Join(err, w.await(ctx, func(now *state) string { return w.unserved(now.pools[pool.UID]) }))
	}
	if err != nil {
		return err
	}
	return w.depart(ctx, pool)
}

// audit adds the finalizer of an auditor.
func (w *fixture) audit(ctx context.Context, pool *Pool) error {
	w.pause(ctx, 300)
	err := w.update(ctx, pool, func() { controllerutil.AddFinalizer(pool, auditFinalizer) })
	w.wants(pool.UID, func(wanted *wish) { wanted.audited = err == nil })
	return err
}

// enter adds an entry to the directory.
func (w *fixture) enter(ctx context.Context, entry string) error {
	w.pause(ctx, 300)
	directory := &corev1.ConfigMap{ObjectMeta: objectMeta(Directory, nil)}
	err := w.update(ctx, directory, func() { directory.Data[entry] = "here" })
	if err == nil {
		w.history.mu.Lock()
		w.entries[entry] = true
		w.history.mu.Unlock()
	}
	return err
}

func order(name, pool string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: objectMeta(name, map[string]string{RoleLabel: Order, PoolLabel: pool})}
}

// order gives orders, and annotates them a little later. They have the names of former ones, and come as soon as these
// are gone.
func (w *fixture) order(ctx context.Context, pool *Pool) error {
	return each(ctx, orders, func(ctx context.Context, n int) error {
		o := order(fmt.Sprintf("%s-order-%d", pool.Name, n), pool.Name)
		err := w.await(ctx, func(now *state) string {
			for _, former := range now.orders {
				if former.Name == o.Name {
					return "orders go: " + o.Name + " is still there"
				}
			}
			return ""
		})
		if err != nil {
			return err
		}
		if err := w.create(ctx, o); err != nil {
			return err
		}
		w.history.mu.Lock()
		w.ordered[o.UID] = pool.UID
		w.history.mu.Unlock()
		w.pause(ctx, 200)
		err = try(ctx, func() error {
			return w.client.Patch(ctx, o, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"note":"soon"}}}`)))
		})
		return client.IgnoreNotFound(err)
	})
}

// change changes the color of a Pool, and then makes it smaller, deletes one of its members, or recreates it, while it has
// orders.
func (w *fixture) change(ctx context.Context, i int) error {
	pool := w.pool(i)
	err := errors.Join(w.resize(ctx, pool, size+2, "blue", "red", "white"), w.order(ctx, pool))
	switch (i + w.chance(2)) % 4 {
	case 0, 1:
		err = errors.Join(err, w.resize(ctx, pool, size-2, "blue"), w.enter(ctx, fmt.Sprintf("change-%d", i)))
	case 2:
		err = errors.Join(err, w.deleteMember(ctx, pool))
	default:
		return errors.Join(err, w.recreate(ctx, i, pool))
	}
	return errors.Join(err, w.order(ctx, pool))
}

// grow makes a Pool greater. The first user waits for the new members.
func (w *fixture) grow(ctx context.Context, i int) error {
	pool, most := w.pool(i), size+2
	if err := w.resize(ctx, pool, most, "green"); err != nil || i > 0 {
		return err
	}
	err := w.await(ctx, func(now *state) string {
		n := 0
		for _, m := range now.members {
			if m.Labels[UIDLabel] == string(pool.UID) {
				n++
			}
		}
		if n < most {
			return fmt.Sprintf("members: Pool %s of size %d has %d", pool.Name, most, n)
		}
		return ""
	})
	if err != nil {
		return err
	}
	w.wants(pool.UID, func(now *wish) { now.floor = most })
	return nil
}

// leave deletes a Pool.
func (w *fixture) leave(ctx context.Context, i int) error {
	return w.depart(ctx, w.pool(i))
}

// resize changes the size of a Pool, and its color several times: the user cannot decide.
func (w *fixture) resize(ctx context.Context, pool *Pool, size int, colors ...string) error {
	for n, color := range colors {
		if n > 0 {
			w.pause(ctx, 300)
		}
		w.wants(pool.UID, func(wanted *wish) { wanted.size, wanted.color, wanted.floor = size, color, min(wanted.floor, size) })
		if err := w.update(ctx, pool, func() { pool.Spec = PoolSpec{Size: size, Color: color} }); err != nil {
			return err
		}
	}
	return nil
}

// deleteMember deletes a member, which the operator creates again.
func (w *fixture) deleteMember(ctx context.Context, pool *Pool) error {
	place := w.chance(size)
	var member *corev1.ConfigMap
	w.history.mu.Lock()
	for uid, m := range w.now.members {
		if m.Labels[UIDLabel] == string(pool.UID) && placeOf(m) == place {
			member = m
			w.deleted[uid] = true
		}
	}
	w.history.mu.Unlock()
	return w.delete(ctx, member)
}

// depart deletes a Pool. The auditor lets it go then.
func (w *fixture) depart(ctx context.Context, pool *Pool) error {
	var audited bool
	w.wants(pool.UID, func(wanted *wish) { audited, wanted.gone = wanted.audited, true })
	if err := w.delete(ctx, pool); err != nil || !audited {
		return err
	}
	w.pause(ctx, 300)
	w.wants(pool.UID, func(wanted *wish) { wanted.audited = false })
	err := w.update(ctx, pool, func() { controllerutil.RemoveFinalizer(pool, auditFinalizer) })
	return client.IgnoreNotFound(err)
}

// recreate deletes a Pool, and creates one with the same name as soon as it is gone.
func (w *fixture) recreate(ctx context.Context, i int, pool *Pool) error {
	if err := w.depart(ctx, pool); err != nil {
		return err
	}
	err := w.await(ctx, func(now *state) string {
		if now.pools[pool.UID] != nil {
			return "deleted Pools go: " + pool.Name + " is still there"
		}
		return ""
	})
	if err != nil {
		return err
	}
	return w.arrive(ctx, i)
}
