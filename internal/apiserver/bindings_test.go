package apiserver_test

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/internal/apiserver"
)

// bindings is the older form of pods/binding: the same effect, once.
func TestBindingsHaveTheEffectOfPodsBinding(t *testing.T) {
	s := sharedServer(t)
	namespace := s.namespace(t)
	pods := s.pods(t, namespace)
	pods.content = map[string]any{"spec": map[string]any{"containers": []any{map[string]any{"name": "a", "image": "a"}}}}
	pods.create("a")
	bindings := s.collection(t, gvk("", "v1", "Binding"), "bindings", namespace, map[string]any{"target": map[string]any{"kind": "Node", "name": "node-1"}})
	stale := bindings.named("a")
	stale.SetResourceVersion("1")
	if _, err := bindings.tryPost(stale); !apierrors.IsConflict(err) {
		t.Errorf("bound in another state than the Binding names: %v", err)
	}
	code, answer, err := bindings.exchange(http.MethodPost, bindings.path, "application/json", bindings.named("a"))
	if err != nil || code != http.StatusCreated || !isStatus(answer) {
		t.Fatalf("%d %v %v", code, answer, err)
	}
	if spec := pods.get("a").Object["spec"].(map[string]any); spec["nodeName"] != "node-1" {
		t.Errorf("bound to %v", spec["nodeName"])
	}
	if _, err := bindings.tryPost(bindings.named("a")); !apierrors.IsConflict(err) {
		t.Errorf("bound twice: %v", err)
	}
	if _, err := bindings.tryPost(bindings.named("b")); !apierrors.IsNotFound(err) {
		t.Errorf("a pod that is not there: %v", err)
	}
}

// componentstatuses queries etcd for each request, and cannot be written.
func TestComponentStatuses(t *testing.T) {
	var companions atomic.Pointer[apiserver.Companions]
	companions.Store(&apiserver.Companions{})
	s := startServer(t, func(c *apiserver.Config) {
		c.Companions = func() apiserver.Companions { return *companions.Load() }
	})
	c := s.collection(t, gvk("", "v1", "ComponentStatus"), "componentstatuses", "", nil)
	if names := c.names(); len(names) != 1 || names[0] != "etcd-0" {
		t.Errorf("%v", names)
	}
	conditions, _ := c.get("etcd-0").Object["conditions"].([]any)
	if len(conditions) != 1 || conditions[0].(map[string]any)["type"] != "Healthy" || conditions[0].(map[string]any)["status"] != "True" {
		t.Errorf("%v", conditions)
	}
	if c.get("other") != nil {
		t.Error("there is another component")
	}
	companions.Store(&apiserver.Companions{Components: map[string]func(context.Context) error{
		"other": func(context.Context) error { return errors.New("it is tired") },
	}})
	conditions, _ = c.get("other").Object["conditions"].([]any)
	if len(conditions) != 1 || conditions[0].(map[string]any)["status"] != "False" || conditions[0].(map[string]any)["error"] != "it is tired" {
		t.Errorf("another component: %v", conditions)
	}
	if names := c.names(); len(names) != 2 {
		t.Errorf("with another component: %v", names)
	}
	companions.Store(&apiserver.Companions{})
	if c.get("other") != nil {
		t.Error("a component stays that runs no more")
	}
	if _, err := c.tryPost(c.named("a")); !apierrors.IsMethodNotSupported(err) {
		t.Errorf("created: %v", err)
	}
	if answer, err := c.send(http.MethodGet, c.path+"?labelSelector=a%3Db", "", nil); err != nil || len(items(t, answer)) != 0 {
		t.Errorf("by a label: %v, %v", answer, err)
	}
}

// The ServiceCIDR kubernetes contains the range with which the server was started.
func TestServiceCIDR(t *testing.T) {
	t.Parallel()
	s := startServer(t, smallRanges)
	cidr, err := clientOf(t, s).NetworkingV1().ServiceCIDRs().Get(t.Context(), "kubernetes", metav1.GetOptions{})
	if err != nil || len(cidr.Spec.CIDRs) != 1 || cidr.Spec.CIDRs[0] != "10.7.0.0/29" {
		t.Fatalf("%+v, %v", cidr, err)
	}
	if c := cidr.Status.Conditions; len(c) != 1 || c[0].Type != "Ready" || c[0].Status != metav1.ConditionTrue || !c[0].LastTransitionTime.Equal(&cidr.CreationTimestamp) {
		t.Errorf("conditions %v", c)
	}
	version := cidr.ResourceVersion
	s.restart(t)
	cidr, err = clientOf(t, s).NetworkingV1().ServiceCIDRs().Get(t.Context(), "kubernetes", metav1.GetOptions{})
	if err != nil || cidr.ResourceVersion != version {
		t.Errorf("after a restart with another range: %v, %v", cidr, err)
	}
}
