package restconfig_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/coppice-dev/coppice/coppicetest"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/coppice-dev/coppice/coppicetest/restconfig"
)

// TestTypedClientsWithRightsAndWithout deletes with typed clients, as administrator and as a user without rights.
func TestTypedClientsWithRightsAndWithout(t *testing.T) {
	plane := coppicetest.Start(t, coppicetest.WithBinary(binary(t)))
	client := kubernetes.NewForConfigOrDie(restconfig.For(t, plane)).CoreV1().ConfigMaps("default")
	owner, err := client.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owner"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	owned, err := client.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Name: "owned", OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(owner, corev1.SchemeGroupVersion.WithKind("ConfigMap"))},
	}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	guest := kubernetes.NewForConfigOrDie(restconfig.ForUser(t, plane, "guest")).CoreV1().ConfigMaps("default")
	if err := guest.Delete(t.Context(), "owner", metav1.DeleteOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("a user without rights deletes: %v", err)
	}
	if err := client.Delete(t.Context(), "owner", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	plane.Gone(t, owner, owned)
	plane.NoLeaks(t)
}

// binary returns the binary that COPPICE_BIN names, or builds it.
func binary(t *testing.T) string {
	t.Helper()
	if path := os.Getenv("COPPICE_BIN"); path != "" {
		return path
	}
	path := filepath.Join(t.TempDir(), "coppice")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", path, "./cmd/coppice")
	build.Dir = "../.."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build coppice: %v\n%s", err, out)
	}
	return path
}
