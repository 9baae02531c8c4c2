package apiserver_test

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

// TestServerHasOneLeaseAcrossStarts checks that a server has one Lease however often it starts, and a ConfigMap with the time
// since when it records the use of older tokens, which does not change.
func TestServerHasOneLeaseAcrossStarts(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil)
	lease := func() (holder string) {
		t.Helper()
		eventually.Succeeds(t, func() error {
			leases, err := clientOf(t, s).CoordinationV1().Leases(metav1.NamespaceSystem).List(t.Context(), metav1.ListOptions{LabelSelector: "apiserver.kubernetes.io/identity=kube-apiserver"})
			if err != nil {
				return err
			}
			if len(leases.Items) != 1 || leases.Items[0].Spec.RenewTime == nil || leases.Items[0].Labels["kubernetes.io/hostname"] == "" {
				return fmt.Errorf("the leases of servers are %v", leases.Items)
			}
			holder = *leases.Items[0].Spec.HolderIdentity
			return nil
		})
		return holder
	}
	since := func() string {
		t.Helper()
		var date string
		eventually.Succeeds(t, func() error {
			tracking, err := clientOf(t, s).CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(t.Context(), "kube-apiserver-legacy-service-account-token-tracking", metav1.GetOptions{})
			if err == nil {
				date = tracking.Data["since"]
			}
			return err
		})
		return date
	}
	first := lease()
	if _, err := time.Parse(time.DateOnly, since()); err != nil {
		t.Error(err)
	}
	tracking := clientOf(t, s).CoreV1().ConfigMaps(metav1.NamespaceSystem)
	if _, err := tracking.Patch(t.Context(), "kube-apiserver-legacy-service-account-token-tracking", "application/merge-patch+json", []byte(`{"data":{"since":"2020-01-02"}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	s.restart(t)
	if got := since(); got != "2020-01-02" {
		t.Errorf("after a restart, the date is %s", got)
	}
	eventually.Succeeds(t, func() error {
		if lease() == first {
			return fmt.Errorf("the server that started again is %s still", first)
		}
		return nil
	})
}

// Only the plug-in ServiceAccount, which these tests leave out, gives pods a service account.
func TestPodWithoutAccount(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil)
	created := s.pods(t, s.namespace(t)).create("p")
	for _, field := range []string{"serviceAccountName", "serviceAccount", "volumes"} {
		if spec, _ := created.Object["spec"].(map[string]any); spec[field] != nil {
			t.Errorf("a new pod has %s: %v", field, spec[field])
		}
	}
}
