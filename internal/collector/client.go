package collector

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/coppice-dev/coppice/internal/feed"
	"github.com/coppice-dev/coppice/internal/ownership"
	"github.com/coppice-dev/coppice/internal/verdict"
)

// requestTimeout bounds one request. A server that takes longer has its own
// limit exceeded too, so nothing is lost but a worker that waits.
const requestTimeout = 60 * time.Second

// Mapper tells what is served, where, and how far the watches have come. The
// feed is one.
type Mapper interface {
	Mapping(kind ownership.Kind) (gvr schema.GroupVersionResource, namespaced, ok bool)
	Survey(ctx context.Context) (feed.Watched, error)
	Reached(kind ownership.Kind) string
}

// Client is the API of a server that is reached by client-go. It moves metadata only.
type Client struct {
	metadata metadata.Interface
	server   rest.Interface
	mapper   Mapper
	silence  atomic.Int64 // so many times more the server is not asked what Newest asks
}

var _ API = (*Client)(nil)

// NewClient returns a client of the server that config names.
func NewClient(config *rest.Config, mapper Mapper) (*Client, error) {
	config = rest.CopyConfig(config)
	config.Wrap(Impatient)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return explained{next} })
	client, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make metadata client: %w", err)
	}
	questions, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	return &Client{metadata: client, server: questions.RESTClient(), mapper: mapper}, nil
}

// Get implements API.
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
		return ownership.Object{}, saidOf(ref, err)
	}
	return feed.ObjectOf(ref.Kind, meta), nil
}

// Delete implements API.
func (c *Client) Delete(ctx context.Context, observed ownership.Object, propagation verdict.Propagation) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	ref := RefOf(observed)
	objects, err := c.objects(ref)
	if err != nil {
		return err
	}
	uid, policy := types.UID(observed.UID), metav1.DeletionPropagation(propagation)
	err = objects.Delete(ctx, ref.Name, metav1.DeleteOptions{
		Preconditions:     &metav1.Preconditions{UID: &uid, ResourceVersion: &observed.ResourceVersion},
		PropagationPolicy: &policy,
	})
	return saidOf(ref, err)
}

// PatchOwners implements API.
func (c *Client) PatchOwners(ctx context.Context, observed ownership.Object, owners []ownership.Reference) (ownership.Object, error) {
	var list any // null when there is none left: removes the field
	if len(owners) > 0 {
		list = referencesOf(owners)
	}
	return c.patch(ctx, observed, "ownerReferences", list)
}

// PatchFinalizers implements API.
func (c *Client) PatchFinalizers(ctx context.Context, observed ownership.Object, finalizers []string) (ownership.Object, error) {
	var list any
	if len(finalizers) > 0 {
		list = finalizers
	}
	return c.patch(ctx, observed, "finalizers", list)
}

// List implements API.
func (c *Client) List(ctx context.Context, kind ownership.Kind, namespace string, limit int64, after string) (Page, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	where := Ref{Kind: kind, Namespace: namespace}
	gvr, namespaced, ok := c.mapper.Mapping(kind)
	if !ok || namespace != "" && !namespaced {
		return Page{}, unservedError{where, nil}
	}
	var objects metadata.ResourceInterface = c.metadata.Resource(gvr)
	if namespace != "" {
		objects = c.metadata.Resource(gvr).Namespace(namespace)
	}
	// No resourceVersion: the answer is as of now.
	list, err := objects.List(ctx, metav1.ListOptions{Limit: limit, Continue: after})
	if err != nil {
		return Page{}, saidOf(where, err)
	}
	page := Page{ResourceVersion: list.ResourceVersion, Continue: list.Continue}
	for i := range list.Items {
		if meta := &list.Items[i]; meta.UID != "" {
			page.Objects = append(page.Objects, feed.ObjectOf(kind, meta))
		}
	}
	return page, nil
}

// Survey implements API.
func (c *Client) Survey(ctx context.Context) (feed.Watched, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return c.mapper.Survey(ctx)
}

const (
	// newestPath is where our own server answers what Newest asks. Others have no such path.
	newestPath = "/coppice/newest"
	// silenceAfterRefusal is how often a server is not asked that has refused to answer.
	silenceAfterRefusal = 100
)

// Newest implements API. Servers other than ours do not know the answer, and are seldom
// asked for it.
func (c *Client) Newest(ctx context.Context, kinds []ownership.Kind) (Newest, error) {
	if c.silence.Add(-1) >= 0 {
		return Newest{}, nil
	}
	c.silence.Store(0)
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
		c.silence.Store(silenceAfterRefusal)
		return Newest{}, fmt.Errorf("ask what was written last: %w", err)
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

// Reached implements API.
func (c *Client) Reached(kind ownership.Kind) string { return c.mapper.Reached(kind) }

// patch replaces one list of an object's metadata. It is a JSON merge patch,
// which every kind takes, and which replaces a list as a whole: what is written
// is what was computed, not a merge with what stands there. The uid and the
// resourceVersion in it are the condition.
func (c *Client) patch(ctx context.Context, observed ownership.Object, field string, list any) (ownership.Object, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	ref := RefOf(observed)
	objects, err := c.objects(ref)
	if err != nil {
		return ownership.Object{}, err
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid":             observed.UID,
		"resourceVersion": observed.ResourceVersion,
		field:             list,
	}})
	if err != nil {
		return ownership.Object{}, fmt.Errorf("encode patch of %s: %w", ref, err)
	}
	meta, err := objects.Patch(ctx, ref.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return ownership.Object{}, saidOf(ref, err)
	}
	return feed.ObjectOf(ref.Kind, meta), nil
}

// objects is where the objects of the reference's kind and namespace are served.
func (c *Client) objects(ref Ref) (metadata.ResourceInterface, error) {
	gvr, namespaced, ok := c.mapper.Mapping(ref.Kind)
	switch {
	case !ok:
		return nil, unservedError{ref, nil}
	case namespaced != (ref.Namespace != ""):
		// The kind was made anew in another scope, and the object was observed before.
		return nil, unservedError{ref, nil}
	case namespaced:
		return c.metadata.Resource(gvr).Namespace(ref.Namespace), nil
	default:
		return c.metadata.Resource(gvr), nil
	}
}

// saidOf makes a NotFound that is not said of the object another error. A
// server that does not serve the kind, be it for a moment only, answers 404 as
// well, and that must never be taken for evidence of absence (R3). Only an
// answer that names the object is.
func saidOf(ref Ref, err error) error {
	if !apierrors.IsNotFound(err) {
		return err
	}
	// client-go returns it unwrapped; anything else is not taken for an answer.
	status, ok := err.(apierrors.APIStatus)
	if ok && status.Status().Details != nil && status.Status().Details.Name == ref.Name &&
		!apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) {
		return err
	}
	return unservedError{ref, err}
}

// unservedError says that the server has no place for such an object now. It
// hides the answer, so that nobody takes it for a NotFound.
type unservedError struct {
	ref    Ref
	answer error
}

func (e unservedError) Error() string {
	if e.answer == nil {
		return fmt.Sprintf("%s: the kind is not served", e.ref)
	}
	return fmt.Sprintf("%s: the kind is not served: %v", e.ref, e.answer)
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

// Impatient makes a transport hand on answers with Retry-After as plain errors.
// client-go would wait in the middle of the request, up to ten times. Who uses
// this waits between requests: in the queue, or in the back-off of a watch.
func Impatient(next http.RoundTripper) http.RoundTripper { return impatient{next} }

type impatient struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t impatient) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := t.next.RoundTrip(r)
	if err != nil || response.StatusCode != http.StatusTooManyRequests && response.StatusCode < http.StatusInternalServerError {
		return response, err
	}
	seconds, err := strconv.Atoi(response.Header.Get("Retry-After"))
	if err != nil {
		return response, nil //nolint:nilerr // no such header, or a date: client-go does not wait for it either
	}
	status := apierrors.NewGenericServerResponse(response.StatusCode, r.Method, schema.GroupResource{}, "", "", seconds, false).Status()
	status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	body, err := json.Marshal(status)
	if err != nil {
		return response, nil //nolint:nilerr // the answer as it was is as good
	}
	_ = response.Body.Close()
	response.Header.Del("Retry-After")
	response.Header.Set("Content-Type", "application/json")
	response.Header.Del("Content-Length")
	response.ContentLength = int64(len(body))
	response.Body = io.NopCloser(bytes.NewReader(body))
	return response, nil
}

// WrappedRoundTripper lets client-go find what is wrapped.
func (t impatient) WrappedRoundTripper() http.RoundTripper { return t.next }
