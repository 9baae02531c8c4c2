package cluster

import (
	"context"
	"errors"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
)

// old is a discovery client of client-go v0.36.
type old struct{}

var errOld = errors.New("asked")

func (old) ServerGroupsAndResources() ([]*metav1.APIGroup, []*metav1.APIResourceList, error) {
	return nil, nil, errOld
}

func TestDiscoveryOfAnyClientGo(t *testing.T) {
	d := discoveryOf(old{})
	if _, _, err := d.ServerGroupsAndResourcesWithContext(t.Context()); !errors.Is(err, errOld) {
		t.Errorf("the client was not asked: %v", err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if _, _, err := d.ServerGroupsAndResourcesWithContext(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("asked after the end: %v", err)
	}
	if current := new(discovery.DiscoveryClient); discoveryOf(current) != any(current) {
		t.Error("a client that takes a context is not used as it is")
	}
}
