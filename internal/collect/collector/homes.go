package collector

import (
	"context"
	"maps"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/coppice-dev/coppice/internal/collect/collector/client"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

// homes has the namespaces that were observed and are not gone, by name. It determines in which of several namespaces
// with one name an object has lived. The name alone does not suffice: the watches of objects may lag behind the watch
// of namespaces, and the other way round.
type homes map[string]home

// home is a namespace, and the first revision at which it was observed: it was created no later.
type home struct {
	uid   ownership.UID
	since uint64
}

func isNamespace(kind ownership.Kind) bool { return kind == ownership.Kind{Kind: "Namespace"} }

func (h homes) observe(o *ownership.Object) {
	if !isNamespace(o.Kind) || h[o.Name].uid == o.UID {
		return
	}
	if since, ok := client.Revision(o.ResourceVersion); ok {
		h[o.Name] = home{o.UID, since}
	} else {
		delete(h, o.Name)
	}
}

// forget forgets a namespace that is gone.
func (h homes) forget(o *ownership.Object) {
	if isNamespace(o.Kind) && h[o.Name].uid == o.UID {
		delete(h, o.Name)
	}
}

// sweep forgets the namespaces that are not there.
func (h homes) sweep(isThere func(ownership.UID) bool) {
	maps.DeleteFunc(h, func(_ string, known home) bool { return !isThere(known.uid) })
}

// at returns the namespace of an object at a resourceVersion; empty if that is uncertain. An object that existed
// after the namespace was created was in it, or in a later one that is not observed yet, never in a former one.
func (h homes) at(namespace, resourceVersion string) ownership.UID {
	known, ok := h[namespace]
	revision, isRevision := client.Revision(resourceVersion)
	if !ok || !isRevision || revision <= known.since {
		return ""
	}
	return known.uid
}

// homeNow returns the UID of the last observed namespace of that name. An object that a later request finds was in
// it, or in a later namespace.
func (s *state) homeNow(namespace string) ownership.UID {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.homes[namespace].uid
}

// homeAt is homes.at.
func (s *state) homeAt(namespace, resourceVersion string) ownership.UID {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.homes.at(namespace, resourceVersion)
}

// Living reads the namespace that has a name now, and returns its UID; empty if the namespace does not exist.
func (c *Collector) Living(ctx context.Context, namespace string) (ownership.UID, error) {
	found, err := c.api.Get(ctx, client.Ref{Kind: ownership.Kind{Kind: "Namespace"}, Name: namespace})
	switch {
	case apierrors.IsNotFound(err):
		return "", nil
	case err != nil:
		return "", err
	}
	return found.UID, nil
}
