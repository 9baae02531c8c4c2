package client

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/coppice-dev/coppice/internal/ownership"
	"github.com/coppice-dev/coppice/internal/verdict"
)

// deleter sends DELETEs. client-go's metadata client sends their options as JSON always; to encode
// and to decode that takes 5 % of the processor time of a cascade on our own server.
type deleter struct {
	client rest.Interface
	binary bool // the options may be protobuf

	// refused are the groups whose server does not read protobuf. One server serves all built-in
	// groups, but an aggregated one may be of any make.
	refused sync.Map
}

// newDeleter returns a deleter that uses protobuf if that is the configuration's content type, as it
// is for our own server in this process.
func newDeleter(config *rest.Config) (*deleter, error) {
	d := &deleter{binary: config.ContentType == runtime.ContentTypeProtobuf}
	config = rest.CopyConfig(config)
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	var err error
	if d.client, err = rest.UnversionedRESTClientFor(config); err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	return d, nil
}

func (d *deleter) delete(ctx context.Context, gvr schema.GroupVersionResource, ref Ref, options *metav1.DeleteOptions) error {
	options.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "DeleteOptions"}
	if _, refused := d.refused.Load(gvr.Group); d.binary && !refused {
		body, err := runtime.Encode(protobuf.NewSerializer(nil, nil), options)
		if err != nil {
			return fmt.Errorf("encode the options of a deletion: %w", err)
		}
		err = d.send(ctx, pathOf(gvr, ref), runtime.ContentTypeProtobuf, body)
		if !isUnread(err) {
			return err
		}
		d.refused.Store(gvr.Group, true)
	}
	body, err := json.Marshal(options)
	if err != nil {
		return fmt.Errorf("encode the options of a deletion: %w", err)
	}
	return d.send(ctx, pathOf(gvr, ref), runtime.ContentTypeJSON, body)
}

func (d *deleter) send(ctx context.Context, path []string, contentType string, body []byte) error {
	return d.client.Delete().AbsPath(path...).SetHeader("Content-Type", contentType).Body(body).Do(ctx).Error()
}

// isUnread reports whether a server did not understand the encoding of a request.
func isUnread(err error) bool {
	return apierrors.IsUnsupportedMediaType(err) || apierrors.ReasonForError(err) == metav1.StatusReasonNotAcceptable
}

// pathOf returns the path of an object.
func pathOf(gvr schema.GroupVersionResource, ref Ref) []string {
	path := []string{"/apis", gvr.Group, gvr.Version}
	if gvr.Group == "" {
		path = []string{"/api", gvr.Version}
	}
	if ref.Namespace != "" {
		path = append(path, "namespaces", ref.Namespace)
	}
	return append(path, gvr.Resource, ref.Name)
}

// Delete implements Interface.
func (c *Client) Delete(ctx context.Context, observed ownership.Object, propagation verdict.Propagation) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	ref := RefOf(observed)
	gvr, err := c.resource(ref)
	if err != nil {
		return err
	}
	uid, policy := types.UID(observed.UID), metav1.DeletionPropagation(propagation)
	err = c.deleter.delete(ctx, gvr, ref, &metav1.DeleteOptions{
		Preconditions:     &metav1.Preconditions{UID: &uid, ResourceVersion: &observed.ResourceVersion},
		PropagationPolicy: &policy,
	})
	return aboutObject(ref, err)
}
