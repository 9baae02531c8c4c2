package serviceaccount

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
)

// TestReferenceGoesAlthoughTheCacheLacksTheAccount: the watch of service accounts may be behind that of Secrets.
func TestReferenceGoesAlthoughTheCacheLacksTheAccount(t *testing.T) {
	account := &corev1.ServiceAccount{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "robot"}, Secrets: []corev1.ObjectReference{{Name: "other"}, {Name: "robot-token"}},
	}
	client := fake.NewClientset(account)
	empty := func() cache.Indexer {
		return cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{byAccount: accountOf})
	}
	c := &tokensReconciler{TokensConfig{Client: client}, empty(), empty()}
	if _, err := c.reconcile(t.Context(), cache.ObjectName{Namespace: "team", Name: "robot-token"}); err != nil {
		t.Fatal(err)
	}
	left, err := client.CoreV1().ServiceAccounts("team").Get(t.Context(), "robot", metav1.GetOptions{})
	if want := []corev1.ObjectReference{{Name: "other"}}; err != nil || !slices.Equal(left.Secrets, want) {
		t.Errorf("the account lists %v (%v), want %v", left.Secrets, err, want)
	}
}
