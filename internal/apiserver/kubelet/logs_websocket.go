package kubelet

import (
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"golang.org/x/net/websocket"
	"k8s.io/streaming/pkg/httpstream"
)

// The subprotocols with which browsers and other clients read a log as messages. The first one is the
// default.
const (
	binaryProtocol = "binary.k8s.io"
	base64Protocol = "base64.binary.k8s.io"
)

const (
	// messageBytes is the size of the longest message, before it is encoded.
	messageBytes = 2048
	// mostReceived limits a message of the client, in bytes. Clients have no data to send.
	mostReceived = 1 << 10
)

// isWebSocket reports whether a client requests messages.
func isWebSocket(r *http.Request) bool {
	return strings.EqualFold(r.Header.Get("Upgrade"), "websocket") && httpstream.IsUpgradeRequest(r)
}

// streamMessages sends a log as messages, the first of which is empty, until the log ends or the client
// disconnects. If the client and the server have no protocol in common, the response is 403.
//
// The reader of k8s.io/streaming is not used: it waits forever if the handshake fails.
func streamMessages(w http.ResponseWriter, r *http.Request, log io.ReadCloser) {
	websocket.Server{Handshake: choose, Handler: func(client *websocket.Conn) {
		client.MaxPayloadBytes = mostReceived
		go func() {
			defer log.Close() // this stops copyMessages
			var ignored []byte
			for websocket.Message.Receive(client, &ignored) == nil {
			}
		}()
		copyMessages(client, log)
	}}.ServeHTTP(w, r)
}

// choose selects the client's first protocol that is known.
func choose(config *websocket.Config, _ *http.Request) error {
	if len(config.Protocol) == 0 {
		return nil
	}
	known := slices.IndexFunc(config.Protocol, func(p string) bool { return p == binaryProtocol || p == base64Protocol })
	if known < 0 {
		return fmt.Errorf("protocols %v are not supported; choose %s or %s", config.Protocol, binaryProtocol, base64Protocol)
	}
	config.Protocol = config.Protocol[known : known+1]
	return nil
}

// copyMessages copies messages until reading or sending fails.
func copyMessages(client *websocket.Conn, log io.Reader) {
	send := func(p []byte) error { return websocket.Message.Send(client, p) }
	if slices.Equal(client.Config().Protocol, []string{base64Protocol}) {
		send = func(p []byte) error { return websocket.Message.Send(client, base64.StdEncoding.EncodeToString(p)) }
	}
	buffer := make([]byte, messageBytes)
	for n, err := 0, error(nil); ; n, err = log.Read(buffer) {
		if n > 0 || err == nil {
			if send(buffer[:n]) != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
