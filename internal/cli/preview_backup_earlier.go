package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coppice-dev/coppice/internal/apiserver/backup"
	"github.com/coppice-dev/coppice/internal/apiserver/keyfile"
	"github.com/coppice-dev/coppice/internal/tools/preview"
	"github.com/coppice-dev/coppice/internal/tools/restore"
	"github.com/coppice-dev/coppice/internal/tools/undo"
)

// attempt is what an attempt to delete knows about the deletion. If it is blind or in doubt, its backup needs objects of the backup
// that an earlier attempt of the same command has made. Nothing could restore an object that a backup lacks, but undo says what it
// creates: so an object counts as removed unless the attempt knows that it stays.
type attempt struct {
	isBlind  bool               // it cannot see all objects that the deletion may remove
	inDoubt  bool               // an earlier DELETE may have taken effect
	orphaned map[types.UID]bool // the requested objects, if the deletion keeps their dependents
}

// attempt returns an attempt whose backup has objects, and for which resources are unseen.
func (f *backupFlags) attempt(kept []undo.Kept, unseen []preview.UnseenReport) attempt {
	a := attempt{isBlind: len(unseen) > 0, inDoubt: f.isNeeded, orphaned: map[types.UID]bool{}}
	for n := range kept {
		if f.orphans && kept[n].Requested {
			a.orphaned[kept[n].UID()] = true
		}
	}
	return a
}

// doubtStays clears Stays of the objects of a backup that may go: a blind attempt may not see that their other owners go.
func (a attempt) doubtStays(kept []undo.Kept) {
	for n := range kept {
		if a.isBlind && !a.isOrphan(kept[n].Object) {
			kept[n].Stays = false
		}
	}
}

// isOrphan reports whether an object is certain to stay: it has no owners but those that the deletion separates it from.
func (a attempt) isOrphan(o *unstructured.Unstructured) bool {
	isOther := func(r metav1.OwnerReference) bool { return !a.orphaned[r.UID] }
	return len(a.orphaned) > 0 && !slices.ContainsFunc(o.GetOwnerReferences(), isOther)
}

// needsEarlier reports whether the backup may need objects of the earlier one. Without a doubt, the earlier DELETE was refused, and
// has removed nothing.
func (a attempt) needsEarlier() bool { return a.inDoubt || a.isBlind }

// withEarlier returns the content of a backup with the objects of the earlier one that the attempt still needs.
func (f *backupFlags) withEarlier(ctx context.Context, server *restore.Server, content backup.Content, a attempt, key *keyfile.Key) (backup.Content, error) {
	if !a.needsEarlier() {
		return content, nil
	}
	earlier, err := f.readEarlier(key)
	if err != nil {
		return content, err
	}
	content.Lacks = append(content.Lacks, slices.DeleteFunc(earlier.Lacks, func(line string) bool { return slices.Contains(content.Lacks, line) })...)
	candidates := a.combine(content.Kept, earlier.Kept)
	found, err := readPresent(ctx, server, candidates)
	if err != nil {
		return content, err
	}
	content.Kept = append(content.Kept, a.stillNeeded(candidates, earlier.Kept, content.Kept, found)...)
	return content, nil
}

// present is what a later attempt has read of objects that only the earlier backup has. An object in neither map is gone.
type present struct {
	objects map[undo.Place]*unstructured.Unstructured
	unread  map[undo.Place]string
}

// stillNeeded returns the objects that only the earlier backup has, and that the new one needs, too. earlier and now are the objects
// of both backups.
func (a attempt) stillNeeded(candidates, earlier, now []undo.Kept, found present) []undo.Kept {
	wasAttached := map[types.UID]bool{}
	for _, k := range attached(candidates, earlier) {
		wasAttached[k.UID()] = true
	}
	var needed, belonging []undo.Kept
	for _, k := range candidates {
		_, isUnread := found.unread[k.Place()]
		switch k, needs := a.needed(k, found.objects[k.Place()], isUnread); {
		case needs == needsNever:
		case needs == needsWithOwner && wasAttached[k.UID()]:
			belonging = append(belonging, k)
		default: // the earlier attempt may have had another reason to keep the object, which this one cannot check
			needed = append(needed, k)
		}
	}
	return append(needed, attached(belonging, slices.Concat(now, needed))...)
}

// readEarlier returns the backup of the last attempt. It has no objects if the user has removed it.
func (f *backupFlags) readEarlier(key *keyfile.Key) (backup.Content, error) {
	text, err := os.ReadFile(f.file)
	if errors.Is(err, os.ErrNotExist) {
		return backup.Content{}, nil
	}
	if err != nil {
		return backup.Content{}, fmt.Errorf("read the backup of the last attempt: %w", err)
	}
	earlier, _, err := backup.Open(text, key)
	if err != nil {
		return backup.Content{}, fmt.Errorf("%s: %w", f.file, err)
	}
	return earlier, nil
}

// readPresent reads the present objects at the places of kept ones, with the resources that these had.
func readPresent(ctx context.Context, server *restore.Server, kept []undo.Kept) (found present, err error) {
	kinds, places := map[schema.GroupKind]undo.Kind{}, make([]undo.Place, len(kept))
	for n := range kept {
		places[n] = kept[n].Place()
		kinds[places[n].Kind] = undo.Kind{Resource: kept[n].Resource}
	}
	if found.objects, found.unread, err = server.Whole(ctx, kinds, places); err != nil {
		return found, fmt.Errorf("read the objects of the last attempt again: %w", err)
	}
	return found, nil
}

// combine completes the objects of a new backup by what the earlier one knows about them, and returns the objects that only the
// earlier one has. These do not include one if the new backup has another one with its name: undo could create only one of them.
func (a attempt) combine(now, earlier []undo.Kept) (candidates []undo.Kept) {
	uids, places := map[types.UID]*undo.Kept{}, map[undo.Place]bool{}
	for n := range now {
		uids[now[n].UID()], places[now[n].Place()] = &now[n], true
	}
	for _, k := range earlier {
		switch again := uids[k.UID()]; {
		case again != nil:
			again.Stays = again.Stays && k.Stays
			if a.inDoubt && isTerminating(again.Object) && !isTerminating(k.Object) {
				again.Object, again.Finalizers, again.Earlier = k.Object, k.Finalizers, true // as it was before its deletion
			}
		case !places[k.Place()]:
			candidates = append(candidates, k)
		}
	}
	return candidates
}

func isTerminating(o *unstructured.Unstructured) bool { return o.GetDeletionTimestamp() != nil }

// necessity is whether a backup needs an object of the earlier one.
type necessity int

const (
	needsNever necessity = iota
	needsAlways
	needsWithOwner // it exists: if the deletion removes nothing to which it belongs, it stays
)

// needed returns an object that only the earlier backup has, as the new one should have it. now is the object that has the place; nil for
// none.
func (a attempt) needed(k undo.Kept, now *unstructured.Unstructured, isUnread bool) (undo.Kept, necessity) {
	isGone := now == nil || now.GetUID() != k.UID()
	last, stayed := k.Object, k.Stays
	if !isGone {
		last = now
	}
	if (a.isBlind || isGone) && !a.isOrphan(last) {
		k.Stays = false // the attempt may not see that the object has lost its other owners
	}
	switch {
	case isUnread:
		k.Earlier = true
		return k, needsAlways
	case isGone && !a.inDoubt:
		return k, needsNever
	case isGone:
		return k, needsAlways
	case isTerminating(now) && a.inDoubt:
		k.Earlier = true // as it was before its deletion
		return k, needsAlways
	}
	former := k.Object
	k.Object, k.Earlier, k.Resource.Version = now, false, now.GroupVersionKind().Version
	switch {
	case !isTerminating(now):
		k.Finalizers = nil
	case k.Finalizers == nil: // its deletion removes them one by one
		k.Finalizers = former.GetFinalizers()
	}
	if a.inDoubt && (stayed || len(a.orphaned) > 0) { // the DELETE may have removed references
		k.Object.SetOwnerReferences(withReferences(now.GetOwnerReferences(), former.GetOwnerReferences()))
		return k, needsAlways
	}
	return k, needsWithOwner
}

// attached returns the objects that belong to kept ones, or to others that do: to an owner, their namespace or their definition.
func attached(objects, kept []undo.Kept) (found []undo.Kept) {
	known := map[any]bool{}
	know := func(k *undo.Kept) { known[k.UID()], known[k.Place()] = true, true }
	for n := range kept {
		know(&kept[n])
	}
	for before := -1; len(found) > before; {
		before = len(found)
		objects = slices.DeleteFunc(slices.Clone(objects), func(k undo.Kept) bool {
			isAttached := slices.ContainsFunc(k.Scopes(), func(p undo.Place) bool { return known[p] }) ||
				slices.ContainsFunc(k.Object.GetOwnerReferences(), func(r metav1.OwnerReference) bool { return known[r.UID] })
			if isAttached {
				know(&k)
				found = append(found, k)
			}
			return isAttached
		})
	}
	return found
}

// withReferences returns owner references, and the former ones to other owners.
func withReferences(present, former []metav1.OwnerReference) []metav1.OwnerReference {
	all := slices.Clone(present)
	for _, r := range former {
		if !slices.ContainsFunc(all, func(has metav1.OwnerReference) bool { return has.UID == r.UID }) {
			all = append(all, r)
		}
	}
	return all
}

// placesOfEarlier names the kept objects whose contents are those of an earlier attempt.
func placesOfEarlier(kept []undo.Kept) (places []string) {
	for n := range kept {
		if kept[n].Earlier {
			places = append(places, kept[n].Place().String())
		}
	}
	return places
}
