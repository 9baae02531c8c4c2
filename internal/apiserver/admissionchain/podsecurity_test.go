package admissionchain

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// TestPodPages checks that all pages of the pods of a namespace are read, each of a bounded size, and that fields which
// no check reads are left out.
func TestPodPages(t *testing.T) {
	client := fake.NewClientset()
	next := map[string]string{"": "second", "second": "third", "third": ""}
	client.PrependReactor("list", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		options := action.(clienttesting.ListActionImpl).GetListOptions()
		if options.Limit != podsOfOneList {
			t.Errorf("a page has up to %d pods", options.Limit)
		}
		page := &corev1.PodList{ListMeta: metav1.ListMeta{Continue: next[options.Continue]}}
		for i := range 2 {
			page.Items = append(page.Items, corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", options.Continue, i), ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "a"}}},
				Spec:       corev1.PodSpec{NodeName: "n"}, Status: corev1.PodStatus{Message: "m"},
			})
		}
		return true, page, nil
	})
	pods, err := podPages{client}.ListPods(t.Context(), "a")
	if err != nil || len(pods) != 6 || pods[5].Name != "third-1" {
		t.Fatalf("%v, %v", pods, err)
	}
	for _, pod := range pods {
		if pod.ManagedFields != nil || pod.Status.Message != "" || pod.Spec.NodeName != "n" {
			t.Errorf("%+v", pod)
		}
	}
}
