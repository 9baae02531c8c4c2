package feed

import (
	"bufio"
	"context"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
)

// acceptMetadata requests metadata in protobuf, and takes JSON from servers without it.
const acceptMetadata = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1," +
	"application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"

// client is client-go's client for metadata with watches of its own. These decode only what an observation has: most of
// the metadata of an object is managed fields, labels and annotations.
type client struct {
	metadata.Interface

	requests   *rest.RESTClient
	parameters runtime.ParameterCodec
}

// NewClient returns a client for a feed. It sends no request, and does not change config.
func NewClient(config *rest.Config) (metadata.Interface, error) {
	plain, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make metadata client: %w", err)
	}
	config = metadata.ConfigFor(config)
	config.GroupVersion = &schema.GroupVersion{} // the paths of requests are complete
	requests, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("make client for watches: %w", err)
	}
	options := runtime.NewScheme()
	metav1.AddToGroupVersion(options, schema.GroupVersion{Version: "v1"})
	return &client{plain, requests, runtime.NewParameterCodec(options)}, nil
}

// Resource implements metadata.Interface.
func (c *client) Resource(gvr schema.GroupVersionResource) metadata.Getter {
	return &resourceClient{c.Interface.Resource(gvr), c, gvr}
}

// resourceClient is the client for the objects of a resource in all namespaces.
type resourceClient struct {
	metadata.Getter

	client *client
	gvr    schema.GroupVersionResource
}

// Watch implements metadata.ResourceInterface.
func (r *resourceClient) Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	return r.open(ctx, options, nil)
}

// open opens a watch. The initial events go to parts, unless it is nil.
func (r *resourceClient) open(ctx context.Context, options metav1.ListOptions, parts *parts) (watch.Interface, error) {
	options.Watch = true
	path := []string{"api", r.gvr.Version, r.gvr.Resource}
	if r.gvr.Group != "" {
		path = []string{"apis", r.gvr.Group, r.gvr.Version, r.gvr.Resource}
	}
	ctx, cancel := context.WithCancel(ctx)
	body, err := r.client.requests.Get().AbsPath(path...).SetHeader("Accept", acceptMetadata).
		SpecificallyVersionedParams(&options, r.client.parameters, schema.GroupVersion{Version: "v1"}).Stream(ctx)
	if err != nil {
		cancel()
		return nil, err
	}
	s := &stream{body: body, in: bufio.NewReaderSize(body, frameBuffer), cancel: cancel, done: ctx.Done(), events: make(chan watch.Event), parts: parts}
	go s.run()
	return s, nil
}

// encodedWatcher is a client that has the objects in this process, as they are stored.
type encodedWatcher interface {
	// WatchEncoded is Watch with initial events. It calls initial with the metadata of each existing object, in protobuf
	// without the resourceVersion, and then sends the bookmark that ends the initial events. The metadata is valid
	// during the call. The watch ends at an error of initial. isEncoded is false if the objects are elsewhere: then
	// there is no watch.
	WatchEncoded(
		ctx context.Context, options metav1.ListOptions, initial func(metadata []byte, resourceVersion string) error,
	) (w watch.Interface, isEncoded bool, err error)
}

// open opens a watch whose initial events go to parts. Any client can do that; ours, and one that has the encoded
// objects, do it without decoding them as client-go does.
func (s *source) open(ctx context.Context, options metav1.ListOptions, parts *parts) (watch.Interface, error) {
	if own, ok := s.client.(*resourceClient); ok {
		return own.open(ctx, options, parts)
	}
	from, err := s.watch(ctx, options, parts)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	w := &diverted{from: from, cancel: cancel, done: ctx.Done(), events: make(chan watch.Event), parts: parts}
	go w.run()
	return w, nil
}

// watch opens a watch of another client. If that has the encoded objects, they go to parts, and only then do events
// arrive.
func (s *source) watch(ctx context.Context, options metav1.ListOptions, parts *parts) (watch.Interface, error) {
	if encoded, ok := s.client.(encodedWatcher); ok && parts != nil {
		if w, isEncoded, err := encoded.WatchEncoded(ctx, options, parts.addEncoded); isEncoded || err != nil {
			return w, err
		}
	}
	return s.client.Watch(ctx, options)
}

// diverted is a watch of another client, whose initial events go to parts.
type diverted struct {
	from   watch.Interface
	cancel context.CancelFunc
	done   <-chan struct{}
	events chan watch.Event
	parts  *parts
}

// Stop implements watch.Interface.
func (w *diverted) Stop() {
	w.cancel()
	w.from.Stop()
}

// ResultChan implements watch.Interface.
func (w *diverted) ResultChan() <-chan watch.Event { return w.events }

func (w *diverted) run() {
	defer close(w.events)
	defer w.Stop()
	for event := range w.from.ResultChan() {
		if w.parts != nil {
			isTaken, err := w.parts.take(event)
			if err != nil {
				return
			}
			if isTaken {
				continue
			}
			w.parts = nil
		}
		select {
		case w.events <- event:
		case <-w.done:
			return
		}
	}
}

var errNoMetadata = errors.New("the server sent something else than metadata")
