package planted

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// mostNumbers is the number of numbers.
const mostNumbers = 200

// number gives a Pool a number that no other Pool has.
func (o *Operator) number(ctx context.Context, pool *Pool) error {
	if pool.Status.Number != 0 {
		return nil
	}
	if err := o.confirm(ctx, pool); err != nil {
		return err
	}
	number, err := o.claim(ctx, pool)
	if err != nil {
		return err
	}
	before := pool.DeepCopy()
	pool.Status.Number = number
	return o.client.Status().Patch(ctx, pool, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}

// claim returns the number that a Pool has claimed, or claims one. The name of the claim has the number, so that the
// server gives it to one Pool only.
func (o *Operator) claim(ctx context.Context, pool *Pool) (int, error) {
	if o.has(NumberFromCache) {
		return o.unusedNumber(ctx, pool)
	}
	var own, all corev1.ConfigMapList
	numbers := client.MatchingLabels{RoleLabel: Number}
	if err := o.reader.List(ctx, &own, client.InNamespace(pool.Namespace), numbers, client.MatchingLabels{UIDLabel: string(pool.UID)}); err != nil {
		return 0, err
	}
	if len(own.Items) > 0 { // the answer was lost, or the cache is behind
		return strconv.Atoi(own.Items[0].Data["number"])
	}
	if err := o.client.List(ctx, &all, client.InNamespace(pool.Namespace), numbers); err != nil {
		return 0, err
	}
	claimed := map[string]bool{} // some of them: a hint only
	for i := range all.Items {
		claimed[all.Items[i].Name] = true
	}
	for number := 1; number <= mostNumbers; number++ {
		name := fmt.Sprintf("number-%d", number)
		if claimed[name] {
			continue
		}
		err := o.client.Create(ctx, &corev1.ConfigMap{
			ObjectMeta: ownedBy(pool, Number, name), Data: map[string]string{"number": strconv.Itoa(number)},
		})
		if apierrors.IsAlreadyExists(err) && !o.has(ExistingIsOwn) {
			continue
		}
		return number, client.IgnoreAlreadyExists(err)
	}
	return 0, errors.New("all numbers are claimed")
}

// unusedNumber returns a number that no Pool in the cache has.
func (o *Operator) unusedNumber(ctx context.Context, pool *Pool) (int, error) {
	var pools PoolList
	if err := o.client.List(ctx, &pools, client.InNamespace(pool.Namespace)); err != nil {
		return 0, err
	}
	used := map[int]bool{}
	for i := range pools.Items {
		used[pools.Items[i].Status.Number] = true
	}
	for number := 1; number <= mostNumbers; number++ {
		if !used[number] {
			return number, nil
		}
	}
	return 0, errors.New("all numbers are used")
}
