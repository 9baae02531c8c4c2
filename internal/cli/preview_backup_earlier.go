package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coppice-dev/coppice/internal/apiserver/backup"
	"github.com/coppice-dev/coppice/internal/apiserver/keyfile"
	"github.com/coppice-dev/coppice/internal/tools/preview"
	"github.com/coppice-dev/coppice/internal/tools/restore"
	"github.com/coppice-dev/coppice/internal/tools/undo"
)

// attempt is an attempt to delete, after an earlier one of the same command. A refused DELETE removes nothing, so that an object
// which only the earlier backup has is one that somebody else has removed or detached, with two exceptions: the attempt may not
// see the object or one of its direct and indirect owners, or the DELETE of the earlier attempt may have taken effect.
type attempt struct {
	unseen  []preview.UnseenReport // the resources that it could not list
	inDoubt bool                   // an earlier DELETE may have taken effect
	orphans bool                   // the deletion keeps the dependents of the requested objects
	found   undo.Cluster           // the present state of the objects that only the earlier backup has
}

// withEarlier returns the content of a backup with the objects of the earlier one that the attempt still needs.
func (f *backupFlags) withEarlier(ctx context.Context, server *restore.Server, content backup.Content, a *attempt, key *keyfile.Key) (backup.Content, error) {
	if !a.needsEarlier() {
		return content, nil
	}
	earlier, err := f.readEarlier(key)
	if err != nil {
		return content, err
	}
	if a.inDoubt {
		content.Lacks = append(content.Lacks, slices.DeleteFunc(earlier.Lacks, func(line string) bool { return slices.Contains(content.Lacks, line) })...)
	}
	candidates := candidatesOf(earlier.Kept, content.Kept)
	if len(candidates) == 0 {
		return content, nil
	}
	if a.found, err = server.Survey(ctx, candidates); err != nil {
		return content, fmt.Errorf("find out which objects of the last attempt exist: %w", err)
	}
	needed := a.needed(candidates, content.Kept)
	lacks, err := a.renew(ctx, server, needed)
	if err != nil {
		return content, err
	}
	content.Kept, content.Lacks = append(content.Kept, needed...), append(content.Lacks, append(lacks, lacksOf(candidates, needed)...)...)
	return content, nil
}

// needsEarlier reports whether the attempt may need objects that only the earlier backup has.
func (a *attempt) needsEarlier() bool { return a.inDoubt || len(a.unseen) > 0 }

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

// candidatesOf returns the objects that only the earlier backup has. It leaves out an object if the new backup has another one
// with its name: undo could create only one of them.
func candidatesOf(earlier, now []undo.Kept) []undo.Kept {
	uids, places := map[types.UID]bool{}, map[undo.Place]bool{}
	for n := range now {
		uids[now[n].UID()], places[now[n].Place()] = true, true
	}
	return slices.DeleteFunc(earlier, func(k undo.Kept) bool { return uids[k.UID()] || places[k.Place()] })
}

// isUnseen reports whether the resource of an object may be one that the attempt could not list. The list of these has a bound,
// and its entry without a name stands for any resource.
func (a *attempt) isUnseen(k *undo.Kept) bool {
	return slices.ContainsFunc(a.unseen, func(u preview.UnseenReport) bool {
		return u.Resource == "" || u.Resource == k.Resource.GroupResource().String() || u.Resource == k.Resource.Group
	})
}

// isUnread reports whether it is unknown whether an object is at a place.
func (a *attempt) isUnread(p undo.Place) bool {
	_, isUnread := a.found.Unread[p]
	if _, isServed := a.found.Kinds[p.Kind]; !isServed {
		_, isUnread = a.found.UnreadGroups[p.Kind.Group]
	}
	return isUnread
}

// lacksOf returns a line for each needed object that stayed at the last attempt, and goes now: no attempt has looked for its
// dependents.
func lacksOf(candidates, needed []undo.Kept) (lacks []string) {
	stayed := map[types.UID]bool{}
	for n := range candidates {
		stayed[candidates[n].UID()] = candidates[n].Stays
	}
	for n := range needed {
		if k := &needed[n]; stayed[k.UID()] && !k.Stays {
			lacks = append(lacks, fmt.Sprintf("dependents of %s, which stayed at the last attempt", k.Place()))
		}
	}
	return lacks
}

// renew replaces the contents of the needed objects that still exist, because those of the earlier backup may be hours old. For
// each object that cannot be read, it returns a line.
func (a *attempt) renew(ctx context.Context, server *restore.Server, needed []undo.Kept) (lacks []string, err error) {
	existing := map[undo.Place]*undo.Kept{}
	for n := range needed {
		if place := needed[n].Place(); !a.isUnread(place) && a.found.Existing[place].UID == needed[n].UID() {
			existing[place] = &needed[n]
		}
	}
	whole, unread, err := server.Whole(ctx, a.found.Kinds, slices.Collect(maps.Keys(existing)))
	if err != nil {
		return nil, fmt.Errorf("read the objects of the last attempt again: %w", err)
	}
	for place, k := range existing {
		if now := whole[place]; now != nil && now.GetUID() == k.UID() {
			a.replace(k, now)
			k.Resource = a.found.Kinds[place.Kind].Resource
			continue
		}
		lacks = append(lacks, fmt.Sprintf("the present contents of %s (it has those of the last attempt): %s", place, cmp.Or(unread[place], "it is gone now")))
	}
	slices.Sort(lacks)
	return lacks, nil
}

// replace replaces the contents of a kept object by its present ones. An object that is being deleted keeps the finalizers that it
// had before.
func (a *attempt) replace(k *undo.Kept, now *unstructured.Unstructured) {
	isTerminating := now.GetDeletionTimestamp() != nil
	if isTerminating && k.Finalizers == nil {
		k.Finalizers = k.Object.GetFinalizers()
	}
	references := a.references(*k, undo.Existing{Terminating: isTerminating, Owners: now.GetOwnerReferences()})
	k.Object = now
	k.Object.SetOwnerReferences(references)
}
