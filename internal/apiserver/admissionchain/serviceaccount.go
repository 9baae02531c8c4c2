package admissionchain

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/storage/names"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/utils/clock"
)

// serviceAccountName is Kubernetes' name of the plug-in.
const serviceAccountName = "ServiceAccount"

// defaultAccount is the account of pods that name none. A controller creates it in every namespace.
const defaultAccount = "default"

// How long a pod waits for the account "default" of a namespace that has just been created. The first waits
// are short: the controller is usually done by then. The waits are longer than in Kubernetes, because this
// control plane becomes ready before its controllers have begun.
const (
	firstAccountWait   = 5 * time.Millisecond
	lastAccountWait    = 200 * time.Millisecond
	longestAccountWait = 5 * time.Second
)

// serviceAccount is the plug-in that gives pods their service account. The account must exist; pods get its pull
// secrets, and a token of it in a volume. The rules are in serviceaccount_mount.go and serviceaccount_secrets.go,
// which are pure.
type serviceAccount struct {
	*admission.Handler
	client   kubernetes.Interface
	accounts corev1listers.ServiceAccountLister
	// clock measures the waits.
	clock clock.Clock
	// volumeName returns the name of the volume with the token.
	volumeName func() string
}

var (
	_ admission.MutationInterface   = (*serviceAccount)(nil)
	_ admission.ValidationInterface = (*serviceAccount)(nil)
)

// newServiceAccount returns the plug-in. Until the informer of accounts has synced, it reads them live.
func newServiceAccount(client kubernetes.Interface, shared informers.SharedInformerFactory) *serviceAccount {
	return &serviceAccount{
		Handler: admission.NewHandler(admission.Create, admission.Update), client: client,
		accounts: shared.Core().V1().ServiceAccounts().Lister(), clock: clock.RealClock{},
		volumeName: func() string { return names.SimpleNameGenerator.GenerateName(volumePrefix) },
	}
}

// Admit implements admission.MutationInterface.
func (p *serviceAccount) Admit(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	pod, ok := a.GetObject().(*corev1.Pod)
	if !ok || !isNewPod(a) || isMirror(pod) {
		return nil
	}
	if pod.Spec.ServiceAccountName == "" {
		pod.Spec.ServiceAccountName, pod.Spec.DeprecatedServiceAccount = defaultAccount, defaultAccount
	}
	account, err := p.account(ctx, a, pod.Spec.ServiceAccountName)
	if err != nil {
		return err
	}
	if mountsToken(account, pod) {
		mountToken(pod, p.volumeName)
	}
	if len(pod.Spec.ImagePullSecrets) == 0 {
		pod.Spec.ImagePullSecrets = append(pod.Spec.ImagePullSecrets, account.ImagePullSecrets...)
	}
	return nil
}

// Validate implements admission.ValidationInterface. Other plug-ins may have changed the pod since Admit.
func (p *serviceAccount) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	pod, ok := a.GetObject().(*corev1.Pod)
	isDebugged := a.GetOperation() == admission.Update && a.GetResource().GroupResource() == corev1.Resource("pods") && a.GetSubresource() == "ephemeralcontainers"
	switch {
	case !ok || !isNewPod(a) && !isDebugged:
		return nil
	case isMirror(pod):
		return refuse(a, checkMirror(pod))
	case pod.Spec.ServiceAccountName == "":
		return refuse(a, fmt.Errorf("no service account specified for pod %s/%s", a.GetNamespace(), pod.Name))
	}
	account, err := p.account(ctx, a, pod.Spec.ServiceAccountName)
	if err != nil {
		return err
	}
	return refuse(a, checkSecrets(account, pod, isDebugged))
}

func refuse(a admission.Attributes, err error) error {
	if err == nil {
		return nil
	}
	return admission.NewForbidden(a, err)
}

func isNewPod(a admission.Attributes) bool {
	return a.GetOperation() == admission.Create && a.GetResource().GroupResource() == corev1.Resource("pods") && a.GetSubresource() == ""
}

// isMirror reports whether a pod is a mirror pod: it represents a static pod of a node.
func isMirror(pod *corev1.Pod) bool {
	_, ok := pod.Annotations[corev1.MirrorPodAnnotationKey]
	return ok
}

// account returns the account of a pod. It reads an account live that is not in the cache.
func (p *serviceAccount) account(ctx context.Context, a admission.Attributes, name string) (*corev1.ServiceAccount, error) {
	account, err := p.accounts.ServiceAccounts(a.GetNamespace()).Get(name)
	if apierrors.IsNotFound(err) {
		account, err = p.await(ctx, a.GetNamespace(), name)
	}
	if err != nil {
		return nil, admission.NewForbidden(a, fmt.Errorf("error looking up service account %s/%s: %w", a.GetNamespace(), name, err))
	}
	return account, nil
}

// await reads an account live. If the account "default" does not exist, it retries for a while: a controller may be about
// to create it, unless the namespace is gone or terminating.
func (p *serviceAccount) await(ctx context.Context, namespace, name string) (*corev1.ServiceAccount, error) {
	began := p.clock.Now()
	for wait := firstAccountWait; ; wait = min(2*wait, lastAccountWait) {
		account, err := p.client.CoreV1().ServiceAccounts(namespace).Get(ctx, name, metav1.GetOptions{})
		switch {
		case !apierrors.IsNotFound(err):
			return account, err
		case name != defaultAccount || p.clock.Since(began)+wait > longestAccountWait || p.isLeaving(ctx, namespace):
			return nil, apierrors.NewNotFound(corev1.Resource("serviceaccount"), name)
		}
		select {
		case <-p.clock.After(wait):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// isLeaving reports whether a namespace is known to be gone or terminating. It reads it live.
func (p *serviceAccount) isLeaving(ctx context.Context, name string) bool {
	namespace, err := p.client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	return apierrors.IsNotFound(err) || err == nil && namespace.DeletionTimestamp != nil
}
