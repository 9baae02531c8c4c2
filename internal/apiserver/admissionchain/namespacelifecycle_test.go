package admissionchain

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// A namespace has come back under its name while the cache of admission still has the one that was deleted.
func TestR21_CacheAloneRefusesNoCreation(t *testing.T) {
	namespace := func(phase corev1.NamespacePhase) *corev1.Namespace {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns"}, Status: corev1.NamespaceStatus{Phase: phase}}
	}
	isTerminating := func(err error) bool { return apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) }
	failing := fake.NewClientset()
	failing.PrependReactor("get", "namespaces", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("no answer")
	})
	for name, c := range map[string]struct {
		live *fake.Clientset
		want func(error) bool
	}{
		"it is active":      {fake.NewClientset(namespace(corev1.NamespaceActive)), func(err error) bool { return err == nil }},
		"it is terminating": {fake.NewClientset(namespace(corev1.NamespaceTerminating)), isTerminating},
		"it is gone":        {fake.NewClientset(), apierrors.IsNotFound},
		"it cannot be read": {failing, isTerminating},
	} {
		t.Run(name, func(t *testing.T) {
			plugin, err := newNamespaceLifecycle(c.live)
			if err != nil {
				t.Fatal(err)
			}
			shared := informers.NewSharedInformerFactory(fake.NewClientset(namespace(corev1.NamespaceTerminating)), 0)
			plugin.SetExternalKubeInformerFactory(shared)
			plugin.SetExternalKubeClientSet(c.live)
			shared.Start(t.Context().Done())
			shared.WaitForCacheSync(t.Context().Done())
			if err := plugin.Admit(t.Context(), creation(pod(nil)), nil); !c.want(err) {
				t.Errorf("a creation: %v", err)
			}
		})
	}
}
