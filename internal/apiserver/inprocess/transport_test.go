package inprocess

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

func client(h http.HandlerFunc) *http.Client { return &http.Client{Transport: Transport(h)} }

func TestAnswerIsThatOfTheHandler(t *testing.T) {
	c := client(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		w.Header().Set("X-Got", r.Method+" "+r.RequestURI+" "+string(body))
		w.WriteHeader(http.StatusTeapot)
		w.Header().Set("X-Late", "yes")
		io.WriteString(w, "short and stout")
	})
	response, err := c.Post("http://api/pots?size=2", "text/plain", strings.NewReader("tea"))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil || string(body) != "short and stout" || response.StatusCode != http.StatusTeapot {
		t.Errorf("got %d %q, %v", response.StatusCode, body, err)
	}
	if got := response.Header.Get("X-Got"); got != "POST /pots?size=2 tea" {
		t.Errorf("the handler saw %q", got)
	}
	if response.Header.Get("X-Late") != "" {
		t.Error("a header that was set after it was sent arrived")
	}
}

func TestEmptyAnswer(t *testing.T) {
	response, err := client(func(http.ResponseWriter, *http.Request) {}).Get("http://api/")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if body, err := io.ReadAll(response.Body); len(body) > 0 || err != nil || response.StatusCode != http.StatusOK {
		t.Errorf("got %d %q, %v", response.StatusCode, body, err)
	}
}

// TestPartsOfAResponseAreReadAsTheyAreWritten reads a part of a response before the handler has written the next.
func TestPartsOfAResponseAreReadAsTheyAreWritten(t *testing.T) {
	next := make(chan string)
	c := client(func(w http.ResponseWriter, _ *http.Request) {
		for part := range next {
			io.WriteString(w, part)
			w.(http.Flusher).Flush()
		}
	})
	go func() { next <- "one" }()
	response, err := c.Get("http://api/watch")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	for _, part := range []string{"one", "two", "three"} {
		if part != "one" {
			next <- part
		}
		buffer := make([]byte, len(part))
		if _, err := io.ReadFull(response.Body, buffer); err != nil || string(buffer) != part {
			t.Fatalf("read %q, %v; want %q", buffer, err, part)
		}
	}
	close(next)
	if _, err := response.Body.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("at the end: %v", err)
	}
}

// TestSlowClient checks that a handler that is too far ahead blocks until its client disconnects.
func TestSlowClient(t *testing.T) {
	wrote := make(chan error, 1)
	c := client(func(w http.ResponseWriter, _ *http.Request) {
		block := bytes.Repeat([]byte("x"), bufferSize)
		var err error
		for err == nil {
			_, err = w.Write(block)
		}
		wrote <- err
	})
	response, err := c.Get("http://api/watch")
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	select {
	case err := <-wrote:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("the handler's write ended with %v", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("the handler still writes to a client that has gone")
	}
}

func TestCancelEndsBothSides(t *testing.T) {
	ended := make(chan struct{})
	c := client(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		<-r.Context().Done()
		<-w.(http.CloseNotifier).CloseNotify()
		close(ended)
	})
	ctx, cancel := context.WithCancel(t.Context())
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://api/watch", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := c.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, err := response.Body.Read(make([]byte, 1)); !errors.Is(err, context.Canceled) {
		t.Errorf("read after the request was cancelled: %v", err)
	}
	<-ended
}

// A handler that sends a request itself, with its own context, passes on the end of that context, but none
// of its values, which belong to the request that it serves.
func TestValuesStayOnTheirSide(t *testing.T) {
	type key struct{}
	ctx, cancel := context.WithTimeout(context.WithValue(t.Context(), key{}, "outer"), time.Hour)
	defer cancel()
	var value any
	var deadline bool
	c := client(func(_ http.ResponseWriter, r *http.Request) {
		value = r.Context().Value(key{})
		_, deadline = r.Context().Deadline()
	})
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://api/", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := c.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		t.Error(err)
	}
	if err := response.Body.Close(); err != nil || value != nil || !deadline {
		t.Errorf("the handler's context has the value %v, a deadline: %t; %v", value, deadline, err)
	}
}

// The response to a write may be longer than the buffer of a streamed response.
func TestLongAnswerToAWrite(t *testing.T) {
	long := strings.Repeat("x", 2*bufferSize)
	c := client(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, long) })
	response, err := c.Post("http://api/", "text/plain", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if body, err := io.ReadAll(response.Body); string(body) != long || err != nil {
		t.Errorf("%d bytes, %v", len(body), err)
	}
}

// The end of a write's context ends its handler, and the handler's later response is discarded.
func TestCancelledWrite(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	c := client(func(w http.ResponseWriter, r *http.Request) {
		cancel()
		<-r.Context().Done()
		<-w.(http.CloseNotifier).CloseNotify()
		w.WriteHeader(http.StatusGatewayTimeout)
	})
	request, err := http.NewRequestWithContext(ctx, http.MethodDelete, "http://api/pots/1", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	if response, err := c.Do(request); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, %v", response, err)
	}
}

func TestPanicFailsAWrite(t *testing.T) {
	for _, broken := range []any{http.ErrAbortHandler, "broken"} {
		c := client(func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, "half an ans")
			panic(broken)
		})
		if response, err := c.Post("http://api/", "text/plain", http.NoBody); err == nil {
			t.Errorf("%v: the answer is %v", broken, response)
		}
	}
}

func TestPanicAbortsTheAnswer(t *testing.T) {
	c := client(func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, "half an ans")
		panic(http.ErrAbortHandler)
	})
	response, err := c.Get("http://api/")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if body, err := io.ReadAll(response.Body); err == nil {
		t.Errorf("read %q as if it were whole", body)
	}
}

// The server knows which requests come from its own process, and which of their clients tolerate lag, and
// no other values of a client's context.
func TestMayLag(t *testing.T) {
	type own struct{}
	var lags []bool
	transport := Transport(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		lags = append(lags, MayLag(r.Context()))
		if r.Context().Value(own{}) != nil {
			t.Error("the handler has a value of the client's context")
		}
	}))
	for _, client := range []http.RoundTripper{transport, Prompt(transport)} {
		request, err := http.NewRequestWithContext(context.WithValue(t.Context(), own{}, 1), http.MethodGet, "http://api/", nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := client.RoundTrip(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
	}
	if !slices.Equal(lags, []bool{true, false}) || MayLag(t.Context()) {
		t.Errorf("who may lag: %v, and without the transport: %t", lags, MayLag(t.Context()))
	}
}
