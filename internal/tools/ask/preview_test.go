package ask

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/rest"

	"github.com/coppice-dev/coppice/internal/collect/namespaces"
)

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
