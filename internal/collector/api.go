package collector

import (
	"context"
	"fmt"
	"time"

	"github.com/coppice-dev/coppice/internal/feed"
	"github.com/coppice-dev/coppice/internal/ownership"
	"github.com/coppice-dev/coppice/internal/verdict"
)

// API is all that the collector asks of an API server. It has no write that is
// not conditioned: every write takes the observation that it was computed from,
// and is refused unless the object is still that one, by UID and
// resourceVersion (R12). And it has no write of anything but owner references
// and finalizers (R16).
//
// Errors are those of apimachinery's package errors, with two promises. A
// NotFound is said of the object: the server serves its kind, and has no object
// of that name. A Conflict is said of the condition.
type API interface {
	// Get reads an object as it is now.
	Get(ctx context.Context, ref Ref) (ownership.Object, error)
	// Delete deletes an object. It may live on for its finalizers or its grace period.
	Delete(ctx context.Context, observed ownership.Object, propagation verdict.Propagation) error
	// PatchOwners replaces the owner references and returns the object as written.
	PatchOwners(ctx context.Context, observed ownership.Object, owners []ownership.Reference) (ownership.Object, error)
	// PatchFinalizers replaces the finalizers and returns the object as written.
	PatchFinalizers(ctx context.Context, observed ownership.Object, finalizers []string) (ownership.Object, error)

	// The barrier (R15) reads with the following.

	// List reads a page of the objects of a kind, in one namespace or, with "", in
	// all: at most limit of them, from where the page before it ended. All pages
	// show one state of the server, which is not older than the first request.
	List(ctx context.Context, kind ownership.Kind, namespace string, limit int64, after string) (Page, error)
	// Survey asks which kinds could hold dependents. The answer is not older than
	// the request.
	Survey(ctx context.Context) (feed.Watched, error)
	// Newest asks to which revision kinds were written last. The answer is not older
	// than the request. A server that cannot tell answers with the zero Newest, or an
	// error, and is asked for lists.
	Newest(ctx context.Context, kinds []ownership.Kind) (Newest, error)
	// Reached tells which resourceVersion the watch of a kind has come to: all up
	// to there has been told to the Sink. Empty when it is not known. It sends no
	// request.
	Reached(kind ownership.Kind) string
}

// Page is one page of a list.
type Page struct {
	Objects []ownership.Object
	// ResourceVersion is that of the state which the list shows.
	ResourceVersion string
	// Continue is where the next page begins; empty on the last one.
	Continue string
}

// Newest tells what was written last.
type Newest struct {
	// History is another one when the server's revisions may not continue those of
	// before; empty when nothing is known.
	History string
	// Now is the revision of the server.
	Now uint64
	// Writes are, by kind, the revision of its last creation or update, or a later one.
	// Kinds that are not named have to be listed.
	Writes map[ownership.Kind]uint64
}

// Events writes core/v1 Events, for people to read.
type Events interface {
	// Warn writes an Event of type Warning regarding an object.
	Warn(ctx context.Context, regarding ownership.Object, reason, message string) error
}

// Queue holds the keys of objects that wait to be reconsidered. Package queue
// has the one for use; a simulator brings its own, to choose who is next.
type Queue interface {
	// Add puts keys in: something was observed that concerns them.
	Add(uids ...ownership.UID)
	// Retry puts a key in after its back-off, which grows until Forget.
	Retry(uid ownership.UID)
	// After puts a key in when d has passed.
	After(uid ownership.UID, d time.Duration)
	// Forget ends the back-off of a key.
	Forget(uid ownership.UID)
	// Take waits for a key; it returns false after ShutDown.
	Take() (uid ownership.UID, ok bool)
	// Done gives back a key that was taken.
	Done(uid ownership.UID)
	// ShutDown ends the queue.
	ShutDown()
}

// Ref is where an object is found: its kind and its name, which another object
// may have had before.
type Ref struct {
	Kind      ownership.Kind
	Namespace string // empty for a cluster-scoped kind
	Name      string
}

// RefOf is where an object was observed.
func RefOf(o ownership.Object) Ref { return Ref{Kind: o.Kind, Namespace: o.Namespace, Name: o.Name} }

// refOfClaim is where a dependent says that its owner is.
func refOfClaim(c ownership.Claim) Ref {
	return Ref{Kind: c.Kind, Namespace: c.Namespace, Name: c.Name}
}

// String is the reference as logs show it: "ReplicaSet.apps shop/web".
func (r Ref) String() string {
	if r.Namespace == "" {
		return fmt.Sprintf("%s %s", r.Kind, r.Name)
	}
	return fmt.Sprintf("%s %s/%s", r.Kind, r.Namespace, r.Name)
}
