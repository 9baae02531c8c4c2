package nodelifecycle

import (
	"context"
	"log/slog"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"

	"github.com/coppice-dev/coppice/internal/controller"
	"github.com/coppice-dev/coppice/internal/rules/builtin"
)

// A pod of a node that does not exist goes after the quarantine, also in a cluster that has no node: no event about a
// node comes there.
func TestPodOfAMissingNodeGoesInAClusterWithoutNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "lost", UID: "1"}, Spec: corev1.PodSpec{NodeName: "never-there"}}
		client := fake.NewClientset(pod)
		shared, err := controller.NewContext(client, clock.RealClock{}, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- shared.Run(ctx, NewPodGC(shared, DefaultPodLimits())) }()
		exists := func() bool {
			synctest.Wait()
			_, err := client.CoreV1().Pods("default").Get(ctx, "lost", metav1.GetOptions{})
			if err != nil && !apierrors.IsNotFound(err) {
				t.Fatal(err)
			}
			return err == nil
		}
		if time.Sleep(builtin.NodeQuarantine - time.Second); !exists() {
			t.Error("it goes before the quarantine has ended")
		}
		if time.Sleep(builtin.PodGarbagePeriod + time.Second); exists() {
			t.Error("it stays after the quarantine")
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// A webhook may deny the removal of a pod with the code of a pod that is gone.
func TestDeniedRemovalIsReported(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a", UID: "1"}, Status: corev1.PodStatus{Phase: corev1.PodFailed}}
	for _, code := range []int32{http.StatusForbidden, http.StatusNotFound} {
		client := fake.NewClientset(pod)
		client.PrependReactor("delete", "pods", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, denial(code) })
		c := &podCollector{client: client}
		if err := c.remove(t.Context(), removal{Pod: pod}); err == nil {
			t.Errorf("code %d: no error", code)
		}
	}
}
