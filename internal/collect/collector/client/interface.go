// Package client defines the requests of the collector to an API server, and makes them with
// client-go.
//
//  1. Interface lists the requests: live reads, the three conditioned writes, and the reads of
//     the barrier (R15). The collector reaches a server in no other way.
//  2. Client makes them, on metadata only, with client-go's metadata client. NotFound
//     errors that are not about the object become other errors (notfound.go, R3), and
//     answers with Retry-After come back at once (transport.go).
//  3. Limited bounds how many requests are under way.
//  4. EventClient writes core/v1 Events.
//
// It decides nothing and retries nothing: that is up to the collector.
package client

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/coppice-dev/coppice/internal/collect/feed"
	"github.com/coppice-dev/coppice/internal/rules/apiservice"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/rules/verdict"
)

// Interface has all requests of the collector to an API server. Every write is conditioned: it
// takes the observation that it was computed from, and is refused unless the object still has the
// same UID and resourceVersion (R12). Nothing but owner references and finalizers can be written
// (R16).
//
// Errors are errors of apimachinery's package errors, with two guarantees. NotFound means that
// the server serves the kind, and has no object of that name. Conflict means that the
// precondition failed.
type Interface interface {
	// Get reads the current state of an object.
	Get(ctx context.Context, ref Ref) (ownership.Object, error)
	// Delete deletes an object. It may live on for its finalizers or its grace period.
	Delete(ctx context.Context, observed ownership.Object, propagation verdict.Propagation) error
	// PatchOwners replaces the owner references and returns the object as written.
	PatchOwners(ctx context.Context, observed ownership.Object, owners []ownership.Reference) (ownership.Object, error)
	// PatchFinalizers replaces the finalizers and returns the object as written.
	PatchFinalizers(ctx context.Context, observed ownership.Object, finalizers []string) (ownership.Object, error)

	// The following methods are the reads of the barrier (R15).

	// List reads a page of the objects of a kind, in one namespace or, with "", in
	// all: at most limit of them, from where the page before it ended. All pages
	// show one state of the server, which is not older than the first request.
	List(ctx context.Context, kind ownership.Kind, namespace string, limit int64, after string) (Page, error)
	// Survey returns the kinds that could hold dependents. The answer is not older than the request.
	Survey(ctx context.Context) (feed.Watched, error)
	// Newest returns the revisions at which kinds were last written to. The answer is not older than
	// the request. A server without this knowledge returns the zero Newest, or an error; the kinds
	// have to be listed then.
	Newest(ctx context.Context, kinds []ownership.Kind) (Newest, error)
	// Reached returns the resourceVersion that the watch of a kind has reached: all events up to it
	// have been passed to the Sink. It is empty if unknown. Reached sends no request.
	Reached(kind ownership.Kind) string
	// Outage returns why a group version does not answer. It is the zero Outage if nothing is known about that.
	Outage(ctx context.Context, groupVersion string) (apiservice.Outage, error)
	// Created returns when an object was created. NotFound means that it does not exist any more, too.
	Created(ctx context.Context, observed ownership.Object) (time.Time, error)
}

// PageSize is the number of objects in a full page of a list.
const PageSize = 500

// Page is one page of a list.
type Page struct {
	Objects []ownership.Object
	// ResourceVersion is the version of the state that the list shows.
	ResourceVersion string
	// Continue is the token of the next page; empty on the last one.
	Continue string
}

// Newest holds the last writes by kind.
type Newest struct {
	// History changes when the server's revisions may not continue the earlier ones; it is empty if
	// unknown.
	History string
	// Now is the revision of the server.
	Now uint64
	// Writes are, by kind, the revision of its last creation or update, or a later one. Kinds
	// that are missing here have to be listed.
	Writes map[ownership.Kind]uint64
}

// Ref locates an object by its kind and its name, which another object may have had before.
type Ref struct {
	Kind      ownership.Kind
	Namespace string // empty for a cluster-scoped kind
	Name      string
}

// RefOf returns the Ref of an observed object.
func RefOf(o ownership.Object) Ref { return Ref{Kind: o.Kind, Namespace: o.Namespace, Name: o.Name} }

// RefOfClaim returns the Ref of the owner that a dependent claims.
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

// Revision returns a resourceVersion as a number, if it is one.
func Revision(resourceVersion string) (uint64, bool) {
	n, err := strconv.ParseUint(resourceVersion, 10, 64)
	return n, err == nil && n > 0
}
