package kubelet

import (
	"context"
	"encoding/base64"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"golang.org/x/net/websocket"
	corev1 "k8s.io/api/core/v1"

	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

// dial opens a WebSocket to the log of a pod.
func dial(t *testing.T, url string, protocols ...string) (*websocket.Conn, error) {
	t.Helper()
	config, err := websocket.NewConfig("ws"+strings.TrimPrefix(url, "http")+"/?container=app", "http://localhost")
	if err != nil {
		t.Fatal(err)
	}
	config.Protocol = protocols
	client, err := config.DialContext(t.Context())
	if err == nil {
		t.Cleanup(func() { client.Close() })
	}
	return client, err
}

func of(log io.ReadCloser) *logEndpoint {
	return newLogEndpoint(aPod(), nil, func(context.Context, *corev1.Pod, *corev1.PodLogOptions) (io.ReadCloser, error) { return log, nil })
}

// A log is sent as messages to a client that requests a WebSocket, with the protocol that both support.
func TestLogByWebSocket(t *testing.T) {
	text := strings.Repeat("a line\n", 1000)
	for name, test := range map[string]struct {
		protocols []string
		chosen    string
		decode    func(string) ([]byte, error)
	}{
		"none":       {nil, "", nil},
		"binary":     {[]string{"binary.k8s.io"}, "binary.k8s.io", nil},
		"base64":     {[]string{"base64.binary.k8s.io"}, "base64.binary.k8s.io", base64.StdEncoding.DecodeString},
		"the second": {[]string{"other", "binary.k8s.io"}, "binary.k8s.io", nil},
	} {
		t.Run(name, func(t *testing.T) {
			client, err := dial(t, serveLogs(t, of(io.NopCloser(strings.NewReader(text)))), test.protocols...)
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(client.Config().Protocol, ","); test.chosen != "" && got != test.chosen {
				t.Errorf("the protocol is %s, want %s", got, test.chosen)
			}
			var got strings.Builder
			for i := 0; ; i++ {
				var message []byte
				if err := websocket.Message.Receive(client, &message); err != nil {
					if !errors.Is(err, io.EOF) {
						t.Error(err)
					}
					break
				}
				if test.decode != nil {
					if message, err = test.decode(string(message)); err != nil {
						t.Fatal(err)
					}
				}
				if i == 0 && len(message) > 0 {
					t.Errorf("the first message is %q", message)
				}
				got.Write(message)
			}
			if got.String() != text {
				t.Errorf("%d bytes of %d arrived", got.Len(), len(text))
			}
		})
	}
}

// A failed handshake gets a response, whatever the log does.
func TestUnknownWebSocketProtocol(t *testing.T) {
	log, _ := io.Pipe()
	url := serveLogs(t, of(log))
	if _, err := dial(t, url, "other"); err == nil {
		t.Error("a protocol was agreed on that is not known")
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/?container=app", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	for key, value := range map[string]string{"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "1"} {
		request.Header.Set(key, value)
	}
	response, err := (&http.Client{Timeout: eventually.Patience}).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode < 400 {
		t.Errorf("the response to a request without a key is %s", response.Status)
	}
}

// A followed log is closed when its reader disconnects.
func TestFollowedLogIsClosedWithTheWebSocket(t *testing.T) {
	log, container := io.Pipe()
	client, err := dial(t, serveLogs(t, of(log)), "binary.k8s.io")
	if err != nil {
		t.Fatal(err)
	}
	var first []byte
	if err := websocket.Message.Receive(client, &first); err != nil {
		t.Fatal(err)
	}
	client.Close()
	closed := make(chan error, 1)
	go func() {
		for {
			if _, err := container.Write([]byte("x")); err != nil {
				closed <- err
				return
			}
		}
	}()
	eventually.Holds(t, "the log is closed", func() bool { return len(closed) > 0 })
}
