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

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// Watch is a watch that is reopened where it ended: a server ends the watches of clients that do
// not keep up.
type Watch struct {
	// Failed receives the error that ended the watch for good.
	Failed <-chan error

	client   *Client
	path     string
	version  string // of the last event
	event    func(Event)
	last     Event
	reopened atomic.Int64
}

// Event is an event of a watch, still encoded. It is valid until the next one.
type Event []byte

// Decode decodes the event of a ConfigMap into it and returns the type of the event.
func (e Event) Decode(into *corev1.ConfigMap) (watch.EventType, error) {
	var event metav1.WatchEvent
	if err := event.Unmarshal(e); err != nil {
		return "", fmt.Errorf("decode an event: %w", err)
	}
	object, _, err := codec().Decode(event.Object.Raw, nil, into)
	if err != nil {
		return "", fmt.Errorf("decode the object of an event: %w", err)
	}
	if event.Type == string(watch.Error) {
		return watch.Error, fmt.Errorf("the watch ended: %w", apierrors.FromObject(object))
	}
	return watch.EventType(event.Type), nil
}

// Watch opens a watch from a resourceVersion on and calls event for each event. It returns when the server has accepted
// the watch; the connection then serves only that watch until it is closed.
func (c *Client) Watch(ctx context.Context, path, version string, event func(Event)) (*Watch, error) {
	failed := make(chan error, 1)
	w := &Watch{Failed: failed, client: c, path: path, version: version, event: event}
	body, err := w.open(ctx)
	if err != nil {
		return nil, err
	}
	go func() { failed <- w.follow(ctx, body) }()
	return w, nil
}

// Reopened returns the number of times that the watch was reopened.
func (w *Watch) Reopened() int64 { return w.reopened.Load() }

func (w *Watch) open(ctx context.Context) (io.ReadCloser, error) {
	response, err := w.client.send(ctx, http.MethodGet, w.path+"?watch=1&resourceVersion="+w.version, "", nil)
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
			w.last = make(Event, n)
		}
		w.last = w.last[:n]
		if _, err := io.ReadFull(body, w.last); err != nil {
			return fmt.Errorf("within an event: %w", err)
		}
		w.event(w.last)
	}
}

// advance reads the resourceVersion of the last event, from which the watch continues.
func (w *Watch) advance() error {
	if len(w.last) == 0 {
		return nil
	}
	var object corev1.ConfigMap
	if _, err := w.last.Decode(&object); err != nil {
		return err
	}
	w.version = object.ResourceVersion
	return nil
}
