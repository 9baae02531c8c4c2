package rawclient

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// Watch is a watch that is opened again where it ended: a server ends the watches of clients that
// do not keep up.
type Watch struct {
	// Failed receives the error that ended the watch for good.
	Failed <-chan error

	client   *Client
	path     string
	version  string // of the last event
	event    func()
	last     []byte // event, still encoded
	reopened atomic.Int64
}

// Watch opens a watch from a resourceVersion on and calls event for each event, without decoding
// it. It returns when the server has accepted the watch; the connection serves only that watch
// until it is closed.
func (c *Client) Watch(ctx context.Context, path, version string, event func()) (*Watch, error) {
	failed := make(chan error, 1)
	w := &Watch{Failed: failed, client: c, path: path, version: version, event: event}
	body, err := w.open(ctx)
	if err != nil {
		return nil, err
	}
	go func() { failed <- w.follow(ctx, body) }()
	return w, nil
}

// Reopened is how often the watch has been opened again.
func (w *Watch) Reopened() int64 { return w.reopened.Load() }

func (w *Watch) open(ctx context.Context) (io.ReadCloser, error) {
	response, err := w.client.send(ctx, http.MethodGet, w.path+"?watch=1&resourceVersion="+w.version, nil) //nolint:bodyclose // by follow
	if err != nil {
		return nil, err
	}
	return response.Body, nil
}

func (w *Watch) follow(ctx context.Context, body io.ReadCloser) error {
	for {
		err := w.frames(bufio.NewReader(body))
		if closed := body.Close(); err == nil {
			err = closed
		}
		if err != nil {
			return fmt.Errorf("the watch ended: %w", err)
		}
		if err := w.advance(); err != nil {
			return err
		}
		if body, err = w.open(ctx); err != nil {
			return err
		}
		w.reopened.Add(1)
	}
}

// frames reads events until the server ends the watch: four bytes with the length of each, and
// the event.
func (w *Watch) frames(body *bufio.Reader) error {
	var length [4]byte
	for {
		if _, err := io.ReadFull(body, length[:]); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		n := int(binary.BigEndian.Uint32(length[:]))
		if cap(w.last) < n {
			w.last = make([]byte, n)
		}
		w.last = w.last[:n]
		if _, err := io.ReadFull(body, w.last); err != nil {
			return fmt.Errorf("within an event: %w", err)
		}
		w.event()
	}
}

// advance takes the version to go on from out of the last event.
func (w *Watch) advance() error {
	if len(w.last) == 0 {
		return nil
	}
	var event metav1.WatchEvent
	if err := event.Unmarshal(w.last); err != nil {
		return fmt.Errorf("decode the last event: %w", err)
	}
	object, err := runtime.Decode(w.client.codec, event.Object.Raw)
	if err != nil {
		return fmt.Errorf("decode the object of the last event: %w", err)
	}
	if event.Type == string(watch.Error) {
		return fmt.Errorf("the watch ended: %w", apierrors.FromObject(object))
	}
	accessor, err := meta.Accessor(object)
	if err != nil {
		return err
	}
	w.version = accessor.GetResourceVersion()
	return nil
}
