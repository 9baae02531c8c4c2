package coppicetest

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/coppice-dev/coppice/coppicetest/leaks"
)

// The media types of discovery and metadata.
const (
	discoveryType = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
	metadataType  = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
)

// resource is a resource that can be listed.
type resource struct {
	path string // up to its name
	kind leaks.Kind
}

// discovery is an answer of aggregated discovery.
type discovery struct {
	Items []struct {
		Metadata struct{ Name string }
		Versions []struct {
			Version   string
			Resources []discovered
		}
	}
}

// discovered is a resource in a discovery answer.
type discovered struct {
	Resource     string
	Scope        string
	Verbs        []string
	ResponseKind struct{ Kind string }
}

// resources returns the served resources that can be listed, each once, and the served kinds, with
// true for namespaced kinds.
func (p *Plane) resources(ctx context.Context) (all []resource, kinds map[leaks.Kind]bool, err error) {
	kinds = map[leaks.Kind]bool{}
	for _, root := range []string{"/api", "/apis"} {
		var found discovery
		if err := p.api.do(ctx, request{method: http.MethodGet, path: root, accept: discoveryType}, &found); err != nil {
			return nil, nil, fmt.Errorf("read discovery: %w", err)
		}
		for _, group := range found.Items {
			for _, version := range group.Versions {
				for _, r := range version.Resources {
					kind := leaks.Kind{Group: group.Metadata.Name, Kind: r.ResponseKind.Kind}
					if _, known := kinds[kind]; !known && r.canBeCollected() {
						kinds[kind] = r.Scope == "Namespaced"
						all = append(all, resource{pathOf(kind.Group, version.Version, r.Resource), kind})
					}
				}
			}
		}
	}
	return all, kinds, nil
}

func (d discovered) canBeCollected() bool {
	return slices.Contains(d.Verbs, "list") && slices.Contains(d.Verbs, "delete")
}

// pathOf returns the path of a resource.
func pathOf(group, version, resource string) string {
	if group == "" {
		return "/api/" + version + "/" + resource
	}
	return "/apis/" + group + "/" + version + "/" + resource
}

// metadata is the part of an object that is read.
type metadata struct {
	Metadata struct {
		Name, Namespace, UID string
		DeletionTimestamp    *time.Time
		Finalizers           []string
		Labels, Annotations  map[string]string
		OwnerReferences      []struct{ APIVersion, Kind, Name, UID string }
		ManagedFields        []struct {
			Manager, Subresource string
			Time                 time.Time
		}
	}
}

// object converts the metadata for package leaks.
func (m metadata) object(kind leaks.Kind) leaks.Object {
	o := leaks.Object{
		Kind: kind, Namespace: m.Metadata.Namespace, Name: m.Metadata.Name, UID: m.Metadata.UID, Finalizers: m.Metadata.Finalizers,
		Deleting: m.Metadata.DeletionTimestamp != nil, Labels: m.Metadata.Labels, Annotations: m.Metadata.Annotations,
	}
	for _, owner := range m.Metadata.OwnerReferences {
		group := ""
		if i := strings.LastIndex(owner.APIVersion, "/"); i >= 0 {
			group = owner.APIVersion[:i]
		}
		o.Owners = append(o.Owners, leaks.Owner{Kind: leaks.Kind{Group: group, Kind: owner.Kind}, Name: owner.Name, UID: owner.UID})
	}
	var oldest time.Time
	for _, field := range m.Metadata.ManagedFields {
		switch {
		case field.Subresource != "":
		case oldest.IsZero() || field.Time.Before(oldest):
			oldest, o.Creators = field.Time, []string{field.Manager}
		case field.Time.Equal(oldest) && !slices.Contains(o.Creators, field.Manager):
			o.Creators = append(o.Creators, field.Manager)
		}
	}
	return o
}

// list returns the objects of a resource.
func (p *Plane) list(ctx context.Context, r resource) ([]leaks.Object, error) {
	var all []leaks.Object
	for after := ""; ; {
		query := url.Values{"limit": {"500"}}
		if after != "" {
			query.Set("continue", after)
		}
		var page struct {
			Metadata struct{ Continue string }
			Items    []metadata
		}
		if err := p.api.do(ctx, request{method: http.MethodGet, path: r.path + "?" + query.Encode(), accept: metadataType}, &page); err != nil {
			return nil, err
		}
		for _, item := range page.Items {
			all = append(all, item.object(r.kind))
		}
		if after = page.Metadata.Continue; after == "" {
			return all, nil
		}
	}
}

// read returns all objects and the kinds, and records the objects in seen. An object that the
// server serves as several kinds, such as ReplicaSet.apps and ReplicaSet.extensions, is one object,
// of the kind that discovery lists first.
func (p *Plane) read(ctx context.Context) (objects []leaks.Object, kinds map[leaks.Kind]bool, err error) {
	resources, kinds, err := p.resources(ctx)
	if err != nil {
		return nil, nil, err
	}
	at := map[string]int{} // the index in objects, by UID
	for _, r := range resources {
		some, err := p.list(ctx, r)
		if isCode(err, http.StatusNotFound) || isCode(err, http.StatusMethodNotAllowed) {
			continue // it was withdrawn meanwhile
		}
		if err != nil {
			return nil, nil, err
		}
		for _, o := range some {
			if i, known := at[o.UID]; known {
				objects[i].Aliases = append(objects[i].Aliases, o.Kind)
				continue
			}
			at[o.UID] = len(objects)
			objects = append(objects, o)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, o := range objects {
		p.seen[o.UID] = o
	}
	return objects, kinds, nil
}
