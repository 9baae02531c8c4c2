package coppicetest_test

import (
	"testing"

	"github.com/coppice-dev/coppice/coppicetest"
)

// TestAttachedCollectorCollects collects on a server that has no controllers.
func TestAttachedCollectorCollects(t *testing.T) {
	t.Parallel()
	bare := coppicetest.Start(t, coppicetest.WithoutControllers())
	plane := coppicetest.Attach(t, bare.Kubeconfig, coppicetest.WithCRDBytes([]byte(widgets)))
	s := newServer(t, plane)
	owner := s.configMap("owner", "")
	owned := s.configMap("owned", "", owner)
	s.delete(configMaps+"/owner", `{"propagationPolicy":"Foreground"}`)
	plane.Gone(t, owner, owned)
	s.create("/api/v1/namespaces", `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"shop"}}`)
	s.create("/api/v1/namespaces/shop/configmaps", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"held","finalizers":["example.com/cleanup"]}}`)
	s.delete("/api/v1/namespaces/shop", "")
	if held := plane.Settled(t); len(held) != 2 {
		t.Errorf("held: %v", held)
	}
	s.letGo("/api/v1/namespaces/shop/configmaps/held")
	if held := plane.Settled(t); len(held) != 0 {
		t.Errorf("held: %v", held)
	}
	plane.NoLeaks(t)
}
