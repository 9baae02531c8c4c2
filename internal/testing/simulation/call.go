package simulation

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/coppice-dev/coppice/internal/collect/collector/client"
	"github.com/coppice-dev/coppice/internal/collect/feed"
	"github.com/coppice-dev/coppice/internal/rules/apiservice"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/rules/verdict"
)

// The verbs of requests.
const (
	get             = "get"
	remove          = "delete"
	patchOwners     = "patch owners"
	patchFinalizers = "patch finalizers"
	list            = "list"
	survey          = "survey"
	newest          = "newest"
)

// call is a request of the collector in flight.
type call struct {
	verb    string
	ref     client.Ref    // of a list: without a name
	uid     ownership.UID // condition
	version string        // condition

	propagation verdict.Propagation
	owners      []ownership.Reference
	finalizers  []string
	after       string // of a list: the end of the previous page

	worker   *worker
	executed bool // the server has executed it; the answer has not arrived yet

	// The answer.
	object ownership.Object
	page   client.Page
	kinds  feed.Watched
	newest client.Newest
	err    error
}

func (c *call) String() string {
	if c.verb == survey || c.verb == newest {
		return c.verb
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s", c.verb, refText(c.ref))
	if !c.isRead() {
		fmt.Fprintf(&b, " if #%s@%s", number(c.uid), c.version)
	}
	switch c.verb {
	case remove:
		fmt.Fprintf(&b, " %s", c.propagation)
	case patchOwners:
		fmt.Fprintf(&b, " to [%s]", ownersText(c.owners))
	case patchFinalizers:
		fmt.Fprintf(&b, " to [%s]", strings.Join(c.finalizers, ","))
	}
	return b.String()
}

func (c *call) isRead() bool {
	return c.verb == get || c.verb == list || c.verb == survey || c.verb == newest
}

// void drops the answer.
func (c *call) void() {
	c.object, c.page, c.kinds, c.newest, c.err = ownership.Object{}, client.Page{}, feed.Watched{}, client.Newest{}, errTimeout
}

// api is the collector's client: every request stops the worker that sends it, until the scheduler
// lets it continue.
type api struct{ cluster *cluster }

var _ client.Interface = api{}

// Get implements client.Interface.
func (a api) Get(_ context.Context, ref client.Ref) (ownership.Object, error) {
	return a.send(&call{verb: get, ref: ref})
}

// List implements client.Interface.
func (a api) List(_ context.Context, kind ownership.Kind, namespace string, _ int64, after string) (client.Page, error) {
	c := &call{verb: list, ref: client.Ref{Kind: kind, Namespace: namespace}, after: after}
	_, err := a.send(c)
	return c.page, err
}

// Survey implements client.Interface.
func (a api) Survey(context.Context) (feed.Watched, error) {
	c := &call{verb: survey}
	_, err := a.send(c)
	return c.kinds, err
}

// Newest implements client.Interface.
func (a api) Newest(context.Context, []ownership.Kind) (client.Newest, error) {
	if !a.cluster.tellsNewest {
		return client.Newest{}, nil
	}
	c := &call{verb: newest}
	_, err := a.send(c)
	return c.newest, err
}

// watched returns what the feed watches.
func (w *cluster) watched() feed.Watched {
	var watched feed.Watched
	for i, r := range w.server.resources {
		switch {
		case w.in.streams[i].unknown:
			watched.Unknown = append(watched.Unknown, r.kind.Group+"/v1")
		case !r.watched || !w.in.streams[i].told:
		case r.scope == ownership.Namespaced:
			watched.Namespaced = append(watched.Namespaced, r.kind)
		default:
			watched.Cluster = append(watched.Cluster, r.kind)
		}
	}
	return watched
}

// Outage implements client.Interface. Of groups that do not answer, nothing is known.
func (a api) Outage(context.Context, string) (apiservice.Outage, error) {
	return apiservice.Outage{}, nil
}

// Created implements client.Interface. No outage makes it matter.
func (a api) Created(context.Context, ownership.Object) (time.Time, error) { return time.Time{}, nil }

// Reached implements client.Interface.
func (a api) Reached(kind ownership.Kind) string {
	if st := a.cluster.in.streams[a.cluster.server.index(kind)]; st.listed {
		return strconv.Itoa(st.seen)
	}
	return ""
}

// send stops the worker that sends the request, until it has its answer.
func (a api) send(c *call) (ownership.Object, error) { return a.cluster.in.send(c) }

// Delete implements client.Interface.
func (a api) Delete(_ context.Context, observed ownership.Object, propagation verdict.Propagation) error {
	c := conditioned(remove, observed)
	c.propagation = propagation
	_, err := a.send(c)
	return err
}

// PatchOwners implements client.Interface.
func (a api) PatchOwners(_ context.Context, observed ownership.Object, owners []ownership.Reference) (ownership.Object, error) {
	c := conditioned(patchOwners, observed)
	c.owners = owners
	return a.send(c)
}

// PatchFinalizers implements client.Interface.
func (a api) PatchFinalizers(_ context.Context, observed ownership.Object, finalizers []string) (ownership.Object, error) {
	c := conditioned(patchFinalizers, observed)
	c.finalizers = finalizers
	return a.send(c)
}

func conditioned(verb string, observed ownership.Object) *call {
	return &call{verb: verb, ref: client.RefOf(observed), uid: observed.UID, version: observed.ResourceVersion}
}

var errTimeout = errors.New("request timed out")

// failure returns an answer that replaces the server's.
func failure(name string, ref client.Ref) error {
	group := schema.GroupResource{Group: ref.Kind.Group, Resource: strings.ToLower(ref.Kind.Kind)}
	switch name {
	case "403":
		return apierrors.NewForbidden(group, ref.Name, errors.New("no"))
	case "409":
		return apierrors.NewConflict(group, ref.Name, errors.New("try again"))
	case "422":
		return apierrors.NewInvalid(schema.GroupKind{Group: ref.Kind.Group, Kind: ref.Kind.Kind}, ref.Name, nil)
	case "410":
		return apierrors.NewResourceExpired("too old")
	case "429":
		return apierrors.NewTooManyRequests("slow down", 1)
	case "500":
		return apierrors.NewInternalError(errors.New("etcd is gone"))
	default:
		return errTimeout
	}
}

// failures returns the answers that failure knows, by name.
func failures() []string { return []string{"403", "409", "410", "422", "429", "500", "timeout"} }
