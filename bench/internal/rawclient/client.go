// Package rawclient is a cheap client of the API, so that a benchmark measures the server
// rather than itself: a client based on client-go, which decodes and copies each object,
// takes as much processor time as the server.
//
// A Client is one persistent HTTP/1.1 connection over TLS, on which one goroutine writes a request
// and reads the whole response. Bodies are protobuf, encoded and decoded by the caller. The server
// treats it like any other client.
package rawclient

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	protobufserializer "k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// Client is one connection. It is not safe for concurrent use.
type Client struct {
	url        string
	connection net.Conn
	reader     *bufio.Reader
	writer     *bufio.Writer
	codec      runtime.Serializer
	body       bytes.Buffer
	answer     bytes.Buffer
}

// Clients are connections of one user.
type Clients []*Client

// Dial opens n connections with the credentials of the configuration. They are usable until the
// deadline of ctx.
func Dial(ctx context.Context, config *rest.Config, n int) (Clients, error) {
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
	var clients Clients
	for range n {
		connection, err := dialer.DialContext(ctx, "tcp", base.Host)
		if err != nil {
			clients.Close()
			return nil, fmt.Errorf("connect a client: %w", err)
		}
		if deadline, ok := ctx.Deadline(); ok {
			if err := connection.SetDeadline(deadline); err != nil {
				clients.Close()
				return nil, fmt.Errorf("bound a connection in time: %w", err)
			}
		}
		clients = append(clients, &Client{
			url: "https://" + base.Host, connection: connection,
			reader: bufio.NewReader(connection), writer: bufio.NewWriter(connection),
			codec: codec(),
		})
	}
	return clients, nil
}

func codec() runtime.Serializer {
	return protobufserializer.NewSerializer(scheme.Scheme, scheme.Scheme)
}

// Close closes the connections.
func (c Clients) Close() {
	for _, client := range c {
		client.Close()
	}
}

// Close closes the connection.
func (c *Client) Close() { _ = c.connection.Close() }

// Do makes one request and returns the body of the response, which is valid until the next
// request. Any status other than success is an error.
func (c *Client) Do(ctx context.Context, method, path string, body []byte) ([]byte, error) {
	return c.do(ctx, method, path, runtime.ContentTypeProtobuf, body)
}

// do is Do, with the type of the body.
func (c *Client) do(ctx context.Context, method, path, bodyType string, body []byte) ([]byte, error) {
	response, err := c.send(ctx, method, path, bodyType, body)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	c.answer.Reset()
	if _, err := io.Copy(&c.answer, response.Body); err != nil {
		return nil, fmt.Errorf("read the answer to %s %s: %w", method, path, err)
	}
	return c.answer.Bytes(), nil
}

// send writes a request and reads the header of the response.
func (c *Client) send(ctx context.Context, method, path, bodyType string, body []byte) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, method, c.url+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", runtime.ContentTypeProtobuf)
	if len(body) > 0 {
		request.Header.Set("Content-Type", bodyType)
	}
	if err := request.Write(c.writer); err != nil {
		return nil, fmt.Errorf("send %s %s: %w", method, path, err)
	}
	if err := c.writer.Flush(); err != nil {
		return nil, fmt.Errorf("send %s %s: %w", method, path, err)
	}
	response, err := http.ReadResponse(c.reader, request)
	if err != nil {
		return nil, fmt.Errorf("read the answer to %s %s: %w", method, path, err)
	}
	if response.StatusCode/100 != 2 {
		defer response.Body.Close()
		text, _ := io.ReadAll(response.Body) // the status says enough
		return nil, StatusError{response.StatusCode, fmt.Sprintf("%s %s: %s: %q", method, path, response.Status, text)}
	}
	return response, nil
}

// StatusError is an answer with a status other than success.
type StatusError struct {
	Code int
	text string
}

func (e StatusError) Error() string { return e.text }

// IsStatus reports whether an error is an answer with a status.
func IsStatus(err error, code int) bool {
	answer, ok := errors.AsType[StatusError](err)
	return ok && answer.Code == code
}

// ConfigMaps returns the path of the ConfigMaps of a namespace.
func ConfigMaps(namespace string) string {
	return "/api/v1/namespaces/" + namespace + "/configmaps"
}

// Create creates a ConfigMap and stores the server's response in it.
func (c *Client) Create(ctx context.Context, object *corev1.ConfigMap) error {
	return c.write(ctx, http.MethodPost, ConfigMaps(object.Namespace), object)
}

// Update updates a ConfigMap and stores the server's response in it.
func (c *Client) Update(ctx context.Context, object *corev1.ConfigMap) error {
	return c.write(ctx, http.MethodPut, ConfigMaps(object.Namespace)+"/"+object.Name, object)
}

// Patch changes a ConfigMap by a JSON merge patch, and stores the server's response in it.
func (c *Client) Patch(ctx context.Context, object *corev1.ConfigMap, patch []byte) error {
	answer, err := c.do(ctx, http.MethodPatch, ConfigMaps(object.Namespace)+"/"+object.Name, string(types.MergePatchType), patch)
	if err != nil {
		return err
	}
	return c.decode(answer, object)
}

// Delete deletes a ConfigMap.
func (c *Client) Delete(ctx context.Context, object *corev1.ConfigMap) error {
	_, err := c.Do(ctx, http.MethodDelete, ConfigMaps(object.Namespace)+"/"+object.Name, nil)
	return err
}

func (c *Client) write(ctx context.Context, method, path string, object *corev1.ConfigMap) error {
	c.body.Reset()
	if err := c.codec.Encode(object, &c.body); err != nil {
		return err
	}
	answer, err := c.Do(ctx, method, path, c.body.Bytes())
	if err != nil {
		return err
	}
	return c.decode(answer, object)
}

func (c *Client) decode(answer []byte, object *corev1.ConfigMap) error {
	_, _, err := c.codec.Decode(answer, nil, object)
	return err
}
