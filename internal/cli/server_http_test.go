package cli

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coppice-dev/coppice/internal/testing/pipes"
	"github.com/coppice-dev/coppice/internal/tools/mcpserver"
	"github.com/coppice-dev/coppice/internal/tools/preview"
)

// onPipes serves a handler in a bubble, and returns a client.
func onPipes(t *testing.T, handler http.Handler) *http.Client {
	t.Helper()
	listener := pipes.Listen()
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- serveOn(listener, handler)(ctx) }()
	transport := &http.Transport{DialContext: listener.Dial}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return &http.Client{Transport: transport}
}

// send sends a request of an agent, and returns the answer.
func send(t *testing.T, client *http.Client, method, session, body string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "http://127.0.0.1"+mcpserver.Path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer token-of-the-agent")
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	if session != "" {
		r.Header.Set("Mcp-Session-Id", session)
	}
	answer, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

func readAll(t *testing.T, answer *http.Response) string {
	t.Helper()
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// slowCluster answers previews late.
type slowCluster struct {
	mcpserver.Cluster

	delay func()
}

func (c slowCluster) Preview(context.Context, mcpserver.Deletion) (preview.Report, string, error) {
	c.delay()
	return preview.Report{Digest: "late"}, "", nil
}

// An agent gets the answer of a call that takes longer than a client may take to read it, and the stream of its session
// stays open.
func TestLateAnswersReachAgents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := slowCluster{delay: func() { time.Sleep(2 * answeredWithin) }}
		server := mcpserver.New(mcpserver.Config{Cluster: cluster, Mode: mcpserver.ReadOnly, Version: "1", Log: slog.New(slog.DiscardHandler)})
		client := onPipes(t, server.Handler("token-of-the-agent"))
		opened := send(t, client, http.MethodPost, "", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`)
		readAll(t, opened)
		session := opened.Header.Get("Mcp-Session-Id")
		readAll(t, send(t, client, http.MethodPost, session, `{"jsonrpc":"2.0","method":"notifications/initialized"}`))
		stream := send(t, client, http.MethodGet, session, "")
		ended := make(chan error, 1)
		go func() {
			_, err := io.Copy(io.Discard, stream.Body)
			ended <- err
		}()
		if text := readAll(t, send(t, client, http.MethodPost, session, `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"preview","arguments":{"objects":["pod/p"]}}}`)); !strings.Contains(text, "late") {
			t.Errorf("the answer is %s", text)
		}
		synctest.Wait()
		select {
		case err := <-ended:
			t.Errorf("the stream of the session has ended: %v", err)
		default:
		}
		readAll(t, send(t, client, http.MethodDelete, session, ""))
		<-ended
	})
}

// A stream may take longer than a client may take to read one of its parts.
func TestStreamsLastLongerThanTheirParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := onPipes(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			for range 4 {
				time.Sleep(answeredWithin - time.Second)
				_, _ = io.WriteString(w, "part\n")
				_ = http.NewResponseController(w).Flush()
			}
		}))
		if text := readAll(t, send(t, client, http.MethodGet, "", "")); strings.Count(text, "part") != 4 {
			t.Errorf("the stream is %q", text)
		}
	})
}

// The server ends the answer to a client that does not read it, whether it has begun early or late, and with the deadline
// of the handler if that has one.
func TestUnreadAnswersEnd(t *testing.T) {
	const ownDeadline = time.Second
	for name, test := range map[string]struct {
		begins time.Duration
		answer func(w http.ResponseWriter)
		within time.Duration
	}{
		"at once": {0, func(w http.ResponseWriter) { _, _ = w.Write(make([]byte, 1<<20)) }, answeredWithin},
		"late":    {time.Hour, func(w http.ResponseWriter) { _, _ = w.Write(make([]byte, 1<<20)) }, answeredWithin},
		"flushed": {time.Hour, func(w http.ResponseWriter) { _ = http.NewResponseController(w).Flush() }, answeredWithin},
		"own deadline": {0, func(w http.ResponseWriter) {
			_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(ownDeadline))
			_, _ = w.Write(make([]byte, 1<<20))
		}, ownDeadline},
		"nothing": {time.Hour, func(http.ResponseWriter) {}, answeredWithin},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				listener := pipes.Listen()
				ctx, stop := context.WithCancel(t.Context())
				served := make(chan error, 1)
				go func() {
					served <- serveOn(listener, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
						time.Sleep(test.begins)
						test.answer(w)
					}))(ctx)
				}()
				client, server := net.Pipe()
				closed := make(chan time.Duration, 1)
				began := time.Now()
				if err := listener.Connect(t.Context(), &closing{Conn: server, closed: func() { closed <- time.Since(began) }}); err != nil {
					t.Fatal(err)
				}
				if _, err := io.WriteString(client, "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"); err != nil {
					t.Fatal(err)
				}
				if ends, want := <-closed, test.begins+test.within; ends < want || ends > want+time.Second {
					t.Errorf("the connection ends after %s, want %s", ends, want)
				}
				stop()
				if err := <-served; err != nil {
					t.Error(err)
				}
				if _, err := bufio.NewReader(client).ReadByte(); err == nil {
					t.Error("the client gets a part of the answer")
				}
			})
		})
	}
}

// The server ends the answer to a client that reads a little of it every minute, unless the answer is a stream.
func TestAnswersThatAreReadSlowlyEnd(t *testing.T) {
	for name, flushes := range map[string]bool{"an answer": false, "a stream": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const parts, size = 20, 16 << 10
				listener := pipes.Listen()
				ctx, stop := context.WithCancel(t.Context())
				served := make(chan error, 1)
				go func() {
					served <- serveOn(listener, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
						for range parts {
							_, _ = w.Write(make([]byte, size))
							if flushes {
								_ = http.NewResponseController(w).Flush()
							}
						}
					}))(ctx)
				}()
				client, server := net.Pipe()
				if err := listener.Connect(t.Context(), server); err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				if _, err := io.WriteString(client, "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"); err != nil {
					t.Fatal(err)
				}
				read, err := 0, error(nil)
				for part := make([]byte, size); err == nil; {
					time.Sleep(answeredWithin / 3) // a part takes two of these
					var n int
					n, err = io.ReadFull(client, part)
					read += n
				}
				if isWhole := read > parts*size; isWhole != flushes || !flushes && time.Since(began) > answeredInAll+answeredWithin {
					t.Errorf("the client got %d bytes in %s, %v", read, time.Since(began), err)
				}
				stop()
				if err := <-served; err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// closing is a connection that reports its end.
type closing struct {
	net.Conn

	once   sync.Once
	closed func()
}

// Close implements net.Conn.
func (c *closing) Close() error {
	c.once.Do(c.closed)
	return c.Conn.Close()
}
