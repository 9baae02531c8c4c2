package coppicetest

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// requestTimeout bounds a request that does not wait for anything.
const requestTimeout = 30 * time.Second

// client sends requests to one server.
type client struct {
	server string
	token  string
	http   *http.Client
}

func newClient(a access) (*client, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if len(a.authority) > 0 {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(a.authority) {
			return nil, errors.New("the certificate authority of the kubeconfig is invalid")
		}
	}
	if len(a.certificate) > 0 {
		pair, err := tls.X509KeyPair(a.certificate, a.key)
		if err != nil {
			return nil, fmt.Errorf("the certificate of the kubeconfig: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}
	return &client{server: strings.TrimSuffix(a.server, "/"), token: a.token, http: &http.Client{Transport: transport}}, nil
}

// close ends the idle connections.
func (c *client) close() { c.http.CloseIdleConnections() }

// request is an HTTP request.
type request struct {
	method, path string
	accept       string // default: application/json
	contentType  string
	body         []byte
}

// statusError is an answer with an error status.
type statusError struct {
	code    int
	request string
	message string
	// name is the name of the object in the answer's details.
	name string
}

// Error implements error.
func (e statusError) Error() string { return fmt.Sprintf("%s: %d %s", e.request, e.code, e.message) }

// isCode reports whether an error is an answer with this code.
func isCode(err error, code int) bool {
	var status statusError
	return errors.As(err, &status) && status.code == code
}

// mostTries bounds how often a read is sent.
const mostTries = 3

// send sends a request, a read again if its connection ends. The caller closes the body of the answer.
func (c *client) send(ctx context.Context, r request) (answer *http.Response, err error) {
	for range mostTries {
		answer, err = c.exchange(ctx, r)
		var status statusError
		if err == nil || errors.As(err, &status) || r.method != http.MethodGet || ctx.Err() != nil {
			break
		}
	}
	return answer, err
}

func (c *client) exchange(ctx context.Context, r request) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, r.method, c.server+r.path, bytes.NewReader(r.body))
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", r.method, r.path, err)
	}
	req.Header.Set("Accept", "application/json")
	if r.accept != "" {
		req.Header.Set("Accept", r.accept)
	}
	if r.contentType != "" {
		req.Header.Set("Content-Type", r.contentType)
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	req.Header.Set("User-Agent", fieldManager)
	answer, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode/100 == 2 {
		return answer, nil
	}
	defer answer.Body.Close()
	return nil, errorOf(r, answer)
}

func errorOf(r request, answer *http.Response) error {
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return fmt.Errorf("%s %s: %w", r.method, r.path, err)
	}
	failed := statusError{code: answer.StatusCode, request: r.method + " " + r.path, message: strings.TrimSpace(string(body))}
	var status struct {
		Message string
		Details struct{ Name string }
	}
	if json.Unmarshal(body, &status) == nil && status.Message != "" {
		failed.message, failed.name = status.Message, status.Details.Name
	}
	return failed
}

// do sends a request and decodes the answer into into, unless that is nil.
func (c *client) do(ctx context.Context, r request, into any) error {
	answer, err := c.send(ctx, r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if into == nil {
		_, err = io.Copy(io.Discard, answer.Body)
	} else {
		// Read to the end: otherwise the connection cannot be reused.
		var body []byte
		if body, err = io.ReadAll(answer.Body); err == nil {
			err = json.Unmarshal(body, into)
		}
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w", r.method, r.path, err)
	}
	return nil
}

// get reads a path.
func (c *client) get(ctx context.Context, path string, into any) error {
	return c.do(ctx, request{method: http.MethodGet, path: path}, into)
}
