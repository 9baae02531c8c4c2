package client

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/coppice-dev/coppice/internal/collect/auditreason"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/rules/verdict"
)

// deleter sends DELETEs. client-go's metadata client always sends their options as JSON, which takes
// 5 % of the processor time of a cascade on our own server to encode and decode. The overhead of its
// REST client takes as much again. The deleter only sends the request, and decodes nothing but
// errors.
type deleter struct {
	client  *http.Client
	server  string
	agent   string
	limiter flowcontrol.RateLimiter // nil if the configuration limits nothing
	binary  bool                    // the options may be protobuf

	// refused are the groups whose server does not read protobuf. One server serves all built-in groups,
	// but an aggregated server may have any implementation.
	refused sync.Map
}

// newDeleter returns a deleter that uses protobuf if that is the configuration's content type, as it
// is for our own server in this process.
func newDeleter(config *rest.Config) (*deleter, error) {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	server, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, fmt.Errorf("find the server: %w", err)
	}
	d := &deleter{
		client: client, server: server.String(), agent: cmp.Or(config.UserAgent, rest.DefaultKubernetesUserAgent()),
		limiter: config.RateLimiter, binary: config.ContentType == runtime.ContentTypeProtobuf,
	}
	if d.limiter == nil && config.QPS > 0 {
		d.limiter = flowcontrol.NewTokenBucketRateLimiter(config.QPS, cmp.Or(config.Burst, rest.DefaultBurst))
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

// send sends one request, and returns the error that the server answers with.
func (d *deleter) send(ctx context.Context, of, contentType string, body []byte) error {
	if d.limiter != nil {
		if err := d.limiter.Wait(ctx); err != nil {
			return fmt.Errorf("wait for the client's rate limit: %w", err)
		}
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodDelete, d.server, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("make request: %w", err)
	}
	request.URL.Path = path.Join(request.URL.Path, of)
	reason, err := auditreason.Value(ctx)
	if err != nil {
		return err
	}
	if reason != "" {
		request.Header.Set(auditreason.Header, reason)
	}
	// Only errors are read from an answer, and every server that reads an encoding also writes errors in
	// it.
	request.Header.Set("Accept", contentType)
	request.Header.Set("Content-Type", contentType)
	request.Header.Set("User-Agent", d.agent)
	response, err := d.client.Do(request)
	if err != nil {
		return fmt.Errorf("send request: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode/100 == 2 {
		// The connection can be reused once the body is read to its end.
		if _, err := io.Copy(io.Discard, response.Body); err != nil {
			return fmt.Errorf("read the answer: %w", err)
		}
		return nil
	}
	return errorOf(response)
}

// maxError bounds the part of an error that is read, and maxText the reported part of an error that
// is not a Status, in bytes.
const maxError, maxText = 1 << 20, 2 << 10

// errorOf returns the error in an answer as client-go does: the Status, or else an error that is
// marked as unexpected.
func errorOf(response *http.Response) error {
	body, err := io.ReadAll(io.LimitReader(response.Body, maxError))
	if err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	object, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
	if status, ok := object.(*metav1.Status); ok && err == nil && status.Status == metav1.StatusFailure {
		return apierrors.FromObject(status)
	}
	seconds, _ := strconv.Atoi(response.Header.Get("Retry-After")) // 0: no header
	text := strings.TrimSpace(string(body[:min(len(body), maxText)]))
	return apierrors.NewGenericServerResponse(response.StatusCode, http.MethodDelete, schema.GroupResource{}, "", text, seconds, true)
}

// isUnread reports whether a server did not understand the encoding of a request.
func isUnread(err error) bool {
	return apierrors.IsUnsupportedMediaType(err) || apierrors.ReasonForError(err) == metav1.StatusReasonNotAcceptable
}

// pathOf returns the path of an object.
func pathOf(gvr schema.GroupVersionResource, ref Ref) string {
	of := "/apis/" + gvr.Group + "/" + gvr.Version
	if gvr.Group == "" {
		of = "/api/" + gvr.Version
	}
	if ref.Namespace != "" {
		of += "/namespaces/" + ref.Namespace
	}
	return of + "/" + gvr.Resource + "/" + ref.Name
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
	uid, err := c.exactUID(ctx, observed)
	if err != nil {
		return err
	}
	policy := metav1.DeletionPropagation(propagation)
	err = c.deleter.delete(ctx, gvr, ref, &metav1.DeleteOptions{
		Preconditions:     &metav1.Preconditions{UID: &uid, ResourceVersion: &observed.ResourceVersion},
		PropagationPolicy: &policy,
	})
	return aboutWrite(ref, err)
}
