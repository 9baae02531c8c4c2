package planted

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// members creates, recolors and deletes the members of a Pool, and returns how many are there.
func (o *Operator) members(ctx context.Context, pool *Pool) (ready int, err error) {
	places, excess, err := o.seenMembers(ctx, pool)
	if err != nil {
		return 0, err
	}
	o.forget(pool, places)
	if len(places) < pool.Spec.Size {
		if err := o.createMembers(ctx, pool, places); err != nil {
			return 0, err
		}
	}
	if len(excess) > 0 {
		if err := o.deleteMembers(ctx, pool, excess); err != nil {
			return 0, err
		}
	}
	for _, member := range places {
		if member.Data["color"] != pool.Spec.Color {
			member.Data = map[string]string{"color": pool.Spec.Color}
			if err := o.client.Update(ctx, member); err != nil {
				return 0, err
			}
		}
	}
	return len(places), nil
}

// seenMembers returns the members in the cache: those with a place in the Pool, and those beyond its size, in order.
func (o *Operator) seenMembers(ctx context.Context, pool *Pool) (places map[int]*corev1.ConfigMap, excess []*corev1.ConfigMap, err error) {
	var list corev1.ConfigMapList
	err = o.client.List(ctx, &list, client.InNamespace(pool.Namespace), client.MatchingLabels{RoleLabel: Member, PoolLabel: pool.Name})
	if err != nil {
		return nil, nil, err
	}
	slices.SortFunc(list.Items, func(a, b corev1.ConfigMap) int { return placeOf(&a) - placeOf(&b) })
	places = map[int]*corev1.ConfigMap{}
	for i := range list.Items {
		member := &list.Items[i]
		switch {
		case !metav1.IsControlledBy(member, pool), !member.DeletionTimestamp.IsZero():
		case placeOf(member) < pool.Spec.Size:
			places[placeOf(member)] = member
		default:
			excess = append(excess, member)
		}
	}
	return places, excess, nil
}

// placeOf returns the place of a member.
func placeOf(member *corev1.ConfigMap) int {
	place, err := strconv.Atoi(member.Labels[PlaceLabel])
	if err != nil {
		return -1
	}
	return place
}

func (o *Operator) createMembers(ctx context.Context, pool *Pool, seen map[int]*corev1.ConfigMap) error {
	if err := o.confirm(ctx, pool); err != nil {
		return err
	}
	for place := range pool.Spec.Size {
		if seen[place] != nil || o.remembers(pool, place) {
			continue
		}
		if err := o.createMember(ctx, pool, place); err != nil {
			return fmt.Errorf("create member %d: %w", place, err)
		}
	}
	return nil
}

// createMember creates the member of a place. Its name is a function of the Pool and the place, so the server refuses a
// second one, whatever the cache shows and whichever answer was lost.
func (o *Operator) createMember(ctx context.Context, pool *Pool, place int) error {
	member := &corev1.ConfigMap{
		ObjectMeta: ownedBy(pool, Member, fmt.Sprintf("%s-%d", pool.Name, place)), Data: map[string]string{"color": pool.Spec.Color},
	}
	member.Labels[PlaceLabel] = strconv.Itoa(place)
	switch {
	case o.has(GeneratedName):
		member.Name, member.GenerateName = "", member.Name+"-"
	case o.has(NewNameAfterError):
		member.Name += "-" + rand.String(8)
	case o.has(CountedBeforeWrite):
		o.remember(pool, place)
	}
	err := o.client.Create(ctx, member)
	if err == nil && o.has(NewNameAfterError) {
		o.remember(pool, place)
	}
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	var live corev1.ConfigMap
	if err := o.reader.Get(ctx, client.ObjectKeyFromObject(member), &live); err != nil {
		return err
	}
	if !metav1.IsControlledBy(&live, pool) || !live.DeletionTimestamp.IsZero() {
		return fmt.Errorf("%s belongs to a former Pool: %w", live.Name, errStale)
	}
	return nil
}

// remember keeps that the member of a place was created.
func (o *Operator) remember(pool *Pool, place int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.known[fmt.Sprint(pool.UID, " ", place)] = true
}

// remembers reports whether the member of a place was created and is not in the cache yet.
func (o *Operator) remembers(pool *Pool, place int) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.known[fmt.Sprint(pool.UID, " ", place)]
}

// forget drops the places whose members are in the cache.
func (o *Operator) forget(pool *Pool, seen map[int]*corev1.ConfigMap) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for place := range seen {
		delete(o.known, fmt.Sprint(pool.UID, " ", place))
	}
}

// deleteMembers deletes the members beyond the size of the Pool, if that is still its size.
func (o *Operator) deleteMembers(ctx context.Context, pool *Pool, excess []*corev1.ConfigMap) error {
	if err := o.confirm(ctx, pool); err != nil {
		return err
	}
	if o.has(DeletedAgain) {
		return o.deleteSome(ctx, pool, len(excess))
	}
	for _, member := range excess {
		if err := o.remove(ctx, member); err != nil {
			return err
		}
	}
	return nil
}

// deleteSome deletes a number of members, the last ones first. It does not count members that are gone already,
// although the number comes from a list with them.
func (o *Operator) deleteSome(ctx context.Context, pool *Pool, number int) error {
	var list corev1.ConfigMapList
	err := o.client.List(ctx, &list, client.InNamespace(pool.Namespace), client.MatchingLabels{RoleLabel: Member, UIDLabel: string(pool.UID)})
	if err != nil {
		return err
	}
	slices.SortFunc(list.Items, func(a, b corev1.ConfigMap) int { return placeOf(&b) - placeOf(&a) })
	for i := range list.Items {
		if number == 0 {
			return nil
		}
		switch err := o.client.Delete(ctx, &list.Items[i]); {
		case err == nil:
			number--
		case !apierrors.IsNotFound(err):
			return err
		}
	}
	return nil
}
