package apiserver

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/coppice-dev/coppice/internal/apiserver/inprocess"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/builtin"
)

// byHeader authenticates the user and the group that a header names, and removes the header.
var byHeader = authenticator.RequestFunc(func(r *http.Request) (*authenticator.Response, bool, error) {
	group := r.Header.Get("Group")
	r.Header.Del("Group")
	return &authenticator.Response{User: &user.DefaultInfo{Name: "ann", Groups: []string{group}}}, group != "", nil
})

// gateway is a gate in front of a handler that counts the requests that pass.
type gateway struct {
	*gate
	handler http.Handler
	passed  atomic.Int32
}

func newGateway(t *testing.T) *gateway {
	g := &gateway{gate: newGate()}
	g.handler = g.filter(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		g.passed.Add(1)
		if r.Header.Get("Group") == "" && r.Header.Get("Anonymous") == "" {
			t.Error("the gate has removed the credential")
		}
	}), byHeader, builtin.NewSchemes().Codecs)
	return g
}

// ask sends a request of a user in a group. The channel receives the response.
func (g *gateway) ask(ctx context.Context, path, group string, change func(http.Header)) <-chan *http.Response {
	r := httptest.NewRequestWithContext(ctx, http.MethodDelete, path, http.NoBody)
	r.Header.Set("Group", group)
	if change != nil {
		change(r.Header)
	}
	answered := make(chan *http.Response, 1)
	go func() {
		w := httptest.NewRecorder()
		g.handler.ServeHTTP(w, r)
		answered <- w.Result()
	}()
	return answered
}

const aPath = "/api/v1/namespaces/default/configmaps/a"

func TestRequestsWaitUntilTheServerIsReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, ready := newGateway(t), make(chan struct{})
		go g.run(t.Context(), ready, nil)
		answer, admin := g.ask(t.Context(), aPath, "team", nil), g.ask(t.Context(), aPath, user.SystemPrivilegedGroup, nil)
		time.Sleep(gatePatience - time.Nanosecond)
		synctest.Wait()
		if g.passed.Load() != 0 {
			t.Fatalf("%d requests have passed before the server is ready", g.passed.Load())
		}
		close(ready)
		if a, b := (<-answer).StatusCode, (<-admin).StatusCode; a != http.StatusOK || b != http.StatusOK {
			t.Errorf("when it is ready, the answers are %d and %d", a, b)
		}
		if got := <-g.ask(t.Context(), aPath, "team", nil); got.StatusCode != http.StatusOK {
			t.Errorf("later, the answer is %d", got.StatusCode)
		}
	})
}

// No answer depends on data that the server has not read yet.
func TestRequestsThatWaitInVainMayBeRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGateway(t)
		began := time.Now()
		answer := <-g.ask(t.Context(), aPath, "team", nil)
		if answer.StatusCode != http.StatusServiceUnavailable || answer.Header.Get("Retry-After") != "1" || time.Since(began) != gatePatience {
			t.Errorf("after %s: %d, Retry-After %q", time.Since(began), answer.StatusCode, answer.Header.Get("Retry-After"))
		}
		ctx, cancel := context.WithCancel(t.Context())
		gone := g.ask(ctx, aPath, "team", nil)
		synctest.Wait()
		cancel()
		<-gone
		if g.passed.Load() != 0 {
			t.Errorf("%d requests have passed", g.passed.Load())
		}
	})
}

func TestServerThatStopsHoldsNoRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGateway(t)
		ctx, stop := context.WithCancel(t.Context())
		go g.run(ctx, nil, nil)
		began, answer := time.Now(), g.ask(t.Context(), aPath, "team", nil)
		synctest.Wait()
		stop()
		if got := <-answer; got.StatusCode != http.StatusServiceUnavailable || time.Since(began) != 0 || g.passed.Load() != 0 {
			t.Errorf("after %s: %d; %d have passed", time.Since(began), got.StatusCode, g.passed.Load())
		}
	})
}

func TestRequestsThatNeverWait(t *testing.T) {
	g := newGateway(t)
	anonymous := func(h http.Header) { h.Set("Anonymous", "yes") }
	for _, path := range []string{"/readyz", "/readyz/etcd", "/livez", "/healthz"} {
		if got := <-g.ask(t.Context(), path, "", anonymous); got.StatusCode != http.StatusOK {
			t.Errorf("%s: %d", path, got.StatusCode)
		}
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://api"+aPath, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Group", "team")
	response, err := (&http.Client{Transport: inprocess.Transport(g.handler)}).Do(r)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("a request of this process: %v, %v", response, err)
	}
	response.Body.Close()
}

// When a start takes long, its completion may depend on requests or on an administrator.
func TestSlowStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, read := newGateway(t), make(chan error)
		go g.run(t.Context(), nil, func(context.Context) error { return <-read })
		time.Sleep(gatePatience / 2)
		admin := g.ask(t.Context(), aPath, user.SystemPrivilegedGroup, nil)
		time.Sleep(gatePatience / 2)
		synctest.Wait()
		if g.passed.Load() != 1 || (<-admin).StatusCode != http.StatusOK {
			t.Errorf("%s after the start, %d requests of administrators have passed", gatePatience, g.passed.Load())
		}
		for name, answer := range map[string]<-chan *http.Response{
			"another user": g.ask(t.Context(), aPath, "team", nil),
			"an administrator in another user's name": g.ask(t.Context(), aPath, user.SystemPrivilegedGroup, func(h http.Header) {
				h.Set("Impersonate-User", "bob")
			}),
		} {
			if got := <-answer; got.StatusCode != http.StatusServiceUnavailable {
				t.Errorf("%s gets %d before everything is read", name, got.StatusCode)
			}
		}
		answer := g.ask(t.Context(), aPath, "team", nil)
		read <- nil
		if got := <-answer; got.StatusCode != http.StatusOK {
			t.Errorf("when everything is read, the answer is %d", got.StatusCode)
		}
	})
}

func TestGateStaysClosedWhenTheServerStopsReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGateway(t)
		g.run(t.Context(), nil, func(context.Context) error { return errors.New("stopped") })
		if g.isOpen() {
			t.Error("it is open")
		}
	})
}
