// Package storemetadata reads the metadata of objects from the store, for components in this
// process: lists and watches without a request, a handler or a watch cache. The collector watches
// every kind; with this package, a custom resource without other clients costs almost nothing.
//
// A Source follows the keys of all objects (etcd.Follower), and Client is client-go's interface
// to it, for one user. decode.go decodes the metadata of stored objects, list.go reads lists from
// etcd, and watches receive the events of the follower (watch.go, watcher.go). Users need the same
// permissions as for requests. Resources that are not in the store, such as the resources of
// aggregated API servers, and all calls except plain lists and watches go to the API.
//
// Custom resources are served from the time at which the store has an established definition, until
// the definition is removed (definitions.go). The follower passes on all events in one order, so
// the definition is removed after the last object.
package storemetadata

import (
	"context"
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/metadata"

	"github.com/coppice-dev/coppice/internal/apiserver/etcd"
)

// Config configures a Source. All fields are required.
type Config struct {
	Follower   *etcd.Follower
	Authorizer authorizer.Authorizer
	// Builtin reports whether a resource is one of the built-in kinds, which are always served.
	Builtin func(schema.GroupResource) bool
}

// Source reads metadata from a store. It is safe for concurrent use.
type Source struct {
	Config

	opening sync.Mutex
	custom  *definitions // guarded by opening; nil before the first use

	mu       sync.Mutex
	watchers map[schema.GroupResource]map[*watcher]struct{} // guarded by mu; of custom resources
}

// New returns a source. It reads nothing before it is used.
func New(c Config) *Source {
	return &Source{Config: c, watchers: make(map[schema.GroupResource]map[*watcher]struct{})}
}

// Client returns a client that lists and watches with the permissions of a user. All other calls go
// to next.
func (s *Source) Client(who user.Info, next metadata.Interface) metadata.Interface {
	return client{source: s, user: who, next: next}
}

type client struct {
	source *Source
	user   user.Info
	next   metadata.Interface
}

// Resource implements metadata.Interface.
func (c client) Resource(resource schema.GroupVersionResource) metadata.Getter {
	next := c.next.Resource(resource)
	return getter{objects{next, &target{client: c, resource: resource}}, next}
}

type getter struct {
	objects
	next metadata.Getter
}

// Namespace implements metadata.Getter.
func (g getter) Namespace(namespace string) metadata.ResourceInterface {
	in := *g.target
	in.namespace = namespace
	return objects{g.next.Namespace(namespace), &in}
}

// objects are the objects of a resource.
type objects struct {
	metadata.ResourceInterface // of the API

	target *target
}

// target is the resource and namespace to list or watch, with the user.
type target struct {
	client
	resource  schema.GroupVersionResource
	namespace string // empty for all
}

// List implements metadata.ResourceInterface.
func (o objects) List(ctx context.Context, options metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
	if !isPlain(options) {
		return o.ResourceInterface.List(ctx, options)
	}
	prefix, ok, err := o.target.prefix(ctx)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	if !ok {
		return o.ResourceInterface.List(ctx, options)
	}
	if err := o.target.authorize(ctx, "list"); err != nil {
		return nil, err
	}
	return o.target.list(ctx, prefix, options)
}

// Watch implements metadata.ResourceInterface.
func (o objects) Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	w, isStored, err := o.watch(ctx, options, nil)
	if isStored || err != nil {
		return w, err
	}
	return o.ResourceInterface.Watch(ctx, options)
}

// WatchEncoded is Watch with initial events, for a client that decodes them itself: initial gets the metadata of each
// existing object in protobuf, without its resourceVersion, valid during the call, and all from one goroutine before the
// bookmark that ends the initial events. An error of initial ends the watch. isEncoded is false if the resource is not in
// the store or the options select something else: then there is no watch.
func (o objects) WatchEncoded(
	ctx context.Context, options metav1.ListOptions, initial func(metadata []byte, resourceVersion string) error,
) (w watch.Interface, isEncoded bool, err error) {
	if !beginsWithAll(options) {
		return nil, false, nil
	}
	return o.watch(ctx, options, initial)
}

// watch opens a watch of a resource in the store. isStored is false for others.
func (o objects) watch(
	ctx context.Context, options metav1.ListOptions, initial func(metadata []byte, resourceVersion string) error,
) (w watch.Interface, isStored bool, err error) {
	if !isPlain(options) || !isFollowable(options) || o.target.namespace != "" {
		return nil, false, nil
	}
	prefix, ok, err := o.target.prefix(ctx)
	if err != nil {
		return nil, false, apierrors.NewInternalError(err)
	}
	if !ok {
		return nil, false, nil
	}
	if err := o.target.authorize(ctx, "watch"); err != nil {
		return nil, false, err
	}
	w, err = o.target.watch(ctx, prefix, options, initial)
	return w, true, err
}

// isPlain reports whether a list or watch selects all objects in their current state.
func isPlain(options metav1.ListOptions) bool {
	return options.LabelSelector == "" && options.FieldSelector == "" && options.ResourceVersionMatch != metav1.ResourceVersionMatchExact
}

// prefix returns the prefix of the keys of the target, if it is in the store.
func (t *target) prefix(ctx context.Context) (prefix string, ok bool, err error) {
	resource := t.resource.GroupResource()
	if t.source.Builtin(resource) {
		prefix, ok = t.source.Follower.PrefixOf(resource)
	} else {
		var custom *definitions
		if custom, err = t.source.definitions(ctx); err != nil {
			return "", false, err
		}
		var namespaced bool
		if namespaced, ok = custom.serves(t.resource); ok && (namespaced || t.namespace == "") {
			prefix = t.source.Follower.CustomPrefix(resource)
		} else {
			ok = false
		}
	}
	if t.namespace != "" {
		prefix += t.namespace + "/"
	}
	return prefix, ok, nil
}

// authorize returns the error that the API would return to a request of the user.
func (t *target) authorize(ctx context.Context, verb string) error {
	where := "at the cluster scope"
	if t.namespace != "" {
		where = fmt.Sprintf("in the namespace %q", t.namespace)
	}
	decision, reason, err := t.source.Authorizer.Authorize(ctx, authorizer.AttributesRecord{
		User: t.user, Verb: verb, Namespace: t.namespace, ResourceRequest: true,
		APIGroup: t.resource.Group, APIVersion: t.resource.Version, Resource: t.resource.Resource,
	})
	if decision == authorizer.DecisionAllow {
		return nil
	}
	if err != nil {
		reason = err.Error()
	}
	denied := fmt.Errorf("User %q cannot %s resource %q in API group %q %s", t.user.GetName(), verb, t.resource.Resource, t.resource.Group, where)
	if reason != "" {
		denied = fmt.Errorf("%w: %s", denied, reason)
	}
	return apierrors.NewForbidden(t.resource.GroupResource(), "", denied)
}

// definitionsResource returns the resource of CustomResourceDefinitions.
func definitionsResource() schema.GroupResource {
	return schema.GroupResource{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"}
}

// definitions returns the custom resources that are served.
func (s *Source) definitions(ctx context.Context) (*definitions, error) {
	s.opening.Lock()
	defer s.opening.Unlock()
	if s.custom != nil && !s.custom.isLost() {
		return s.custom, nil
	}
	prefix, ok := s.Follower.PrefixOf(definitionsResource())
	if !ok {
		return nil, fmt.Errorf("the storage of %s is not open", definitionsResource())
	}
	custom := newDefinitions(s.endWatches)
	position, err := s.Follower.Subscribe(ctx, prefix, custom)
	if err != nil {
		return nil, err
	}
	if err := custom.read(ctx, s.Follower, prefix); err != nil {
		position.Cancel()
		return nil, err
	}
	s.custom = custom
	return custom, nil
}

// endWatches ends the watches of a custom resource whose definition has changed or was removed.
func (s *Source) endWatches(resource schema.GroupResource) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.watchers[resource] {
		w.end()
	}
}

func (s *Source) addWatch(resource schema.GroupResource, w *watcher) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.watchers[resource] == nil {
		s.watchers[resource] = make(map[*watcher]struct{})
	}
	s.watchers[resource][w] = struct{}{}
}

func (s *Source) removeWatch(resource schema.GroupResource, w *watcher) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.watchers[resource], w)
	if len(s.watchers[resource]) == 0 {
		delete(s.watchers, resource)
	}
}
