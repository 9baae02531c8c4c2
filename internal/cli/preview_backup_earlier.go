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
	"github.com/coppice-dev/coppice/internal/tools/restore"
	"github.com/coppice-dev/coppice/internal/tools/undo"
)

// attempt is an attempt to delete, after an earlier one of the same command. Its backup may need objects of the earlier backup
// in two cases. Without them, nothing could restore an object that the deletion removes; with one too many, undo says what it
// creates. So whatever the attempt cannot know counts as removed by the deletion.
type attempt struct {
	isBlind bool // it cannot see all objects that the deletion may remove
	inDoubt bool // an earlier DELETE may have taken effect
	orphans bool // the deletion keeps the dependents of the requested objects
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
	present, unread, err := readPresent(ctx, server, candidates)
	if err != nil {
		return content, err
	}
	var certain, belonging []undo.Kept
	for _, k := range candidates {
		_, isUnread := unread[k.Place()]
		switch k, needs := a.needed(k, present[k.Place()], isUnread); needs {
		case needsAlways:
			certain = append(certain, k)
		case needsWithOwner:
			belonging = append(belonging, k)
		case needsNever:
		}
	}
	content.Kept = append(content.Kept, certain...)
	content.Kept = append(content.Kept, attached(belonging, content.Kept)...)
	return content, nil
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

// readPresent reads the present objects at the places of kept ones, with the resources that these had. An object in neither result
// is gone.
func readPresent(ctx context.Context, server *restore.Server, kept []undo.Kept) (present map[undo.Place]*unstructured.Unstructured, unread map[undo.Place]string, err error) {
	kinds, places := map[schema.GroupKind]undo.Kind{}, make([]undo.Place, len(kept))
	for n := range kept {
		places[n] = kept[n].Place()
		kinds[places[n].Kind] = undo.Kind{Resource: kept[n].Resource}
	}
	if present, unread, err = server.Whole(ctx, kinds, places); err != nil {
		return nil, nil, fmt.Errorf("read the objects of the last attempt again: %w", err)
	}
	return present, unread, nil
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
				again.Object, again.Finalizers = k.Object, k.Finalizers // as it was before its deletion
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

// needed returns an object that only the earlier backup has, as the new one should have it. present is the object that has the place
// now; nil for none.
func (a attempt) needed(k undo.Kept, present *unstructured.Unstructured, isUnread bool) (undo.Kept, necessity) {
	if a.isBlind && !a.orphans {
		k.Stays = false // the attempt may not see that the object has lost its other owners
	}
	switch {
	case isUnread:
		k.Earlier = true
		return k, needsAlways
	case present == nil, present.GetUID() != k.UID():
		if a.inDoubt {
			return k, needsAlways
		}
		return k, needsNever
	case isTerminating(present):
		return k, needsAlways
	}
	former := k.Object.GetOwnerReferences()
	k.Object, k.Finalizers, k.Earlier = present, nil, false
	if a.inDoubt && (k.Stays || a.orphans) { // the DELETE may have removed references
		k.Object.SetOwnerReferences(withReferences(present.GetOwnerReferences(), former))
		return k, needsAlways
	}
	return k, needsWithOwner
}

// attached returns the objects that belong to kept ones, or to others that do: to an owner, their namespace or their definition.
func attached(objects, kept []undo.Kept) []undo.Kept {
	for before := len(objects) + 1; len(objects) < before; {
		before = len(objects)
		known := map[any]bool{}
		for _, k := range slices.Concat(kept, objects) {
			known[k.UID()], known[k.Place()] = true, true
		}
		objects = slices.DeleteFunc(objects, func(k undo.Kept) bool {
			isOwned := slices.ContainsFunc(k.Object.GetOwnerReferences(), func(r metav1.OwnerReference) bool { return known[r.UID] })
			namespace := undo.Place{Kind: schema.GroupKind{Kind: "Namespace"}, Name: k.Object.GetNamespace()}
			definition := undo.Place{
				Kind: schema.GroupKind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}, Name: k.Resource.GroupResource().String(),
			}
			return !isOwned && !known[namespace] && !known[definition]
		})
	}
	return objects
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
