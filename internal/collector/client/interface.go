// Package client is what the collector asks of an API server, and the client-go client
// that asks it.
//
//  1. Interface lists the requests: live reads, the three conditioned writes, and the
//     reads of the barrier (R15). There is no other way for the collector to reach a server.
//  2. Client makes them, on metadata only, with client-go's metadata client. NotFound
//     errors that are not about the object become other errors (notfound.go, R3), and
//     answers with Retry-After come back at once (transport.go).
//  3. Limited bounds how many requests are under way.
//  4. EventClient writes core/v1 Events.
//
// It decides nothing and retries nothing: that is the collector's.
package client

import (
	"context"
	"fmt"
	"strconv"

	"github.com/coppice-dev/coppice/internal/feed"
	"github.com/coppice-dev/coppice/internal/ownership"
	"github.com/coppice-dev/coppice/internal/verdict"
)

// Interface is all that the collector asks of an API server. It has no write that is
// not conditioned: every write takes the observation that it was computed from,
// and is refused unless the object is still that one, by UID and
// resourceVersion (R12). And it has no write of anything but owner references
// and finalizers (R16).
//
// Errors are those of apimachinery's package errors, with two promises. A
// NotFound is about the object: the server serves its kind, and has no object
// of that name. A Conflict is about the condition.
type Interface interface {
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
	// Survey returns which kinds could hold dependents. The answer is not older than
	// the request.
	Survey(ctx context.Context) (feed.Watched, error)
	// Newest returns to which revision kinds were written last. The answer is not older
	// than the request. From a server that cannot tell it is the zero Newest, or an
	// error; the kinds have to be listed then.
	Newest(ctx context.Context, kinds []ownership.Kind) (Newest, error)
	// Reached returns which resourceVersion the watch of a kind has come to: the Sink
	// has been told of everything up to there. Empty when it is not known. It sends no
	// request.
	Reached(kind ownership.Kind) string
}

// PageSize is how many objects a full page of a list has.
const PageSize = 500

// Page is one page of a list.
type Page struct {
	Objects []ownership.Object
	// ResourceVersion is that of the state which the list shows.
	ResourceVersion string
	// Continue is where the next page begins; empty on the last one.
	Continue string
}

// Newest says what was written last.
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

// Ref is where an object is found: its kind and its name, which another object
// may have had before.
type Ref struct {
	Kind      ownership.Kind
	Namespace string // empty for a cluster-scoped kind
	Name      string
}

// RefOf returns where an object was observed.
func RefOf(o ownership.Object) Ref { return Ref{Kind: o.Kind, Namespace: o.Namespace, Name: o.Name} }

// RefOfClaim returns where a dependent says that its owner is.
func RefOfClaim(c ownership.Claim) Ref {
	return Ref{Kind: c.Kind, Namespace: c.Namespace, Name: c.Name}
}

// String returns the reference as logs show it: "ReplicaSet.apps shop/web".
func (r Ref) String() string {
	if r.Namespace == "" {
		return fmt.Sprintf("%s %s", r.Kind, r.Name)
	}
	return fmt.Sprintf("%s %s/%s", r.Kind, r.Namespace, r.Name)
}

// Revision returns a resourceVersion as a number, where it is one.
func Revision(resourceVersion string) (uint64, bool) {
	n, err := strconv.ParseUint(resourceVersion, 10, 64)
	return n, err == nil && n > 0
}
