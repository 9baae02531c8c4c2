package planted

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// reconcileOrder serves an order: its UID comes into the status of its Pool, once, and the order is deleted. An order
// whose Pool does not exist is deleted, too.
func (o *Operator) reconcileOrder(ctx context.Context, request ctrl.Request) error {
	var order corev1.Secret
	if err := o.client.Get(ctx, request.NamespacedName, &order); err != nil {
		return client.IgnoreNotFound(err)
	}
	var pool Pool
	key := types.NamespacedName{Namespace: order.Namespace, Name: order.Labels[PoolLabel]}
	err := o.client.Get(ctx, key, &pool)
	if apierrors.IsNotFound(err) {
		return o.deleteOrphan(ctx, key, &order)
	}
	if err != nil {
		return err
	}
	if !slices.Contains(pool.Status.Served, string(order.UID)) {
		if err := o.serve(ctx, &pool, &order); err != nil {
			return err
		}
	}
	if o.has(DeletedByName) {
		return client.IgnoreNotFound(o.client.Delete(ctx, &order))
	}
	return o.remove(ctx, &order)
}

// deleteOrphan deletes an order whose Pool is not in the cache, unless it exists.
func (o *Operator) deleteOrphan(ctx context.Context, pool types.NamespacedName, order *corev1.Secret) error {
	if !o.has(OwnerNotCached) {
		if err := o.reader.Get(ctx, pool, &Pool{}); !apierrors.IsNotFound(err) {
			if err == nil {
				err = errStale
			}
			return err
		}
	}
	return o.remove(ctx, order)
}

// serve enters an order in the status of its Pool. A Pool that was recreated has none of the orders of the former one,
// so the order has to exist. Orders come at the same time, so the cache is behind often; the Pool is read from the server.
func (o *Operator) serve(ctx context.Context, pool *Pool, order *corev1.Secret) error {
	var live corev1.Secret
	if err := o.reader.Get(ctx, client.ObjectKeyFromObject(order), &live); err != nil {
		return err
	}
	if live.UID != order.UID {
		return errStale
	}
	if !o.has(HistoryPatched) {
		if err := o.reader.Get(ctx, client.ObjectKeyFromObject(pool), pool); err != nil || slices.Contains(pool.Status.Served, string(order.UID)) {
			return err
		}
	}
	before := pool.DeepCopy()
	pool.Status.Served = append(pool.Status.Served, string(order.UID))
	if o.has(HistoryPatched) {
		return o.client.Status().Patch(ctx, pool, client.MergeFrom(before))
	}
	return o.client.Status().Patch(ctx, pool, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}
