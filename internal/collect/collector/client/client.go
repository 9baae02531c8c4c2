package client

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/coppice-dev/coppice/internal/collect/feed"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

// requestTimeout bounds one request. A server that takes longer has exceeded its own limit too,
// so nothing is lost but the worker's time.
const requestTimeout = 60 * time.Second

// Mapper returns the resource that serves a kind, and the revision that its watch has reached.
// The feed implements it.
type Mapper interface {
	Mapping
	Survey(ctx context.Context) (feed.Watched, error)
	Reached(kind ownership.Kind) string
}

// Client implements Interface with client-go. It transfers metadata only.
type Client struct {
	metadata metadata.Interface
	lists    metadata.Interface
	deleter  *deleter
	server   rest.Interface // for paths that are no resources
	mapper   Mapper
	skip     atomic.Int64 // how many more calls of Newest send no request
}

var _ Interface = (*Client)(nil)

// New returns a client of the server that config names.
func New(config *rest.Config, mapper Mapper) (*Client, error) {
	config = rest.CopyConfig(config)
	config.Wrap(WithoutRetry)
	objects, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make metadata client: %w", err)
	}
	deleter, err := newDeleter(config)
	if err != nil {
		return nil, err
	}
	// The discovery client has no group or version in its paths.
	paths, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	return &Client{metadata: objects, lists: objects, deleter: deleter, server: paths.RESTClient(), mapper: mapper}, nil
}

// WrapLists wraps the client that lists. It must be called before the client is used.
func (c *Client) WrapLists(wrap func(metadata.Interface) metadata.Interface) {
	c.lists = wrap(c.metadata)
}

// Get implements Interface.
func (c *Client) Get(ctx context.Context, ref Ref) (ownership.Object, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	objects, err := c.objects(ref)
	if err != nil {
		return ownership.Object{}, err
	}
	// No resourceVersion: the answer is as of now, not from a cache that may lag.
	meta, err := objects.Get(ctx, ref.Name, metav1.GetOptions{})
	if err != nil {
		return ownership.Object{}, aboutObject(ref, err)
	}
	if meta.Name != ref.Name || meta.Namespace != ref.Namespace {
		return ownership.Object{}, fmt.Errorf("read %s: the server answered with %s", ref, Ref{ref.Kind, meta.Namespace, meta.Name})
	}
	return feed.Observation(ref.Kind, meta), nil
}

// PatchOwners implements Interface.
func (c *Client) PatchOwners(ctx context.Context, observed ownership.Object, owners []ownership.Reference) (ownership.Object, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	exact, err := c.exactOwners(ctx, observed, owners)
	if err != nil {
		return ownership.Object{}, err
	}
	var list any // null removes the field, when no reference remains
	if len(exact) > 0 {
		list = exact
	}
	return c.patch(ctx, observed, "ownerReferences", list)
}

// PatchFinalizers implements Interface.
func (c *Client) PatchFinalizers(ctx context.Context, observed ownership.Object, finalizers []string) (ownership.Object, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	exact, err := c.exactFinalizers(ctx, observed, finalizers)
	if err != nil {
		return ownership.Object{}, err
	}
	var list any
	if len(exact) > 0 {
		list = exact
	}
	return c.patch(ctx, observed, "finalizers", list)
}

// List implements Interface.
func (c *Client) List(ctx context.Context, kind ownership.Kind, namespace string, limit int64, after string) (Page, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	where := Ref{Kind: kind, Namespace: namespace}
	gvr, namespaced, ok := c.mapper.Mapping(kind)
	if !ok || namespace != "" && !namespaced {
		return Page{}, unservedError{where, nil}
	}
	var objects metadata.ResourceInterface = c.lists.Resource(gvr)
	if namespace != "" {
		objects = c.lists.Resource(gvr).Namespace(namespace)
	}
	// No resourceVersion: the answer is as of now.
	list, err := objects.List(ctx, metav1.ListOptions{Limit: limit, Continue: after})
	if err != nil {
		return Page{}, aboutObject(where, err)
	}
	page := Page{ResourceVersion: list.ResourceVersion, Continue: list.Continue}
	for i := range list.Items {
		if meta := &list.Items[i]; meta.UID != "" {
			page.Objects = append(page.Objects, feed.Observation(kind, meta))
		}
	}
	return page, nil
}

// Survey implements Interface.
func (c *Client) Survey(ctx context.Context) (feed.Watched, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return c.mapper.Survey(ctx)
}

const (
	// newestPath is the path at which our own API server answers Newest. Others have no such
	// path.
	newestPath = "/coppice/newest"
	// skipAfterRefusal is the number of calls of Newest that send no request after one that
	// failed.
	skipAfterRefusal = 100
)

// Newest implements Interface. Only our own server has an answer; others rarely get a request.
func (c *Client) Newest(ctx context.Context, kinds []ownership.Kind) (Newest, error) {
	if c.skip.Add(-1) >= 0 {
		return Newest{}, nil
	}
	c.skip.Store(0)
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	body, err := c.server.Get().AbsPath(newestPath).Do(ctx).Raw()
	var answer struct {
		History string
		Now     uint64
		Writes  map[string]uint64 // by resource
	}
	if err == nil {
		err = json.Unmarshal(body, &answer)
	}
	if err != nil {
		c.skip.Store(skipAfterRefusal)
		return Newest{}, fmt.Errorf("read the latest revision: %w", err)
	}
	newest := Newest{History: answer.History, Now: answer.Now, Writes: make(map[ownership.Kind]uint64, len(kinds))}
	for _, kind := range kinds {
		gvr, _, ok := c.mapper.Mapping(kind)
		written, known := answer.Writes[gvr.GroupResource().String()]
		if ok && known {
			newest.Writes[kind] = written
		}
	}
	return newest, nil
}

// Reached implements Interface.
func (c *Client) Reached(kind ownership.Kind) string { return c.mapper.Reached(kind) }

// patch replaces one list of an object's metadata. It is a JSON merge patch, which every kind
// supports, and which replaces a list as a whole: the server stores exactly the computed list
// and does not merge it with the stored one. The uid and the resourceVersion in it are the
// preconditions.
func (c *Client) patch(ctx context.Context, observed ownership.Object, field string, list any) (ownership.Object, error) {
	ref := RefOf(observed)
	objects, err := c.objects(ref)
	if err != nil {
		return ownership.Object{}, err
	}
	uid, err := c.exactUID(ctx, observed)
	if err != nil {
		return ownership.Object{}, err
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid":             uid,
		"resourceVersion": observed.ResourceVersion,
		field:             list,
	}})
	if err != nil {
		return ownership.Object{}, fmt.Errorf("encode patch of %s: %w", ref, err)
	}
	meta, err := objects.Patch(ctx, ref.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return ownership.Object{}, aboutWrite(ref, err)
	}
	return feed.Observation(ref.Kind, meta), nil
}

// objects returns the client of the resource that serves the reference's kind and namespace.
func (c *Client) objects(ref Ref) (metadata.ResourceInterface, error) {
	gvr, err := c.resource(ref)
	switch {
	case err != nil:
		return nil, err
	case ref.Namespace != "":
		return c.metadata.Resource(gvr).Namespace(ref.Namespace), nil
	default:
		return c.metadata.Resource(gvr), nil
	}
}

// resource returns the resource that serves the reference's kind and namespace. All requests for an object begin here. A
// name that no object can have would make their path lead elsewhere.
func (c *Client) resource(ref Ref) (schema.GroupVersionResource, error) {
	if !ownership.IsName(ref.Name) || !ownership.IsName(ref.Namespace) {
		return schema.GroupVersionResource{}, fmt.Errorf("%s: no object can have this name", ref)
	}
	gvr, namespaced, ok := c.mapper.Mapping(ref.Kind)
	if !ok || namespaced != (ref.Namespace != "") {
		// If the namespace does not fit, the kind was defined again in another scope after the object
		// was observed.
		return schema.GroupVersionResource{}, unservedError{ref, nil}
	}
	return gvr, nil
}

func referencesOf(owners []ownership.Reference) []metav1.OwnerReference {
	references := make([]metav1.OwnerReference, len(owners))
	for i, o := range owners {
		references[i] = metav1.OwnerReference{
			APIVersion:         o.APIVersion,
			Kind:               o.Kind,
			Name:               o.Name,
			UID:                types.UID(o.UID),
			Controller:         boolOf(o.Controller),
			BlockOwnerDeletion: boolOf(o.BlockOwnerDeletion),
		}
	}
	return references
}

func boolOf(f ownership.Flag) *bool {
	set := f == ownership.True
	if f == ownership.Unset {
		return nil
	}
	return &set
}
