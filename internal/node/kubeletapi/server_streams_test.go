package kubeletapi

import (
	"bufio"
	"crypto/tls"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/coppice-dev/coppice/internal/apiserver/auth"
)

// TestUpgradedConnectionReachesTheRuntime checks that an upgraded connection is forwarded to the runtime and back, and ends with the server, and
// that a missing stream is reported as missing.
func TestUpgradedConnectionReachesTheRuntime(t *testing.T) {
	runtime := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, buffer, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		_, _ = io.Copy(conn, buffer)
	}))
	t.Cleanup(runtime.Close)
	agent := &anAgent{streams: runtime.URL}
	s := serve(t, agent, nil)
	for name, test := range map[string]struct {
		target string
		status int
		says   string
	}{
		"no upgrade":        {"/exec/default/web/app?output=1", http.StatusBadRequest, "Upgrade request required"},
		"another pod":       {"/exec/default/other/app?output=1", http.StatusNotFound, `pods "other" not found`},
		"an earlier pod":    {"/portForward/default/web?uid=uid-0", http.StatusNotFound, `pods "web" not found`},
		"another container": {"/attach/default/web/other?output=1", http.StatusNotFound, "not found"},
		"no stream":         {"/attach/default/web/app", http.StatusBadRequest, "must be set"},
	} {
		response, err := s.get(t, test.target, nil)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err != nil || response.StatusCode != test.status || !strings.Contains(string(text), test.says) {
			t.Errorf("%s: %s %q, %v; want %d and %q", name, response.Status, text, err, test.status, test.says)
		}
	}
	config, err := auth.NewLogReader(s.authority).TLS("worker")
	if err != nil {
		t.Fatal(err)
	}
	conn, err := tls.Dial("tcp", s.address, config)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, err = io.WriteString(conn, "POST /exec/default/web/app?command=cat&input=1&output=1 HTTP/1.1\r\nHost: worker\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	if err != nil {
		t.Fatal(err)
	}
	answer := bufio.NewReader(conn)
	response, err := http.ReadResponse(answer, nil)
	if err != nil || response.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("%v %v", response, err)
	}
	response.Body.Close()
	if _, err := io.WriteString(conn, "hello\n"); err != nil {
		t.Fatal(err)
	}
	if line, err := answer.ReadString('\n'); err != nil || line != "hello\n" {
		t.Errorf("%q, %v", line, err)
	}
	if r := agent.stream.Load(); r.Kind != Exec || r.Container != "app" || len(r.Command) != 1 || !r.Stdin {
		t.Errorf("%+v", r)
	}
	s.ends()
	if rest, err := io.ReadAll(answer); len(rest) > 0 {
		t.Errorf("after the end: %q, %v", rest, err)
	}
}
