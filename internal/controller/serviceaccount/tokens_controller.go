package serviceaccount

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/coppice-dev/coppice/internal/controller"
)

const (
	tokensName    = "tokens-controller"
	tokensWorkers = 2

	byAccount = "account" // index of Secrets: NAMESPACE/NAME of their service account
)

// TokensConfig configures the controller of tokens. All fields are required.
type TokensConfig struct {
	Client kubernetes.Interface
	// Authority is the certificate, in PEM, that verifies the API server.
	Authority []byte
	// Sign returns a token of a service account that is valid while a Secret has it.
	Sign func(account *corev1.ServiceAccount, secret string) (string, error)
}

type tokensReconciler struct {
	TokensConfig

	secrets, accounts cache.Indexer
}

// NewTokens returns the controller that fills Secrets of type kubernetes.io/service-account-token with a token that
// does not expire, and deletes them when their service account is gone. It also removes references to a deleted Secret
// from service accounts. Its keys are the keys of Secrets.
func NewTokens(config TokensConfig) *controller.Controller {
	secrets := coreinformers.NewFilteredSecretInformer(config.Client, metav1.NamespaceAll, 0, cache.Indexers{byAccount: accountOf}, func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector("type", string(corev1.SecretTypeServiceAccountToken)).String()
	})
	accounts := coreinformers.NewServiceAccountInformer(config.Client, metav1.NamespaceAll, 0, cache.Indexers{})
	c := &tokensReconciler{config, secrets.GetIndexer(), accounts.GetIndexer()}
	return &controller.Controller{
		Name: tokensName, Reconcile: c.reconcile, Workers: tokensWorkers, Informers: []cache.SharedIndexInformer{secrets, accounts},
		Sources: []controller.Source{controller.For(secrets), {Informer: accounts, Keys: c.secretsOf}},
	}
}

func accountOf(obj any) ([]string, error) {
	secret, ok := obj.(*corev1.Secret)
	if !ok {
		return nil, nil
	}
	return []string{secret.Namespace + "/" + secret.Annotations[corev1.ServiceAccountNameKey]}, nil
}

// secretsOf returns the keys of the token Secrets of a service account.
func (c *tokensReconciler) secretsOf(obj any) []cache.ObjectName {
	account, ok := obj.(*corev1.ServiceAccount)
	if !ok {
		return nil
	}
	found, _ := c.secrets.ByIndex(byAccount, account.Namespace+"/"+account.Name) // the index exists
	keys := make([]cache.ObjectName, 0, len(found))
	for _, each := range found {
		if secret, ok := each.(*corev1.Secret); ok {
			keys = append(keys, cache.MetaObjectToName(secret))
		}
	}
	return keys
}

func (c *tokensReconciler) reconcile(ctx context.Context, key cache.ObjectName) (time.Duration, error) {
	obj, _, _ := c.secrets.GetByKey(key.String()) // a store in memory does not fail
	secret, ok := obj.(*corev1.Secret)
	if !ok {
		return 0, c.dropReferences(ctx, key)
	}
	account, err := c.account(ctx, secret)
	if err != nil {
		return 0, err
	}
	switch decide(secret, account, c.Authority) {
	case fill:
		err = c.fill(ctx, secret, account)
	case remove:
		err = c.remove(ctx, secret)
	case keep:
	}
	return 0, err
}

// account returns the service account of a Secret, or nil if it does not exist. If the cache lacks it, it is read
// live.
func (c *tokensReconciler) account(ctx context.Context, secret *corev1.Secret) (*corev1.ServiceAccount, error) {
	name := secret.Annotations[corev1.ServiceAccountNameKey]
	obj, _, _ := c.accounts.GetByKey(secret.Namespace + "/" + name) // a store in memory does not fail
	if account, ok := obj.(*corev1.ServiceAccount); ok && belongs(secret, account) {
		return account, nil
	}
	live, err := c.Client.CoreV1().ServiceAccounts(secret.Namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && !belongs(secret, live) {
		return nil, nil // see the comment above
	}
	if err != nil {
		return nil, fmt.Errorf("read service account %s/%s: %w", secret.Namespace, name, err)
	}
	return live, nil
}

func (c *tokensReconciler) fill(ctx context.Context, secret *corev1.Secret, account *corev1.ServiceAccount) error {
	data, err := filled(secret, c.Authority, func() (string, error) { return c.Sign(account, secret.Name) })
	if err != nil {
		return fmt.Errorf("sign the token of secret %s/%s: %w", secret.Namespace, secret.Name, err)
	}
	metadata := conditioned(secret)
	metadata["annotations"] = map[string]string{corev1.ServiceAccountNameKey: account.Name, corev1.ServiceAccountUIDKey: string(account.UID)}
	patch, err := json.Marshal(map[string]any{"metadata": metadata, "data": data})
	if err != nil {
		return err
	}
	_, err = c.Client.CoreV1().Secrets(secret.Namespace).Patch(ctx, secret.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if err = outdated(err); err != nil {
		return fmt.Errorf("fill secret %s/%s with a token: %w", secret.Namespace, secret.Name, err)
	}
	return nil
}

func (c *tokensReconciler) remove(ctx context.Context, secret *corev1.Secret) error {
	err := c.Client.CoreV1().Secrets(secret.Namespace).Delete(ctx, secret.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &secret.UID, ResourceVersion: &secret.ResourceVersion},
	})
	if err = outdated(err); err != nil {
		return fmt.Errorf("delete secret %s/%s, whose service account does not exist: %w", secret.Namespace, secret.Name, err)
	}
	return nil
}

// dropReferences removes the name of a Secret that is gone from the service accounts that list it. The accounts are read live:
// the cache may still lack one, and none of its later events would enqueue the key.
func (c *tokensReconciler) dropReferences(ctx context.Context, key cache.ObjectName) error {
	accounts, err := c.Client.CoreV1().ServiceAccounts(key.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list the service accounts of namespace %s: %w", key.Namespace, err)
	}
	isReference := func(ref corev1.ObjectReference) bool { return ref.Name == key.Name }
	found := slices.DeleteFunc(accounts.Items, func(a corev1.ServiceAccount) bool { return !slices.ContainsFunc(a.Secrets, isReference) })
	if len(found) == 0 {
		return nil
	}
	_, err = c.Client.CoreV1().Secrets(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		return err // it exists: with another type, or created again
	}
	for i := range found {
		account := &found[i]
		left := slices.DeleteFunc(slices.Clone(account.Secrets), isReference)
		patch, err := json.Marshal(map[string]any{"metadata": conditioned(account), "secrets": left})
		if err != nil {
			return err
		}
		_, err = c.Client.CoreV1().ServiceAccounts(account.Namespace).Patch(ctx, account.Name, types.MergePatchType, patch, metav1.PatchOptions{})
		if controller.IsNotFound(err) {
			continue
		}
		if err != nil { // a conflict too: no event enqueues the key again
			return fmt.Errorf("remove secret %s from service account %s/%s: %w", key.Name, account.Namespace, account.Name, err)
		}
	}
	return nil
}

// conditioned returns the metadata of a patch that applies only to this version of an object.
func conditioned(o metav1.Object) map[string]any {
	return map[string]any{"uid": o.GetUID(), "resourceVersion": o.GetResourceVersion()}
}

// outdated returns nil for errors which mean that the object has changed or is gone: its event enqueues the key
// again.
func outdated(err error) error {
	if controller.IsConflict(err) || controller.IsNotFound(err) {
		return nil
	}
	return err
}
