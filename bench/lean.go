package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	protobufserializer "k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// lean is a client that costs little: an HTTP/1.1 connection over TLS that is kept, on
// which one goroutine writes a request and reads the answer to it, all of it. The bodies
// are protobuf, encoded and decoded by the caller. The server cannot tell it from any
// other client; beside it, client-go spends as much processor time as the server does.
type lean struct {
	url        string
	connection net.Conn
	reader     *bufio.Reader
	writer     *bufio.Writer
	codec      runtime.Serializer
	body       bytes.Buffer
	answer     bytes.Buffer
}

// protobuf is how the bodies are encoded.
const protobuf = runtime.ContentTypeProtobuf

// dialLean connects n clients, with the certificate of the configuration.
func dialLean(ctx context.Context, config *rest.Config, n int) (clients []*lean, err error) {
	settings, err := rest.TLSConfigFor(config)
	if err != nil {
		return nil, fmt.Errorf("set up TLS: %w", err)
	}
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, fmt.Errorf("find the server: %w", err)
	}
	settings.NextProtos = []string{"http/1.1"}
	dialer := tls.Dialer{Config: settings}
	for range n {
		connection, err := dialer.DialContext(ctx, "tcp", base.Host)
		if err != nil {
			return nil, fmt.Errorf("connect a client: %w", err)
		}
		clients = append(clients, &lean{
			url: "https://" + base.Host, connection: connection, reader: bufio.NewReader(connection), writer: bufio.NewWriter(connection),
			codec: protobufserializer.NewSerializer(scheme.Scheme, scheme.Scheme),
		})
	}
	return clients, nil
}

// do makes one request and returns the body of the answer, good until the next
// request. A status other than those of success is an error.
func (l *lean) do(ctx context.Context, method, path string, body []byte) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, method, l.url+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", protobuf)
	if len(body) > 0 {
		request.Header.Set("Content-Type", protobuf)
	}
	if err := request.Write(l.writer); err != nil {
		return nil, fmt.Errorf("send %s %s: %w", method, path, err)
	}
	if err := l.writer.Flush(); err != nil {
		return nil, fmt.Errorf("send %s %s: %w", method, path, err)
	}
	response, err := http.ReadResponse(l.reader, request)
	if err != nil {
		return nil, fmt.Errorf("read the answer to %s %s: %w", method, path, err)
	}
	defer response.Body.Close()
	l.answer.Reset()
	if _, err := io.Copy(&l.answer, response.Body); err != nil {
		return nil, fmt.Errorf("read the answer to %s %s: %w", method, path, err)
	}
	if response.StatusCode/100 != 2 {
		return nil, fmt.Errorf("%s %s: %s: %q", method, path, response.Status, l.answer.Bytes())
	}
	return l.answer.Bytes(), nil
}

const configMaps = "/api/v1/namespaces/%s/configmaps"

func (l *lean) create(ctx context.Context, object *corev1.ConfigMap) error {
	return l.write(ctx, http.MethodPost, fmt.Sprintf(configMaps, object.Namespace), object)
}

func (l *lean) update(ctx context.Context, object *corev1.ConfigMap) error {
	return l.write(ctx, http.MethodPut, fmt.Sprintf(configMaps, object.Namespace)+"/"+object.Name, object)
}

func (l *lean) remove(ctx context.Context, object *corev1.ConfigMap) error {
	_, err := l.do(ctx, http.MethodDelete, fmt.Sprintf(configMaps, object.Namespace)+"/"+object.Name, nil)
	return err
}

// write sends an object and reads it back as the server has it.
func (l *lean) write(ctx context.Context, method, path string, object *corev1.ConfigMap) error {
	l.body.Reset()
	if err := l.codec.Encode(object, &l.body); err != nil {
		return err
	}
	answer, err := l.do(ctx, method, path, l.body.Bytes())
	if err != nil {
		return err
	}
	_, _, err = l.codec.Decode(answer, nil, object)
	return err
}

func (l *lean) close() { _ = l.connection.Close() }
