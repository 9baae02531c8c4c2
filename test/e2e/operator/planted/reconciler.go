package planted

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
)

// reconcilePool reconciles a Pool. An error queues the Pool again.
func (o *Operator) reconcilePool(ctx context.Context, request ctrl.Request) error {
	err := o.reconciled(ctx, request)
	if o.has(ErrorDropped) && !apierrors.IsConflict(err) && !errors.Is(err, errStale) {
		return nil // "it was logged"
	}
	return err
}

// reconciled brings a Pool to its desired state.
func (o *Operator) reconciled(ctx context.Context, request ctrl.Request) error {
	var pool Pool
	if err := o.client.Get(ctx, request.NamespacedName, &pool); err != nil {
		return client.IgnoreNotFound(err)
	}
	if !pool.DeletionTimestamp.IsZero() {
		return o.finalize(ctx, &pool)
	}
	if !controllerutil.ContainsFinalizer(&pool, Finalizer) {
		if err := o.patchFinalizers(ctx, &pool, controllerutil.AddFinalizer); err != nil {
			return err
		}
	}
	for _, step := range []func(context.Context, *Pool) error{o.number, o.record, o.enlist} {
		if err := step(ctx, &pool); err != nil {
			return err
		}
	}
	ready, err := o.members(ctx, &pool)
	if err != nil {
		return err
	}
	return o.report(ctx, &pool, ready)
}

// patchFinalizers changes the finalizers of a Pool. A merge patch replaces the whole list; the lock keeps finalizers
// that others have added since.
func (o *Operator) patchFinalizers(ctx context.Context, pool *Pool, change func(client.Object, string) bool) error {
	before := pool.DeepCopy()
	change(pool, Finalizer)
	if o.has(FinalizersPatched) {
		return o.client.Patch(ctx, pool, client.MergeFrom(before))
	}
	return o.client.Patch(ctx, pool, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}

// finalize deletes the record of a Pool and its entry in the directory, and lets the Pool go.
func (o *Operator) finalize(ctx context.Context, pool *Pool) error {
	if !controllerutil.ContainsFinalizer(pool, Finalizer) {
		return nil
	}
	reader := o.reader // the cache may not show yet what this operator has created
	if o.has(CleanupFromCache) {
		reader = o.client
	}
	var records corev1.SecretList
	if err := reader.List(ctx, &records, client.InNamespace(pool.Namespace), client.MatchingLabels{RoleLabel: Record, UIDLabel: string(pool.UID)}); err != nil {
		return err
	}
	for i := range records.Items {
		if err := o.remove(ctx, &records.Items[i]); err != nil {
			return err
		}
	}
	if err := o.delist(ctx, pool); err != nil {
		return err
	}
	return client.IgnoreNotFound(o.patchFinalizers(ctx, pool, controllerutil.RemoveFinalizer))
}

// record creates the record of a Pool.
func (o *Operator) record(ctx context.Context, pool *Pool) error {
	name := "record-" + string(pool.UID)
	err := o.client.Get(ctx, types.NamespacedName{Namespace: pool.Namespace, Name: name}, &corev1.Secret{})
	if !apierrors.IsNotFound(err) {
		return err
	}
	if err := o.confirm(ctx, pool); err != nil {
		return err
	}
	err = o.client.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
		Namespace: pool.Namespace, Name: name, Labels: map[string]string{RoleLabel: Record, UIDLabel: string(pool.UID)},
	}})
	if apierrors.IsAlreadyExists(err) {
		return nil // the name has the UID of the Pool
	}
	return err
}

// enlist enters a Pool in the directory. Many write to it, so the cache shows an older one most of the time; the operator
// reads it from the server.
func (o *Operator) enlist(ctx context.Context, pool *Pool) error {
	var directory corev1.ConfigMap
	key := types.NamespacedName{Namespace: pool.Namespace, Name: Directory}
	if err := o.client.Get(ctx, key, &directory); err != nil || directory.Data[pool.Name] == string(pool.UID) {
		return err
	}
	if err := o.confirm(ctx, pool); err != nil {
		return err
	}
	if o.has(BlindUpdate) {
		directory.ResourceVersion = ""
	} else if err := o.reader.Get(ctx, key, &directory); err != nil {
		return err
	}
	if directory.Data == nil {
		directory.Data = map[string]string{}
	}
	directory.Data[pool.Name] = string(pool.UID)
	return o.client.Update(ctx, &directory)
}

// delist removes the entry of a Pool. It reads the directory from the server: the cache may not show an entry that this
// operator has just made.
func (o *Operator) delist(ctx context.Context, pool *Pool) error {
	var directory corev1.ConfigMap
	err := o.reader.Get(ctx, types.NamespacedName{Namespace: pool.Namespace, Name: Directory}, &directory)
	if err != nil || directory.Data[pool.Name] != string(pool.UID) {
		return client.IgnoreNotFound(err)
	}
	delete(directory.Data, pool.Name)
	return o.client.Update(ctx, &directory)
}

// report writes the status of a Pool with the generation whose spec was reconciled. It writes it even if the cache shows
// the same status: the cache may be behind, and the server makes no new version of an equal object.
func (o *Operator) report(ctx context.Context, pool *Pool, ready int) error {
	status := pool.Status
	status.ObservedGeneration, status.Color, status.Ready = pool.Generation, pool.Spec.Color, ready
	if o.has(GenerationUnread) { // the conflict is avoided, and with it the notice that the spec has changed
		if err := o.reader.Get(ctx, client.ObjectKeyFromObject(pool), pool); err != nil {
			return client.IgnoreNotFound(err)
		}
		status.ObservedGeneration, status.Served, status.Number = pool.Generation, pool.Status.Served, pool.Status.Number
	}
	pool.Status = status
	err := o.client.Status().Update(ctx, pool)
	if o.has(ConflictDropped) && apierrors.IsConflict(err) {
		return nil // "the event of the other change comes soon": it is filtered out if the generation is the same
	}
	return client.IgnoreNotFound(err)
}
