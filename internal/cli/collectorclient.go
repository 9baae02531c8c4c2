package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"

	"github.com/coppice-dev/coppice/collector/report"
	"github.com/coppice-dev/coppice/internal/tools/terminal"
	"github.com/coppice-dev/coppice/internal/tools/web/api"
)

// collectorFlags are the flags of the commands that ask a running collector.
type collectorFlags struct {
	cluster clusterFlags
	address string
}

const addressUsage = `URL of a running collector, such as http://` + diagnosticsAddress + ` for "coppice collect"; the token of the kubeconfig, or of --token, is sent to it`

func (f *collectorFlags) add(c *cobra.Command) {
	f.cluster.add(c)
	c.Flags().StringVar(&f.address, "address", "", addressUsage+` (default: the API server, which is one if it is that of "coppice up")`)
}

// noCollector is the value of --address with which a command asks no collector.
const noCollector = "none"

// orReadUsage describes --address for the commands that read the cluster if there is no collector.
const orReadUsage = addressUsage + `; ` + noCollector + ` reads the whole cluster instead (default: the API server, if it is that of "coppice up", or else ` + noCollector + `)`

// collector returns a client of the collector at the address. Without an address, it returns a client of the API
// server of "coppice up", which answers for its own collector. It returns nil if the server is another one or the
// address is "none": the caller reads the cluster.
func (f *collectorFlags) collector(ctx context.Context) (*collectorClient, error) {
	switch f.address {
	case noCollector:
		return nil, nil // no collector
	case "":
		a, err := f.client()
		if err != nil {
			return nil, err
		}
		ctx, cancel := context.WithTimeout(ctx, collectorTimeout)
		defer cancel()
		if !isCoppice(ctx, a.read) {
			return nil, nil // no collector
		}
		return a, nil
	}
	return f.client()
}

// collectorClient is a client of the API of a running collector.
type collectorClient struct {
	client    *http.Client
	server    *url.URL
	namespace string
}

// client returns a client of the collector at the address, or of the API server if the address is empty.
func (f *collectorFlags) client() (*collectorClient, error) {
	config, err := f.cluster.config()
	if err != nil {
		return nil, err
	}
	config = rest.CopyConfig(config)
	config.Timeout = 0 // requests have contexts
	if address := strings.TrimSuffix(f.address, "/"); address != "" && address != strings.TrimSuffix(config.Host, "/") {
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
	namespace, err := f.cluster.namespace()
	return &collectorClient{client, server, namespace}, err
}

// redirect makes config send its credentials to another address. It returns an error for an address at which a
// token would cross the network unencrypted.
func redirect(config *rest.Config, address string) error {
	server, err := url.Parse(address)
	switch {
	case err != nil || server.Host == "" || server.Scheme != "http" && server.Scheme != "https":
		return usageError{fmt.Errorf("--address %q is not a URL such as http://%s", address, diagnosticsAddress)}
	case server.Scheme == "https":
	case !isLoopbackAddress(server.Host):
		return usageError{fmt.Errorf("--address %q is neither https nor an address of the loopback interface with a port: your token would be sent to it in the clear; kubectl port-forward makes it local", address)}
	default:
		config.TLSClientConfig = rest.TLSClientConfig{}
	}
	config.Host, config.APIPath = address, ""
	return nil
}

// query names objects: TYPE/NAME …, or TYPE NAME ….
func (c *collectorClient) query(args []string) (url.Values, error) {
	query := url.Values{}
	if len(args) == 0 {
		return query, nil
	}
	kind, hasNames := args[0], len(args) > 1 && !strings.Contains(args[0], "/")
	if !hasNames && !strings.Contains(kind, "/") {
		return nil, usageError{fmt.Errorf("%q names no object: write TYPE/NAME or TYPE NAME", kind)}
	}
	for n, arg := range args {
		switch {
		case hasNames && n > 0:
			query.Add("object", kind+"/"+arg)
		case !hasNames:
			query.Add("object", arg)
		}
	}
	if c.namespace == "" {
		return nil, usageError{errors.New("a name needs a namespace: leave out --all-namespaces")}
	}
	query.Set("namespace", c.namespace)
	return query, nil
}

// open sends a request, and returns the answer.
func (c *collectorClient) open(ctx context.Context, path string, query url.Values) (io.ReadCloser, error) {
	at := c.server.JoinPath(path)
	at.RawQuery = query.Encode()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", c.server, err)
	}
	response, err := c.client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("no collector answers at %s: %w; name one with --address", c.server, causeOf(err))
	}
	if response.StatusCode == http.StatusOK {
		return response.Body, nil
	}
	defer response.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(response.Body, 1000))
	why := oneLineOf(string(text))
	isOfAPI := strings.HasPrefix(response.Header.Get("Content-Type"), "text/plain")
	switch {
	case response.StatusCode == http.StatusUnauthorized:
		why += `; "kubectl create token SERVICEACCOUNT" makes a token for --token`
	case response.StatusCode == http.StatusNotFound && (!isOfAPI || len(query) == 0):
		why = `it is no collector; name that of "coppice collect" with --address`
	}
	return nil, fmt.Errorf("%s: %s", c.server, why)
}

// read returns the body of an answer.
func (c *collectorClient) read(ctx context.Context, path string) ([]byte, error) {
	body, err := c.open(ctx, path, nil)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	text, err := io.ReadAll(body)
	if err != nil {
		return nil, fmt.Errorf("read the answer of %s: %w", c.server, err)
	}
	return text, nil
}

// get decodes an answer.
func (c *collectorClient) get(ctx context.Context, path string, query url.Values, into any) error {
	body, err := c.open(ctx, path, query)
	if err != nil {
		return err
	}
	defer body.Close()
	if err := json.NewDecoder(body).Decode(into); err != nil {
		return fmt.Errorf("read the answer of %s: %w", c.server, err)
	}
	return nil
}

// recordList is the answer to a request for records.
type recordList struct {
	Items  []report.Record `json:"items"`
	Unread []string        `json:"unread,omitempty"`
}

// follow calls visit with each new record, until ctx ends or the collector does not answer.
func (c *collectorClient) follow(ctx context.Context, query url.Values, visit func(report.Record) error) error {
	for ctx.Err() == nil {
		body, err := c.open(ctx, api.Prefix+"/watch", query)
		if err != nil {
			return unlessStopped(ctx, err)
		}
		err = eachRecord(body, func(r report.Record) error {
			query.Set("after", fmt.Sprint(r.Number))
			return visit(r)
		})
		body.Close()
		if err != nil {
			return unlessStopped(ctx, err)
		}
	}
	return nil
}

// eachRecord reads the records among server-sent events.
func eachRecord(events io.Reader, visit func(report.Record) error) error {
	return eachEvent(events, func(e serverEvent) error {
		if e.name != "record" {
			return nil
		}
		var r report.Record
		if err := json.Unmarshal(e.data, &r); err != nil {
			return fmt.Errorf("read a record: %w", err)
		}
		return visit(r)
	})
}

// serverEvent is a server-sent event. The data is valid until the next one is read.
type serverEvent struct {
	name, id string
	data     []byte
}

// mostEvent bounds the data of an event, in bytes: one event has all objects of a deletion.
const mostEvent = 256 << 20

// eachEvent reads server-sent events until their stream ends: the server ends it within a minute.
func eachEvent(events io.Reader, visit func(serverEvent) error) error {
	lines := bufio.NewScanner(events)
	lines.Buffer(nil, mostEvent)
	var e serverEvent
	for lines.Scan() {
		field, value, _ := bytes.Cut(lines.Bytes(), []byte(": "))
		switch string(field) {
		case "event":
			e.name = string(value)
		case "id":
			e.id = string(value)
		case "data":
			e.data = value
			if err := visit(e); err != nil {
				return err
			}
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read the answer of the collector: %w", err)
	}
	return nil
}

// printLeftOut lists the resources that the collector has left out. For a user with few rights they are nearly all.
func printLeftOut(w io.Writer, unread []string) {
	for n, what := range unread {
		if n == maxUnread {
			terminal.Fprintf(w, "not read: %d more\n", len(unread)-n)
			return
		}
		terminal.Fprintf(w, "not read: %s\n", what)
	}
}
