// Package serviceaccount has the controllers of service accounts and of the objects that belong to them:
//
//	namespace ──▶ the service account "default", and the config map kube-root-ca.crt, which holds the
//	              certificate authority that verifies the server's certificate
//	Secret of type kubernetes.io/service-account-token ──▶ its token
//
// In Kubernetes these are three controllers: serviceaccount, rootcacertpublisher and the tokens
// controller.
package serviceaccount

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/coppice-dev/coppice/internal/controller"
)

// The names that Kubernetes uses.
const (
	Account      = "default"
	Authority    = "kube-root-ca.crt"
	AuthorityKey = "ca.crt"
)

const (
	name    = "service-account-controller"
	workers = 2
)

type reconciler struct {
	client     kubernetes.Interface
	namespaces corelisters.NamespaceLister
	accounts   cache.Indexer
	maps       cache.Indexer
	authority  string
}

// New returns the controller that ensures that every namespace has the objects that its pods need to talk to
// the server: it restores the service account and the config map when they are deleted or changed, unless the
// namespace is being deleted. authority is a certificate in PEM.
func New(shared *controller.Context, authority []byte) *controller.Controller {
	namespaces := shared.Informers.Namespaces
	accounts := coreinformers.NewFilteredServiceAccountInformer(shared.Client, metav1.NamespaceAll, 0, cache.Indexers{}, named(Account))
	maps := coreinformers.NewFilteredConfigMapInformer(shared.Client, metav1.NamespaceAll, 0, cache.Indexers{}, named(Authority))
	c := &reconciler{shared.Client, namespaces.Lister(), accounts.GetIndexer(), maps.GetIndexer(), string(authority)}
	return &controller.Controller{
		Name: name, Reconcile: c.reconcile, Workers: workers, Informers: []cache.SharedIndexInformer{accounts, maps},
		Sources: []controller.Source{
			controller.For(namespaces.Informer()), {Informer: accounts, Keys: namespaceOf}, {Informer: maps, Keys: namespaceOf},
		},
	}
}

func named(name string) func(*metav1.ListOptions) {
	return func(options *metav1.ListOptions) {
		options.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
	}
}

func namespaceOf(obj any) []cache.ObjectName {
	if o, ok := obj.(metav1.Object); ok {
		return []cache.ObjectName{{Name: o.GetNamespace()}}
	}
	return nil
}

func (c *reconciler) reconcile(ctx context.Context, key cache.ObjectName) (time.Duration, error) {
	namespace, err := c.namespaces.Get(key.Name)
	if apierrors.IsNotFound(err) || err == nil && namespace.DeletionTimestamp != nil {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	for _, ensure := range []func(context.Context, string) error{c.ensureAccount, c.ensureAuthority} {
		if err := ensure(ctx, key.Name); err != nil && !controller.IsNamespaceTerminating(err) {
			return 0, err
		}
	}
	return 0, nil
}

func (c *reconciler) ensureAccount(ctx context.Context, namespace string) error {
	if _, exists, err := c.accounts.GetByKey(namespace + "/" + Account); err != nil || exists {
		return err
	}
	_, err := c.client.CoreV1().ServiceAccounts(namespace).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: Account}}, metav1.CreateOptions{})
	if err != nil && !controller.IsAlreadyExists(err) {
		return fmt.Errorf("create service account %s/%s: %w", namespace, Account, err)
	}
	return nil
}

func (c *reconciler) ensureAuthority(ctx context.Context, namespace string) error {
	known, exists, err := c.maps.GetByKey(namespace + "/" + Authority)
	if err != nil {
		return err
	}
	there, ok := known.(*corev1.ConfigMap)
	switch {
	case !exists || !ok:
		_, err = c.client.CoreV1().ConfigMaps(namespace).Create(ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: Authority, Annotations: map[string]string{
				"kubernetes.io/description": "The certificate authority by which clients in this namespace verify the API server's certificate. It is kept up to date by the control plane.",
			}},
			Data: map[string]string{AuthorityKey: c.authority},
		}, metav1.CreateOptions{})
		if controller.IsAlreadyExists(err) {
			return nil
		}
	case there.Data[AuthorityKey] != c.authority || len(there.Data) != 1:
		changed := there.DeepCopy()
		changed.Data, changed.BinaryData = map[string]string{AuthorityKey: c.authority}, nil
		_, err = c.client.CoreV1().ConfigMaps(namespace).Update(ctx, changed, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("write config map %s/%s: %w", namespace, Authority, err)
	}
	return nil
}
