package collector

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"sync"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/coppice-dev/coppice/internal/collect/feed"
)

// discoverer is a discovery client of any version of client-go.
type discoverer interface {
	ServerGroupsAndResources() ([]*metav1.APIGroup, []*metav1.APIResourceList, error)
}

// discoveryOf adapts a discovery client to the feed. Discovery takes no context in client-go v0.36, which modules
// that require package collector may use.
func discoveryOf(client discoverer) feed.Discovery {
	var d feed.Discovery = withoutContext{client}
	if current, ok := client.(feed.Discovery); ok {
		d = current
	}
	if c, ok := client.(interface{ RESTClient() rest.Interface }); ok {
		if server, ok := c.RESTClient().(*rest.RESTClient); ok && server != nil && server.Client != nil {
			return &conditional{full: d, server: server}
		}
	}
	return d
}

// withoutContext calls a client that cannot be interrupted; the client's timeout bounds how long Run waits for
// it.
type withoutContext struct{ discoverer }

// ServerGroupsAndResourcesWithContext implements feed.Discovery.
func (d withoutContext) ServerGroupsAndResourcesWithContext(ctx context.Context) ([]*metav1.APIGroup, []*metav1.APIResourceList, error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	return d.ServerGroupsAndResources()
}

// conditional asks a server only for what has changed since the last answer.
//
// Problem: the barrier needs discovery for each level of a foreground deletion, and discovery seldom changes. Its two
// documents have 80 kB on a server without custom resources, and a megabyte with some hundred; client-go reads one
// after the other and decodes both.
//
// Solution: each document has an ETag, which a request names. Both requests are sent at once; if the server
// answers both with 304, nothing is decoded. Such an answer is as new as a whole one.
//
// Cost: a server without aggregated discovery (before Kubernetes 1.27) gets one more request, once.
type conditional struct {
	full   feed.Discovery // for servers without aggregated discovery, and for errors
	server *rest.RESTClient

	whole        bool   // the server has no aggregated discovery
	legacy, apis string // the ETags of the documents that were read last; empty: they have to be read
}

// document is one of the two documents of discovery.
type document struct {
	tag       string
	read      bool // false: it has not changed since the one with the tag
	groups    *metav1.APIGroupList
	resources map[schema.GroupVersion]*metav1.APIResourceList
	failed    map[schema.GroupVersion]error
}

var (
	errNotAggregated = errors.New("the server has no aggregated discovery")
	errRefused       = errors.New("the server refused discovery")
)

// ServerGroupsAndResourcesWithContext implements feed.Discovery. It is not safe for concurrent use.
func (d *conditional) ServerGroupsAndResourcesWithContext(ctx context.Context) ([]*metav1.APIGroup, []*metav1.APIResourceList, error) {
	if d.whole {
		return d.full.ServerGroupsAndResourcesWithContext(ctx)
	}
	legacy, apis, err := d.ask(ctx, d.legacy, d.apis)
	if err == nil && !legacy.read && !apis.read {
		return nil, nil, feed.ErrUnchanged
	}
	if err == nil && legacy.read != apis.read {
		legacy, apis, err = d.ask(ctx, "", "")
	}
	d.legacy, d.apis = "", ""
	if err != nil {
		// client-go asks again, and returns errors that the callers know.
		d.whole = errors.Is(err, errNotAggregated)
		return d.full.ServerGroupsAndResourcesWithContext(ctx)
	}
	groups, lists, err := merge(legacy, apis)
	if len(lists) > 0 { // the feed does not accept an answer without resources
		d.legacy, d.apis = legacy.tag, apis.tag
	}
	return groups, lists, err
}

// ask reads both documents, unless they are the ones with these tags.
func (d *conditional) ask(ctx context.Context, legacyTag, apisTag string) (legacy, apis document, err error) {
	var asking sync.WaitGroup
	var failures [2]error
	asking.Go(func() { legacy, failures[0] = ask(ctx, d.server, "/api", legacyTag) })
	asking.Go(func() { apis, failures[1] = ask(ctx, d.server, "/apis", apisTag) })
	asking.Wait()
	return legacy, apis, errors.Join(failures[:]...)
}

// ask reads a document, unless it is the one with this tag.
func ask(ctx context.Context, server *rest.RESTClient, path, tag string) (document, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, server.Get().AbsPath(path).URL().String(), http.NoBody)
	if err != nil {
		return document{}, err
	}
	request.Header.Set("Accept", discovery.AcceptV2)
	if tag != "" {
		request.Header.Set("If-None-Match", tag)
	}
	response, err := server.Client.Do(request)
	if err != nil {
		return document{}, err
	}
	defer response.Body.Close()
	switch response.StatusCode {
	case http.StatusNotModified:
		// Closed before its end, the body would abort a handler that is still returning, if the server is in this process.
		_, err := io.Copy(io.Discard, response.Body)
		return document{tag: tag}, err
	case http.StatusNotAcceptable:
		return document{}, errNotAggregated
	case http.StatusOK:
		return decode(response)
	default:
		return document{}, fmt.Errorf("%w: %s", errRefused, response.Status)
	}
}

func decode(response *http.Response) (document, error) {
	aggregated := apidiscovery.SchemeGroupVersion.WithKind("APIGroupDiscoveryList")
	if is, err := discovery.ContentTypeIsGVK(response.Header.Get("Content-Type"), aggregated); err != nil || !is {
		return document{}, errNotAggregated
	}
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return document{}, err
	}
	var list apidiscovery.APIGroupDiscoveryList
	if err := json.Unmarshal(body, &list); err != nil {
		return document{}, err
	}
	d := document{tag: response.Header.Get("ETag"), read: true}
	d.groups, d.resources, d.failed = discovery.SplitGroupsAndResources(list)
	return d, nil
}

// merge returns both documents as client-go does.
func merge(legacy, apis document) ([]*metav1.APIGroup, []*metav1.APIResourceList, error) {
	var groups []*metav1.APIGroup
	var lists []*metav1.APIResourceList
	failed := map[schema.GroupVersion]error{}
	for _, d := range []document{legacy, apis} {
		for i := range d.groups.Groups {
			groups = append(groups, &d.groups.Groups[i])
		}
		lists = slices.AppendSeq(lists, maps.Values(d.resources))
		maps.Copy(failed, d.failed)
	}
	if len(failed) > 0 {
		return groups, lists, &discovery.ErrGroupDiscoveryFailed{Groups: failed}
	}
	return groups, lists, nil
}
