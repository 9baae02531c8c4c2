package certificates

import (
	"context"
	"fmt"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	certificatesinformers "k8s.io/client-go/informers/certificates/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/coppice-dev/coppice/internal/controller"
)

const (
	podCleanerName = "podcertificaterequest-cleaner-controller"
	// keptPodRequest is how long a PodCertificateRequest is kept: longer than a node waits for a certificate.
	keptPodRequest = 15 * time.Minute
)

// podCleaner deletes old PodCertificateRequests.
type podCleaner struct {
	client   kubernetes.Interface
	requests cache.Indexer
	now      func() time.Time
}

// NewPodRequestCleaner returns the controller that deletes PodCertificateRequests some time after they were made,
// whatever became of them.
func NewPodRequestCleaner(shared *controller.Context) *controller.Controller {
	informer := certificatesinformers.NewPodCertificateRequestInformer(shared.Client, metav1.NamespaceAll, 0, cache.Indexers{})
	c := &podCleaner{client: shared.Client, requests: informer.GetIndexer(), now: shared.Clock.Now}
	return &controller.Controller{
		Name: podCleanerName, Reconcile: c.reconcile, Workers: 1, Informers: []cache.SharedIndexInformer{informer},
		Sources: []controller.Source{controller.For(informer)},
	}
}

func (c *podCleaner) reconcile(ctx context.Context, key cache.ObjectName) (time.Duration, error) {
	obj, exists, err := c.requests.GetByKey(key.String())
	request, ok := obj.(*certificatesv1.PodCertificateRequest)
	if err != nil || !exists || !ok || request.DeletionTimestamp != nil {
		return 0, err
	}
	if left := request.CreationTimestamp.Add(keptPodRequest).Sub(c.now()); left > 0 {
		return left + time.Second, nil
	}
	err = c.client.CertificatesV1().PodCertificateRequests(key.Namespace).Delete(ctx, key.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &request.UID, ResourceVersion: &request.ResourceVersion},
	})
	if controller.IgnoreNotFound(err) != nil {
		return 0, fmt.Errorf("delete: %w", err)
	}
	return 0, nil
}
