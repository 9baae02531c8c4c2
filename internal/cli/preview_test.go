package cli

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/rest"
)

// The preview uses the deletion order of the flag, or of the cluster's namespace controller.
func TestPreviewOrder(t *testing.T) {
	for _, test := range []struct {
		version, flag string
		rolesAreLast  bool
	}{
		{version: "v1.37.2+coppice-0.1.0", rolesAreLast: true},
		{version: "v1.36.3"},
		{version: "v1.37.2+coppice-0.1.0", flag: "pods;*"},
		{version: "v1.36.3", flag: "*;roles.rbac.authorization.k8s.io", rolesAreLast: true},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = fmt.Fprintf(w, `{"gitVersion": %q}`, test.version)
		}))
		defer server.Close()
		f := previewFlags{order: test.flag}
		order, err := f.deletionOrder(t.Context(), &rest.Config{Host: server.URL})
		if err != nil {
			t.Fatal(err)
		}
		roles, rest := order.StageOf(rbacv1.Resource("roles")), order.StageOf(corev1.Resource("configmaps"))
		if isLast := roles > rest; isLast != test.rolesAreLast {
			t.Errorf("%s, --namespace-deletion-order=%q: roles in stage %d, the rest in %d", test.version, test.flag, roles, rest)
		}
		if order.StageOf(corev1.Resource("pods")) > rest {
			t.Errorf("%s: pods are not first", test.version)
		}
	}
	f := previewFlags{order: "pods"}
	if _, err := f.deletionOrder(t.Context(), &rest.Config{}); err == nil {
		t.Error("an order without everything else is accepted")
	}
}
