package ask

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/coppice-dev/coppice/internal/collect/namespaces"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/testing/wireserver"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
)

// roundTripper is a function that answers requests.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// oneTarget requests one object by its UID.
type oneTarget ownership.UID

func (o oneTarget) Args() []string                   { return nil }
func (o oneTarget) AreNamed() bool                   { return false }
func (o oneTarget) Find(io.Writer) ([]string, error) { return []string{string(o)}, nil }
func (o oneTarget) Choose(*inventory.Inventory, io.Writer) ([]ownership.UID, error) {
	return []ownership.UID{ownership.UID(o)}, nil
}

// An interrupted preview has no answer: the facts that were still to be read are unknown.
func TestInterruptedPreviewHasNoAnswer(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	cluster := wireserver.New(wireserver.Resource{Name: "configmaps", Kind: "ConfigMap"})
	cluster.Put("configmaps", wireserver.Owned("a", "a"))
	transport := roundTripper(func(r *http.Request) (*http.Response, error) {
		if strings.Contains(r.URL.Path, "/admissionregistration.k8s.io/") {
			interrupt()
		}
		return cluster.RoundTrip(r)
	})
	sources := &Sources{Config: &rest.Config{Host: "http://server", Transport: transport}, Address: NoCollector, Now: time.Now}
	_, err := sources.Preview(ctx, Deletion{Targets: oneTarget("a"), Policy: metav1.DeletePropagationBackground})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("the error is %v", err)
	}
}

// The preview uses the given deletion order, or that of the cluster's namespace controller.
func TestPreviewOrder(t *testing.T) {
	for _, test := range []struct {
		version, given string
		rolesAreLast   bool
	}{
		{version: "v1.37.2+coppice-0.1.0", rolesAreLast: true},
		{version: "v1.36.3"},
		{version: "v1.37.2+coppice-0.1.0", given: "pods;*"},
		{version: "v1.36.3", given: "*;roles.rbac.authorization.k8s.io", rolesAreLast: true},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = fmt.Fprintf(w, `{"gitVersion": %q}`, test.version)
		}))
		defer server.Close()
		var given *namespaces.Order
		if test.given != "" {
			order, err := namespaces.NewOrder(namespaces.ParseStages(test.given))
			if err != nil {
				t.Fatal(err)
			}
			given = &order
		}
		order, err := (&Sources{Config: &rest.Config{Host: server.URL}}).deletionOrder(t.Context(), given)
		if err != nil {
			t.Fatal(err)
		}
		roles, rest := order.StageOf(rbacv1.Resource("roles")), order.StageOf(corev1.Resource("configmaps"))
		if isLast := roles > rest; isLast != test.rolesAreLast {
			t.Errorf("%s, order %q: roles in stage %d, the rest in %d", test.version, test.given, roles, rest)
		}
		if order.StageOf(corev1.Resource("pods")) > rest {
			t.Errorf("%s: pods are not first", test.version)
		}
	}
}
