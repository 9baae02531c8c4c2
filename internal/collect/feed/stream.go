package feed

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/coppice-dev/coppice/internal/collect/wire"
)

const (
	// frameBuffer is the size of the buffer of a watch, in bytes.
	frameBuffer = 16 << 10
	// maxFrame bounds a frame of a watch, in bytes. Objects have 3 MB at most.
	maxFrame = 64 << 20
)

// stream is a watch: events that arrive in frames.
type stream struct {
	body   io.ReadCloser
	in     *bufio.Reader
	cancel context.CancelFunc
	done   <-chan struct{}
	events chan watch.Event
	parts  *parts // gets the initial events; nil after them

	frame   []byte // the last frame; reused for the next one
	decoder decoder
}

// Stop implements watch.Interface.
func (s *stream) Stop() { s.cancel() }

// ResultChan implements watch.Interface.
func (s *stream) ResultChan() <-chan watch.Event { return s.events }

// run reads until the server ends the watch, or Stop is called.
func (s *stream) run() {
	defer close(s.events)
	defer s.body.Close()
	defer s.cancel()
	err := s.read()
	if err == nil || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || utilnet.IsProbableEOF(err) || utilnet.IsTimeout(err) {
		return // the Reflector continues with another watch
	}
	failure := apierrors.NewInternalError(fmt.Errorf("the watch event cannot be decoded: %w", err))
	s.send(watch.Event{Type: watch.Error, Object: &failure.ErrStatus})
}

// send passes an event on. It returns false after Stop.
func (s *stream) send(event watch.Event) bool {
	select {
	case s.events <- event:
		return true
	case <-s.done:
		return false
	}
}

// read passes the events on, until an error.
func (s *stream) read() error {
	first, err := s.in.Peek(1)
	if err != nil {
		return err
	}
	if first[0] == '{' { // no frame has as many bytes as that would mean
		return s.readJSON()
	}
	for {
		message, err := s.next()
		if err != nil {
			return err
		}
		event, err := s.decode(message)
		if err != nil {
			return err
		}
		if event.Object != nil && !s.pass(event) {
			return nil
		}
	}
}

// pass passes an event to the parts or to the Reflector. It returns false after Stop.
func (s *stream) pass(event watch.Event) bool {
	if s.parts != nil {
		if isTaken, err := s.parts.take(event); isTaken || err != nil {
			return err == nil
		}
		s.parts = nil
	}
	return s.send(event)
}

// next reads a frame: its length in four bytes, and a WatchEvent.
func (s *stream) next() ([]byte, error) {
	var length [4]byte
	if _, err := io.ReadFull(s.in, length[:]); err != nil {
		return nil, err
	}
	size := binary.BigEndian.Uint32(length[:])
	if size > maxFrame {
		return nil, fmt.Errorf("a watch event has %d bytes", size)
	}
	if cap(s.frame) > frameBuffer && size < frameBuffer {
		s.frame = nil // a large object must not hold memory for long
	}
	s.frame = slices.Grow(s.frame[:0], int(size))[:size]
	_, err := io.ReadFull(s.in, s.frame)
	return s.frame, err
}

// The numbers of fields, as in generated.proto.
const (
	typeOfEvent, objectOfEvent = 1, 2
	rawOfExtension             = 1
	metadataOfObject           = 1
)

// decode decodes a WatchEvent. An initial object goes to the parts at once, and the event has no object then.
func (s *stream) decode(message []byte) (event watch.Event, err error) {
	var raw []byte
	err = wire.Each(message, func(number int32, value []byte, _ uint64) (err error) {
		switch number {
		case typeOfEvent:
			event.Type = typeOf(value)
		case objectOfEvent:
			raw, err = wire.Field(value, rawOfExtension)
		}
		return err
	})
	if err != nil {
		return event, err
	}
	object, isProtobuf, err := wire.Object(raw)
	if err != nil || !isProtobuf {
		return event, errors.Join(errNoMetadata, err)
	}
	if event.Type == watch.Error {
		status := &metav1.Status{}
		event.Object = status
		return event, status.Unmarshal(object)
	}
	metadata, err := wire.Field(object, metadataOfObject)
	if err != nil {
		return event, err
	}
	if s.parts != nil && (event.Type == watch.Added || event.Type == watch.Modified) {
		o, err := s.parts.decoder.object(s.parts.store.kind, metadata)
		if err == nil {
			s.parts.add(o)
		}
		return event, err
	}
	event.Object, err = s.decoder.metadata(event.Type, metadata)
	return event, err
}

// typeOf returns the type of an event, without another copy of it.
func typeOf(text []byte) watch.EventType {
	for _, known := range []watch.EventType{watch.Added, watch.Modified, watch.Deleted, watch.Bookmark, watch.Error} {
		if string(text) == string(known) {
			return known
		}
	}
	return watch.EventType(text)
}

// readJSON is read for servers without protobuf.
func (s *stream) readJSON() error {
	for decoder := json.NewDecoder(s.in); ; {
		var event struct {
			Type   watch.EventType `json:"type"`
			Object json.RawMessage `json:"object"`
		}
		if err := decoder.Decode(&event); err != nil {
			return err
		}
		var object runtime.Object = &metav1.PartialObjectMetadata{}
		if event.Type == watch.Error {
			object = &metav1.Status{}
		}
		if err := json.Unmarshal(event.Object, object); err != nil {
			return err
		}
		if !s.pass(watch.Event{Type: event.Type, Object: object}) {
			return nil
		}
	}
}
