package planted

import (
	"cmp"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// missing compares a state with what the users want, and returns the first difference; "" if there is none.
func (h *history) missing(now *state) string {
	for uid, wanted := range h.plan {
		var difference string
		if wanted.gone {
			difference = remains(now, uid, wanted)
		} else {
			difference = cmp.Or(unfinished(now, uid, wanted), h.unserved(now.pools[uid]))
		}
		if difference != "" {
			return difference
		}
	}
	for entry := range h.entries {
		if now.directory[entry] == "" {
			return fmt.Sprintf("entries of others: %s is not in the directory", entry)
		}
	}
	for uid, order := range now.orders {
		return fmt.Sprintf("orders go: %s (%s) is still there", order.Name, uid)
	}
	return ""
}

// remains returns what is left of a Pool that a user has deleted.
func remains(now *state, pool types.UID, wanted wish) string {
	if now.pools[pool] != nil {
		return fmt.Sprintf("deleted Pools go: %s is still there", wanted.name)
	}
	if of(now.records, pool) {
		return fmt.Sprintf("nothing of a deleted Pool stays: there is a record of %s (%s)", wanted.name, pool)
	}
	for entry, owner := range now.directory {
		if owner == string(pool) {
			return fmt.Sprintf("nothing of a deleted Pool stays: the directory has %s", entry)
		}
	}
	if of(now.members, pool) || of(now.numbers, pool) {
		return fmt.Sprintf("%sthere are objects that %s (%s) owns", uncollected, wanted.name, pool)
	}
	return ""
}

// uncollected begins a difference for which the collector of the control plane has to act.
const uncollected = "nothing of a deleted Pool stays for long: "

// of reports whether an object belongs to a Pool.
func of[T interface{ GetLabels() map[string]string }](objects map[types.UID]T, pool types.UID) bool {
	for _, object := range objects {
		if object.GetLabels()[UIDLabel] == string(pool) {
			return true
		}
	}
	return false
}

// unfinished returns what a live Pool does not have as its user wants.
func unfinished(now *state, uid types.UID, wanted wish) string {
	pool := now.pools[uid]
	if pool == nil {
		return fmt.Sprintf("live Pools stay: %s (%s) is not there", wanted.name, uid)
	}
	if s := pool.Status; s.ObservedGeneration != pool.Generation || s.Color != wanted.color || s.Ready != wanted.size || s.Number == 0 {
		return fmt.Sprintf("status: Pool %s wants size %d and color %s, has generation %d and the status %+v",
			pool.Name, wanted.size, wanted.color, pool.Generation, s)
	}
	if now.directory[wanted.name] != string(uid) {
		return fmt.Sprintf("directory: it has no entry for Pool %s", wanted.name)
	}
	places := map[int]int{}
	for _, member := range now.members {
		if member.Labels[UIDLabel] != string(uid) {
			continue
		}
		places[placeOf(member)]++
		if member.Data["color"] != wanted.color || placeOf(member) >= wanted.size {
			return fmt.Sprintf("members: %s is in a Pool of size %d and color %s, and has %s", member.Name, wanted.size, wanted.color, member.Data["color"])
		}
	}
	for place := range wanted.size {
		if places[place] != 1 {
			return fmt.Sprintf("members: Pool %s has %d for the place %d", wanted.name, places[place], place)
		}
	}
	return ""
}

// unserved returns an order that a live Pool has not served, or has served twice.
func (h *history) unserved(pool *Pool) string {
	if pool == nil {
		return ""
	}
	for order, of := range h.ordered {
		if of == pool.UID && !slices.Contains(pool.Status.Served, string(order)) {
			return fmt.Sprintf("orders are served: Pool %s (%s) has not served %s, which is there: %t; it has served %v",
				pool.Name, pool.UID, order, h.now.orders[order] != nil, pool.Status.Served)
		}
	}
	if all := slices.Sorted(slices.Values(pool.Status.Served)); len(slices.Compact(all)) != len(pool.Status.Served) {
		return fmt.Sprintf("orders are served once: Pool %s has served %v", pool.Name, pool.Status.Served)
	}
	return ""
}
