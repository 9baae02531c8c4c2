package deleteflow

import (
	"bytes"
	"context"
	"crypto/sha256"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	internalversionscheme "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/coppice-dev/coppice/internal/rules/deletion"
)

// `kubectl delete -f` deletes a namespace and then its contents, one by one. The contents may have been removed with
// the namespace by then, and each DELETE would get 404. Instead, the client gets the same Status as for a DELETE before
// the namespace's (R21): emptied remembers for some seconds which client deleted which namespace, and etcd still has
// the contents of the namespace at that revision.

const (
	// emptiedFor is how long a client's deletion of a namespace is remembered after the client's last DELETE there.
	// Upstream waits as long before it deletes the contents of a terminating namespace.
	emptiedFor = 5 * time.Second
	// mostEmptied bounds the number of remembered deletions of namespaces. Each takes some 200 bytes.
	mostEmptied = 1000
)

// StoredMetadata returns the uid that a stored object had at a revision, now at revision 0, and the revision at
// which it was read. The uid is empty if there was no such object.
type StoredMetadata func(ctx context.Context, resource schema.GroupResource, namespace, name string, at int64) (types.UID, int64, error)

// emptied has the namespaces that clients have deleted in the last seconds. It is safe for concurrent use.
type emptied struct {
	now func() time.Time

	mu sync.Mutex
	by map[emptiedBy]emptiedNamespace // guarded by mu
}

// emptiedBy is a namespace and the client that deleted it: a user and a program. All other clients get 404. This is
// important for controllers, which would otherwise wait for an event.
type emptiedBy struct {
	namespace string
	client    [sha256.Size]byte
}

type emptiedNamespace struct {
	uid    types.UID
	marked int64 // the revision at which its deletion began, with all of its contents
	until  time.Time
}

func keyOfEmptied(ctx context.Context, agent, namespace string) (emptiedBy, bool) {
	who, ok := genericrequest.UserFrom(ctx)
	if !ok {
		return emptiedBy{}, false
	}
	// Names have any length.
	return emptiedBy{namespace, sha256.Sum256([]byte(strconv.Quote(who.GetName()) + strconv.Quote(who.GetUID()) + agent))}, true
}

// add remembers that the request's client has deleted a namespace, which still exists.
func (e *emptied) add(ctx context.Context, namespace runtime.Object) {
	m, err := meta.Accessor(namespace)
	r := requestFrom(ctx)
	if err != nil || r == nil {
		return
	}
	revision, err := strconv.ParseInt(m.GetResourceVersion(), 10, 64)
	key, known := keyOfEmptied(ctx, r.agent, m.GetName())
	if err != nil || !known {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	before, exists := e.by[key]
	if exists && before.uid == m.GetUID() {
		revision = before.marked
	}
	if !exists && len(e.by) >= mostEmptied && !e.forgetLocked() {
		return
	}
	e.by[key] = emptiedNamespace{m.GetUID(), revision, e.now().Add(emptiedFor)}
}

// forgetLocked removes expired entries. It reports whether there were any.
func (e *emptied) forgetLocked() (removed bool) {
	for key, namespace := range e.by {
		if e.now().After(namespace.until) {
			delete(e.by, key)
			removed = true
		}
	}
	return removed
}

// renewed returns the namespace if the client has deleted it recently, and remembers it for another emptiedFor.
func (e *emptied) renewed(ctx context.Context, agent, namespace string) (emptiedNamespace, bool) {
	key, known := keyOfEmptied(ctx, agent, namespace)
	e.mu.Lock()
	defer e.mu.Unlock()
	found, ok := e.by[key]
	if !known || !ok {
		return emptiedNamespace{}, false
	}
	if e.now().After(found.until) {
		delete(e.by, key)
		return emptiedNamespace{}, false
	}
	found.until = e.now().Add(emptiedFor)
	e.by[key] = found
	return found, true
}

// wentWithNamespace returns the response to a DELETE of an object that no longer exists; nil if the object was not
// removed with the namespace that the client has deleted.
func (f *Flow) wentWithNamespace(ctx context.Context, info *genericrequest.RequestInfo, of emptiedNamespace) *metav1.Status {
	resource := f.StoredAs(schema.GroupResource{Group: info.APIGroup, Resource: info.Resource})
	uid, _, err := f.stored(ctx, resource, info.Namespace, info.Name, of.marked)
	if err != nil || uid == "" {
		return nil
	}
	// Read last: it is the revision up to which the client would have to watch.
	namespace, now, err := f.stored(ctx, namespacesResource(), "", info.Namespace, 0)
	if err != nil || namespace != "" && namespace != of.uid {
		return nil
	}
	removed := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: info.Name, UID: uid, ResourceVersion: strconv.FormatInt(now, 10)}}
	status, err := deletion.Removed(removed, resource)
	if err != nil {
		return nil
	}
	return status
}

// insteadOfNotFound returns a function that replaces the response 404 to a DELETE, or returns false. It returns nil if
// no response 404 may be replaced. When the function is called, body has the body of the request.
func (f *Flow) insteadOfNotFound(codecs runtime.NegotiatedSerializer, w http.ResponseWriter, r *http.Request, info *genericrequest.RequestInfo, body *bytes.Buffer) func() bool {
	if info.Namespace == "" || info.Resource == namespacesResource().Resource || info.Subresource != "" || info.Name == "" {
		return nil
	}
	ctx := r.Context()
	of, ok := f.emptied.renewed(ctx, agentOf(r), info.Namespace)
	if !ok {
		return nil
	}
	return func() bool {
		if isConditional(r, body.Bytes()) {
			return false
		}
		status := f.wentWithNamespace(ctx, info, of)
		if status == nil {
			return false
		}
		version := schema.GroupVersion{Group: info.APIGroup, Version: info.APIVersion}
		responsewriters.WriteObjectNegotiated(codecs, negotiation.DefaultEndpointRestrictions, version, w, r, http.StatusOK, status, false)
		return true
	}
}

// isConditional reports whether a DELETE has preconditions.
func isConditional(r *http.Request, body []byte) bool {
	options := optionsOf(&http.Request{Header: r.Header, Body: io.NopCloser(bytes.NewReader(body))})
	if options == nil {
		options = &metav1.DeleteOptions{}
		if len(body) > 0 || internalversionscheme.ParameterCodec.DecodeParameters(r.URL.Query(), metav1.SchemeGroupVersion, options) != nil {
			return true // unknown
		}
	}
	return options.Preconditions != nil
}

func namespacesResource() schema.GroupResource { return schema.GroupResource{Resource: "namespaces"} }
