package recyclebin

import (
	"context"
	"errors"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coppice-dev/coppice/internal/apiserver/etcd"
)

// maxReplay bounds the number of revisions in which keep looks for the dependents of orphaned owners.
const maxReplay = 10_000

// orphaned has removed owners whose deletion kept the dependents, and the revisions during these deletions: the
// collector removes the references to an owner before the owner.
type orphaned struct {
	owners      map[types.UID]bool
	after, upTo int64
}

func newOrphaned() *orphaned { return &orphaned{owners: map[types.UID]bool{}} }

// add adds an owner that was marked at one revision and removed at another one.
func (r *orphaned) add(owner types.UID, marked, removed int64) {
	if len(r.owners) == 0 || marked-1 < r.after {
		r.after = marked - 1
	}
	r.owners[owner], r.upTo = true, removed
}

// mayName reports whether a stored object contains the UID of an owner. It takes one pass, however many owners there
// are.
func (r *orphaned) mayName(value []byte) bool {
	const length = len("01234567-0123-0123-0123-0123456789ab")
	for ; len(value) >= length; value = value[1:] {
		if value[8] == '-' && value[13] == '-' && r.owners[types.UID(value[:length])] {
			return true
		}
	}
	return false
}

// errOrphansUnknown is the error for the dependents of orphaned owners if etcd has dropped the revisions during the
// deletion, or if these are too many.
var errOrphansUnknown = errors.New("the history of the orphan deletion is gone or too long")

// survivors returns entries of the objects that have lost references to orphaned owners, with these references.
func (b *Bin) survivors(ctx context.Context, r *orphaned) (entries []entry, err error) {
	switch {
	case len(r.owners) == 0:
		return nil, nil
	case r.upTo-r.after > maxReplay:
		return nil, errOrphansUnknown
	}
	namespaces := map[string]types.UID{}
	var failed error
	err = b.store.Follower().ReplayUpdates(ctx, r.after, r.upTo, func(before, now etcd.Stored) {
		if failed != nil || !r.mayName(before.Value) {
			return
		}
		var e *entry
		if e, failed = b.survivor(ctx, r, namespaces, [2]etcd.Stored{before, now}); e != nil {
			entries = append(entries, *e)
		}
	})
	if errors.Is(err, etcd.ErrCompacted) {
		return nil, errOrphansUnknown
	}
	return entries, errors.Join(err, failed)
}

// survivor returns the entry of an object with the references to orphaned owners that an update has removed; nil if it
// has removed none.
func (b *Bin) survivor(ctx context.Context, r *orphaned, namespaces map[string]types.UID, update [2]etcd.Stored) (*entry, error) {
	before, err := b.decode.decode(update[0].Value)
	now, errNow := b.decode.decode(update[1].Value)
	if err != nil || errNow != nil {
		return nil, nil //nolint:nilerr // it is no object, or cannot be undone either
	}
	lost := slices.DeleteFunc(before.GetOwnerReferences(), func(owner metav1.OwnerReference) bool {
		isKept := slices.ContainsFunc(now.GetOwnerReferences(), func(o metav1.OwnerReference) bool { return o.UID == owner.UID })
		return isKept || !r.owners[owner.UID]
	})
	if len(lost) == 0 {
		return nil, nil // nothing to keep
	}
	o := &unstructured.Unstructured{Object: map[string]any{}}
	o.SetGroupVersionKind(before.GroupVersionKind())
	o.SetNamespace(before.GetNamespace())
	o.SetName(before.GetName())
	o.SetUID(before.GetUID())
	o.SetOwnerReferences(lost)
	e, err := b.entryOf(o, update[1].Key, update[1].Revision)
	if err != nil {
		return nil, err
	}
	e.Stays = true
	e.NamespaceUID, err = b.namespaceOf(ctx, namespaces, o, update[1].Revision)
	return &e, err
}
