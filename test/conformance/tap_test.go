package conformance

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/coppice-dev/coppice/internal/cli/conformance/probe"
	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

// tap sits between a collector and its server. It records the collector's requests, and it can
// refuse them, run a hook before they are sent, and delay what watches deliver. The zero value
// passes everything through.
type tap struct {
	whole bool // discovery is left as clients ask for it, in two documents; set before use

	mu      sync.Mutex
	seen    []call                     // guarded by mu, and so is all below
	rules   []*rule                    // in the order in which they were made
	stalled map[resource]chan struct{} // closed when the watches of a resource go on
	lags    map[resource]time.Duration // by how much the watches of a resource lag
	streams map[*stream]resource       // the watches that are open
}

type resource = schema.GroupResource

// call is a request of the collector.
type call struct {
	verb  string // of Kubernetes: get, list, watch, update, patch, delete, deletecollection
	group string
	kind  string // the resource: configmaps
	space string
	name  string
	part  string // the subresource: finalize
	path  string
	body  []byte
}

// match selects calls. Empty fields match anything.
type match struct {
	verbs     string // separated by spaces
	kind      probe.Kind
	space     string
	name      string
	part      string
	discovery string // a prefix of the path of a call that is not about objects
}

func (m match) fits(c call) bool {
	if m.discovery != "" {
		return c.kind == "" && strings.HasPrefix(c.path, m.discovery)
	}
	return c.kind != "" &&
		(m.verbs == "" || slices.Contains(strings.Fields(m.verbs), c.verb)) &&
		(m.kind.Resource == "" || m.kind.Resource == c.kind && m.kind.Group == c.group) &&
		(m.space == "" || m.space == c.space) &&
		(m.name == "" || m.name == c.name) &&
		(m.part == "" || m.part == c.part)
}

// reads match the calls by which a kind is observed.
func reads(k probe.Kind) match { return match{verbs: "list watch", kind: k} }

// about matches the calls about one object.
func about(o probe.Object, verbs string) match {
	return match{verbs: verbs, kind: o.Kind, name: o.Name}
}

// rule is the treatment of matching calls.
type rule struct {
	match  match
	status int    // refuse with it, unless 0
	reason string // of the refusal
	before func() // do this before the call is sent, unless nil
	lose   bool   // the call is sent, and its answer never arrives
	left   int    // for so many calls; negative: for all
}

// refuse answers calls with an error until the returned function is called.
func (t *tap) refuse(m match, status int, reason metav1.StatusReason) (undo func()) {
	return t.add(&rule{match: m, status: status, reason: string(reason), left: -1})
}

// before calls a hook before the first matching call is sent.
func (t *tap) before(m match, do func()) { t.add(&rule{match: m, before: do, left: 1}) }

// lose loses the answer to the first matching call: the call is sent, and seems to have failed.
func (t *tap) lose(m match) { t.add(&rule{match: m, lose: true, left: 1}) }

func (t *tap) add(r *rule) (undo func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.rules = append(t.rules, r)
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		r.left = 0
	}
}

// count returns the number of matching calls so far.
func (t *tap) count(m match) int { return len(t.calls(m)) }

// calls returns the matching calls in order.
func (t *tap) calls(m match) []call {
	t.mu.Lock()
	defer t.mu.Unlock()
	var fitting []call
	for _, c := range t.seen {
		if m.fits(c) {
			fitting = append(fitting, c)
		}
	}
	return fitting
}

// awaits waits for a matching call.
func (t *tap) awaits(test testing.TB, m match) {
	test.Helper()
	eventually.Agrees(test, func() string {
		if t.count(m) == 0 {
			return fmt.Sprintf("no request like %+v", m)
		}
		return ""
	})
}

// stall holds back the events of the watches of a kind, until the returned function is called.
func (t *tap) stall(k probe.Kind) (resume func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stalled == nil {
		t.stalled = make(map[resource]chan struct{})
	}
	gate := make(chan struct{})
	t.stalled[k.GroupResource()] = gate
	return sync.OnceFunc(func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.stalled, k.GroupResource())
		close(gate)
	})
}

// lag delays the events of the watches of a kind.
func (t *tap) lag(k probe.Kind, by time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.lags == nil {
		t.lags = make(map[resource]time.Duration)
	}
	t.lags[k.GroupResource()] = by
}

// cut ends the watches of a kind, as a broken connection does.
func (t *tap) cut(k probe.Kind) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for s, r := range t.streams {
		if r == k.GroupResource() {
			s.cut()
		}
	}
}

// open returns the number of open watches of a kind.
func (t *tap) open(k probe.Kind) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := 0
	for _, r := range t.streams {
		if r == k.GroupResource() {
			n++
		}
	}
	return n
}

// wrap puts the tap in front of a transport.
func (t *tap) wrap(next http.RoundTripper) http.RoundTripper { return tapped{t, next} }

type tapped struct {
	tap  *tap
	next http.RoundTripper
}

var requestInfo = request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}

// RoundTrip implements http.RoundTripper.
func (t tapped) RoundTrip(r *http.Request) (*http.Response, error) {
	c, err := callOf(r)
	if err != nil {
		return nil, err
	}
	if c.kind == "" && !t.tap.whole {
		// In one document for each group version, so that one alone can be refused.
		r = r.Clone(r.Context())
		r.Header.Set("Accept", "application/json")
	}
	refusal, lose := t.tap.note(c)
	if refusal != nil {
		refusal.Request = r
		return refusal, nil
	}
	response, err := t.next.RoundTrip(r)
	if err == nil && lose {
		return nil, errors.Join(errors.New("the test lost the answer"), response.Body.Close())
	}
	if err == nil && c.verb == "watch" && response.StatusCode == http.StatusOK {
		response.Body = t.tap.stream(resource{Group: c.group, Resource: c.kind}, response.Body)
	}
	return response, err
}

func callOf(r *http.Request) (call, error) {
	info, err := requestInfo.NewRequestInfo(r)
	if err != nil {
		return call{}, err
	}
	c := call{path: r.URL.Path}
	if info.IsResourceRequest {
		c.verb, c.group, c.kind, c.space, c.name, c.part = info.Verb, info.APIGroup, info.Resource, info.Namespace, info.Name, info.Subresource
	}
	if r.Body != nil {
		if c.body, err = io.ReadAll(r.Body); err != nil {
			return call{}, err
		}
		r.Body = io.NopCloser(bytes.NewReader(c.body))
	}
	return c, nil
}

// note records a call and applies the rules to it. It returns the answer if the call is not to be
// sent, or that its answer is to be lost.
func (t *tap) note(c call) (answer *http.Response, lose bool) {
	t.mu.Lock()
	t.seen = append(t.seen, c)
	var apply []rule
	for _, r := range t.rules {
		if r.left != 0 && r.match.fits(c) {
			r.left--
			apply = append(apply, *r)
		}
	}
	t.mu.Unlock()
	for _, r := range apply {
		if r.before != nil {
			r.before()
		}
		if r.status != 0 {
			return refusal(r), false
		}
		lose = lose || r.lose
	}
	return nil, lose
}

func refusal(r rule) *http.Response {
	body, err := json.Marshal(metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure,
		Code: int32(r.status), Reason: metav1.StatusReason(r.reason), Message: "refused by the test",
	})
	if err != nil {
		panic(fmt.Sprintf("encode a Status: %v", err))
	}
	return &http.Response{
		StatusCode: r.status, Status: http.StatusText(r.status), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)),
	}
}

// stream is the delayed body of a watch's answer.
type stream struct {
	tap    *tap
	body   io.ReadCloser
	from   resource
	chunks chan chunk
	rest   []byte // what Read has not handed out yet
	err    error  // what ended the body, after rest
	ended  chan struct{}
	end    sync.Once
}

// chunk is the result of one read from the server.
type chunk struct {
	data []byte
	err  error
	at   time.Time
}

func (t *tap) stream(from resource, body io.ReadCloser) *stream {
	s := &stream{tap: t, body: body, from: from, chunks: make(chan chunk, 1024), ended: make(chan struct{})}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.streams == nil {
		t.streams = make(map[*stream]resource)
	}
	t.streams[s] = from
	go s.pump()
	return s
}

// pump reads from the server as soon as data arrives.
func (s *stream) pump() {
	for {
		data := make([]byte, 32<<10)
		n, err := s.body.Read(data)
		select {
		case s.chunks <- chunk{data[:n], err, time.Now()}:
		case <-s.ended:
			return
		}
		if err != nil {
			return
		}
	}
}

// Read implements io.Reader.
func (s *stream) Read(p []byte) (int, error) {
	if len(s.rest) == 0 && s.err == nil {
		select {
		case c := <-s.chunks:
			if !s.delay(c.at) {
				return 0, io.ErrUnexpectedEOF
			}
			s.rest, s.err = c.data, c.err
		case <-s.ended:
			return 0, io.ErrUnexpectedEOF
		}
	}
	n := copy(p, s.rest)
	s.rest = s.rest[n:]
	if len(s.rest) == 0 {
		return n, s.err
	}
	return n, nil
}

// delay waits until data that arrived at some time may be passed on; it returns false if the
// stream has ended.
func (s *stream) delay(since time.Time) bool {
	for {
		s.tap.mu.Lock()
		gate, by := s.tap.stalled[s.from], s.tap.lags[s.from]
		s.tap.mu.Unlock()
		wait := time.Until(since.Add(by))
		switch {
		case gate != nil:
			select {
			case <-gate:
			case <-s.ended:
				return false
			}
		case wait > 0:
			timer := time.NewTimer(wait)
			select {
			case <-timer.C:
			case <-s.ended:
				timer.Stop()
				return false
			}
		default:
			return true
		}
	}
}

// cut ends the stream without an error.
func (s *stream) cut() { s.end.Do(func() { close(s.ended) }) }

// Close implements io.Closer.
func (s *stream) Close() error {
	s.cut()
	s.tap.mu.Lock()
	delete(s.tap.streams, s)
	s.tap.mu.Unlock()
	return s.body.Close()
}
