package ask

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"

	"k8s.io/client-go/rest"

	"github.com/coppice-dev/coppice/internal/tools/version"
	"github.com/coppice-dev/coppice/internal/tools/web"
	"github.com/coppice-dev/coppice/internal/tools/web/api"
)

// shortTimeout bounds a request whose answer is small.
const shortTimeout = 10 * time.Second

// Collector is a client of the API of a running collector. It sends the user's credentials.
type Collector struct {
	// Server is the address.
	Server *url.URL
	// Client sends requests with the credentials.
	Client *http.Client
	// Namespace is the namespace of named objects; empty for all namespaces.
	Namespace string
}

// newCollector returns a client of the collector at an address, or of the API server if the address is empty.
func newCollector(config *rest.Config, address, namespace string) (*Collector, error) {
	config = rest.CopyConfig(config)
	config.Timeout = 0 // requests have contexts
	if address := strings.TrimSuffix(address, "/"); address != "" && address != strings.TrimSuffix(config.Host, "/") {
		if err := redirect(config, address); err != nil {
			return nil, err
		}
	}
	server, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, fmt.Errorf("find the address of the collector: %w", err)
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	return &Collector{Server: server, Client: client, Namespace: namespace}, nil
}

// redirect makes config send its credentials to another address. It returns an error for an address at which a
// token would cross the network unencrypted.
func redirect(config *rest.Config, address string) error {
	server, err := parseAddress(address)
	switch {
	case err != nil:
		return err
	case server.Scheme == "https":
	case server.Scheme != "http":
		return notURL(address)
	case !web.IsLoopbackAddress(server.Host):
		return InvalidError{fmt.Errorf("--address %q is neither https nor an address of the loopback interface with a port: your token would be sent to it in the clear; kubectl port-forward makes it local", address)}
	default:
		config.TLSClientConfig = rest.TLSClientConfig{}
	}
	config.Host, config.APIPath = address, ""
	return nil
}

// parseAddress returns the URL of a collector.
func parseAddress(address string) (*url.URL, error) {
	server, err := url.Parse(address)
	if err != nil || server.Host == "" {
		return nil, notURL(address)
	}
	return server, nil
}

func notURL(address string) error {
	return InvalidError{fmt.Errorf("--address %q is not a URL such as http://%s", address, web.DefaultAddress)}
}

// IsCoppice reports whether the server is one of "coppice up", which runs Coppice's controllers.
func (c *Collector) IsCoppice(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, shortTimeout)
	defer cancel()
	var served struct {
		GitVersion string `json:"gitVersion"`
	}
	return c.Get(ctx, "/version", nil, &served) == nil && version.IsOurs(served.GitVersion)
}

// Check returns an error if the arguments cannot name objects.
func (c *Collector) Check(objects Objects) error {
	_, err := c.query(objects)
	return err
}

// query names objects for the API.
func (c *Collector) query(objects Objects) (url.Values, error) {
	query := url.Values{}
	if len(objects.UIDs) > 0 {
		query["uid"] = objects.UIDs
	}
	args := objects.Args
	if len(args) == 0 {
		return query, nil
	}
	kind, hasNames := args[0], len(args) > 1 && !strings.Contains(args[0], "/")
	if !hasNames && !strings.Contains(kind, "/") {
		return nil, InvalidError{fmt.Errorf("%q names no object: write TYPE/NAME or TYPE NAME", kind)}
	}
	for n, arg := range args {
		switch {
		case hasNames && n > 0:
			query.Add("object", kind+"/"+arg)
		case !hasNames:
			query.Add("object", arg)
		}
	}
	if c.Namespace == "" {
		return nil, InvalidError{errors.New("a name needs a namespace: leave out --all-namespaces")}
	}
	query.Set("namespace", c.Namespace)
	return query, nil
}

// open sends a request, and returns the body of the response.
func (c *Collector) open(ctx context.Context, path string, query url.Values) (io.ReadCloser, error) {
	target := c.Server.JoinPath(path)
	target.RawQuery = query.Encode()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", c.Server, err)
	}
	response, err := c.Client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("no collector answers at %s: %w; name one with --address", c.Server, CauseOf(err))
	}
	if response.StatusCode == http.StatusOK {
		return response.Body, nil
	}
	defer response.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(response.Body, 1000))
	why := strings.Join(strings.Fields(string(text)), " ")
	isOfAPI := strings.HasPrefix(response.Header.Get("Content-Type"), "text/plain")
	switch {
	case response.StatusCode == http.StatusUnauthorized:
		why += `; "kubectl create token SERVICEACCOUNT" makes a token for --token`
	case response.StatusCode == http.StatusNotFound && (!isOfAPI || len(query) == 0):
		why = `it is no collector; name a "coppice collect" with --address`
	}
	err = fmt.Errorf("%s: %s", c.Server, why)
	if seconds, notNumber := strconv.ParseUint(response.Header.Get("Retry-After"), 10, 16); notNumber == nil && response.StatusCode == http.StatusServiceUnavailable {
		err = BusyError{err, time.Duration(seconds) * time.Second}
	}
	return nil, err
}

// BusyError is the error of a server that asks to repeat the request after some time.
type BusyError struct {
	error

	After time.Duration
}

func (e BusyError) Unwrap() error { return e.error }

// read returns the body of a response.
func (c *Collector) read(ctx context.Context, path string, query url.Values) ([]byte, error) {
	body, err := c.open(ctx, path, query)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	text, err := io.ReadAll(body)
	if err != nil {
		return nil, fmt.Errorf("read the answer of %s: %w", c.Server, err)
	}
	return text, nil
}

// Get decodes the JSON of a response.
func (c *Collector) Get(ctx context.Context, path string, query url.Values, into any) error {
	body, err := c.open(ctx, path, query)
	if err != nil {
		return err
	}
	defer body.Close()
	if err := json.NewDecoder(body).Decode(into); err != nil {
		return fmt.Errorf("read the answer of %s: %w", c.Server, err)
	}
	return nil
}

// Status returns the state of the collector.
func (c *Collector) Status(ctx context.Context) (status api.SeenStatus, err error) {
	err = c.Get(ctx, api.Status, nil, &status)
	return status, err
}

// CauseOf returns the cause of a connection error, without the request and the addresses.
func CauseOf(err error) error {
	if request, ok := errors.AsType[*url.Error](err); ok {
		err = request.Err
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && (op.Op == "dial" || op.Op == "listen") {
		if number, ok := errors.AsType[syscall.Errno](op.Err); ok {
			return number
		}
		return op.Err
	}
	return err
}
