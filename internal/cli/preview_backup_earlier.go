package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	content.Kept = append(content.Kept, a.needed(candidates, content.Kept)...)
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

// candidatesOf returns the objects that only the earlier backup has. An object whose place another one has now is none: undo could
// create only one of them.
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

// needed returns the candidates that the new backup needs, as it should have them. now has the objects of the new backup that the
// attempt has found. The preview reaches an object only through owners that it sees: a dependent of a needed object is needed, too.
func (a *attempt) needed(candidates, now []undo.Kept) []undo.Kept {
	going := removed{}
	going.add(now)
	var needed []undo.Kept
	for {
		var found []undo.Kept
		candidates = slices.DeleteFunc(candidates, func(k undo.Kept) bool {
			still, isNeeded := a.needs(k, going)
			if isNeeded {
				found = append(found, still)
			}
			return isNeeded
		})
		if len(found) == 0 {
			return needed
		}
		going.add(found)
		needed = append(needed, found...)
	}
}

// removed has the UIDs of the objects that a deletion removes, or may remove.
type removed map[types.UID]bool

// add adds objects, without those that only lose references.
func (r removed) add(kept []undo.Kept) {
	for n := range kept {
		if !kept[n].Stays {
			r[kept[n].UID()] = true
		}
	}
}

// owns reports whether one of these objects is an owner.
func (r removed) owns(references []metav1.OwnerReference) bool {
	return slices.ContainsFunc(references, func(owner metav1.OwnerReference) bool { return r[owner.UID] })
}

// needs returns a candidate as the new backup should have it, and whether it should.
func (a *attempt) needs(k undo.Kept, going removed) (undo.Kept, bool) {
	now, isThere := a.found.Existing[k.Place()]
	switch {
	case a.isUnread(k.Place()):
		return k, true
	case !isThere || now.UID != k.UID():
		return k, a.inDoubt // a DELETE that was refused has not removed it
	case k.Stays && a.inDoubt:
		return k, true // the DELETE may have removed its references
	case a.isUnseen(&k), going.owns(now.Owners):
		return withReferences(k, now.Owners), true
	}
	return k, a.inDoubt && now.Terminating // else the deletion does not affect it any more: the preview does not have it
}

// isUnread reports whether it is unknown whether an object is at a place.
func (a *attempt) isUnread(p undo.Place) bool {
	_, isUnread := a.found.Unread[p]
	if _, isServed := a.found.Kinds[p.Kind]; !isServed {
		_, isUnread = a.found.UnreadGroups[p.Kind.Group]
	}
	return isUnread
}

// withReferences returns a kept object without the references to owners that it has lost: undo would restore them.
func withReferences(k undo.Kept, has []metav1.OwnerReference) undo.Kept {
	var left []metav1.OwnerReference
	for _, r := range k.Object.GetOwnerReferences() {
		if slices.ContainsFunc(has, func(owner metav1.OwnerReference) bool { return owner.UID == r.UID }) {
			left = append(left, r)
		}
	}
	k.Object = k.Object.DeepCopy()
	k.Object.SetOwnerReferences(left)
	return k
}
