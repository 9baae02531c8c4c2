package certificates

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	certificatesinformers "k8s.io/client-go/informers/certificates/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/coppice-dev/coppice/internal/controller"
)

const (
	publisherName = "kube-apiserver-serving-clustertrustbundle-publisher-controller"
	// servingSigner signs the certificates of API servers.
	servingSigner = "kubernetes.io/kube-apiserver-serving"
)

// publisher keeps the only ClusterTrustBundle of a signer.
type publisher struct {
	client  kubernetes.Interface
	bundles cache.Indexer
	want    certificatesv1.ClusterTrustBundle
}

// NewTrustBundlePublisher returns the controller that publishes the certificate by which pods verify the API server as
// the ClusterTrustBundle of its signer, and deletes all others of this signer. authority is in PEM.
func NewTrustBundlePublisher(shared *controller.Context, authority []byte) *controller.Controller {
	informer := certificatesinformers.NewFilteredClusterTrustBundleInformer(shared.Client, 0, cache.Indexers{}, func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector("spec.signerName", servingSigner).String()
	})
	want := trustBundle(servingSigner, authority)
	key := cache.ObjectName{Name: want.Name}
	first := make(chan controller.Request, 1)
	first <- controller.Request{Key: key} // no bundle may be there yet
	c := &publisher{client: shared.Client, bundles: informer.GetIndexer(), want: want}
	return &controller.Controller{
		Name: publisherName, Reconcile: c.reconcile, Workers: 1, Requests: first, Informers: []cache.SharedIndexInformer{informer},
		Sources: []controller.Source{{Informer: informer, Keys: func(any) []cache.ObjectName { return []cache.ObjectName{key} }}},
	}
}

// trustBundle returns the bundle of a signer. Its name changes with the certificates.
func trustBundle(signer string, authority []byte) certificatesv1.ClusterTrustBundle {
	digest := sha256.Sum256(authority)
	return certificatesv1.ClusterTrustBundle{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s:%x", strings.ReplaceAll(signer, "/", ":"), digest[:12])},
		Spec:       certificatesv1.ClusterTrustBundleSpec{SignerName: signer, TrustBundle: string(authority)},
	}
}

func (c *publisher) reconcile(ctx context.Context, _ cache.ObjectName) (time.Duration, error) {
	var errs []error
	found := false
	for _, obj := range c.bundles.List() {
		bundle, ok := obj.(*certificatesv1.ClusterTrustBundle)
		switch {
		case !ok:
		case bundle.Name != c.want.Name:
			errs = append(errs, c.remove(ctx, bundle))
		default:
			found = true
			if bundle.Spec.TrustBundle != c.want.Spec.TrustBundle {
				errs = append(errs, c.restore(ctx, bundle))
			}
		}
	}
	if !found {
		errs = append(errs, c.create(ctx))
	}
	return 0, errors.Join(errs...)
}

func (c *publisher) create(ctx context.Context) error {
	_, err := c.client.CertificatesV1().ClusterTrustBundles().Create(ctx, c.want.DeepCopy(), metav1.CreateOptions{})
	if err != nil && !controller.IsAlreadyExists(err) {
		return fmt.Errorf("create ClusterTrustBundle %s: %w", c.want.Name, err)
	}
	return nil
}

func (c *publisher) restore(ctx context.Context, bundle *certificatesv1.ClusterTrustBundle) error {
	changed := bundle.DeepCopy()
	changed.Spec.TrustBundle = c.want.Spec.TrustBundle
	if _, err := c.client.CertificatesV1().ClusterTrustBundles().Update(ctx, changed, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("update ClusterTrustBundle %s: %w", bundle.Name, err)
	}
	return nil
}

func (c *publisher) remove(ctx context.Context, bundle *certificatesv1.ClusterTrustBundle) error {
	err := c.client.CertificatesV1().ClusterTrustBundles().Delete(ctx, bundle.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &bundle.UID, ResourceVersion: &bundle.ResourceVersion},
	})
	if controller.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete ClusterTrustBundle %s: %w", bundle.Name, err)
	}
	return nil
}
