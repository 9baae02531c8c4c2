package reader

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/coppice-dev/coppice/internal/tools/inventory"
)

// Only the metadata of token Secrets is read.
func TestTokensAreReadByTheirType(t *testing.T) {
	scheme := metadatafake.NewTestScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	secret := &metav1.PartialObjectMetadata{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "token", UID: "t", Annotations: map[string]string{
			corev1.ServiceAccountNameKey: "robot", corev1.ServiceAccountUIDKey: "r",
		}},
	}
	client := metadatafake.NewSimpleMetadataClient(scheme, secret)
	selector := ""
	client.PrependReactor("list", "secrets", func(a clienttesting.Action) (bool, runtime.Object, error) {
		selector = a.(clienttesting.ListAction).GetListRestrictions().Fields.String()
		return false, nil, nil
	})
	got, err := tokensIn(t.Context(), client.Resource(corev1.SchemeGroupVersion.WithResource("secrets")).Namespace("shop"))
	if diff := cmp.Diff([]inventory.Token{{Secret: "t", Account: "robot", AccountUID: "r"}}, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got)\n%s", err, diff)
	}
	if selector != "type=kubernetes.io/service-account-token" {
		t.Errorf("the selector is %q", selector)
	}
}
