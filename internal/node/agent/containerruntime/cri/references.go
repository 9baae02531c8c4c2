package cri

import (
	"context"
	"errors"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	certificatesv1client "k8s.io/client-go/kubernetes/typed/certificates/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
)

// Objects reads the objects that pods refer to, and requests tokens. For a missing object the error
// is NotFound.
type Objects interface {
	ConfigMap(ctx context.Context, namespace, name string) (*corev1.ConfigMap, error)
	Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error)
	// Server returns the URL at which this node reaches the API server.
	Server() string
	// Services returns the services of a namespace.
	Services(ctx context.Context, namespace string) ([]corev1.Service, error)
	// Token requests a token of a service account.
	Token(ctx context.Context, namespace, account string, request *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error)
	// TrustBundle returns a ClusterTrustBundle.
	TrustBundle(ctx context.Context, name string) (*certificatesv1.ClusterTrustBundle, error)
	// TrustBundles returns the ClusterTrustBundles of a signer with these labels.
	TrustBundles(ctx context.Context, signer string, selector labels.Selector) ([]certificatesv1.ClusterTrustBundle, error)
	// RequestCertificate creates a PodCertificateRequest, after it has set the UIDs of the service account and the node.
	RequestCertificate(ctx context.Context, request *certificatesv1.PodCertificateRequest) (*certificatesv1.PodCertificateRequest, error)
	// CertificateRequest returns a PodCertificateRequest of a node.
	CertificateRequest(ctx context.Context, node, namespace, name string) (*certificatesv1.PodCertificateRequest, error)
}

// FromAPI returns Objects of the API at the URL server. The client needs the permissions for these requests.
func FromAPI(client kubernetes.Interface, server string) Objects {
	return fromAPI{client.CoreV1(), client.CertificatesV1(), server}
}

type fromAPI struct {
	client       corev1client.CoreV1Interface
	certificates certificatesv1client.CertificatesV1Interface
	server       string
}

// Server implements Objects.
func (a fromAPI) Server() string { return a.server }

// ConfigMap implements Objects.
func (a fromAPI) ConfigMap(ctx context.Context, namespace, name string) (*corev1.ConfigMap, error) {
	return a.client.ConfigMaps(namespace).Get(ctx, name, metav1.GetOptions{})
}

// Secret implements Objects.
func (a fromAPI) Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error) {
	return a.client.Secrets(namespace).Get(ctx, name, metav1.GetOptions{})
}

// Services implements Objects.
func (a fromAPI) Services(ctx context.Context, namespace string) ([]corev1.Service, error) {
	list, err := a.client.Services(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// Token implements Objects.
func (a fromAPI) Token(ctx context.Context, namespace, account string, request *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error) {
	return a.client.ServiceAccounts(namespace).CreateToken(ctx, account, request, metav1.CreateOptions{})
}

// TrustBundle implements Objects.
func (a fromAPI) TrustBundle(ctx context.Context, name string) (*certificatesv1.ClusterTrustBundle, error) {
	return a.certificates.ClusterTrustBundles().Get(ctx, name, metav1.GetOptions{})
}

// TrustBundles implements Objects.
func (a fromAPI) TrustBundles(ctx context.Context, signer string, selector labels.Selector) ([]certificatesv1.ClusterTrustBundle, error) {
	list, err := a.certificates.ClusterTrustBundles().List(ctx, metav1.ListOptions{
		LabelSelector: selector.String(), FieldSelector: fields.OneTermEqualSelector("spec.signerName", signer).String(),
	})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// RequestCertificate implements Objects.
func (a fromAPI) RequestCertificate(ctx context.Context, request *certificatesv1.PodCertificateRequest) (*certificatesv1.PodCertificateRequest, error) {
	account, err := a.client.ServiceAccounts(request.Namespace).Get(ctx, request.Spec.ServiceAccountName, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	node, err := a.client.Nodes().Get(ctx, string(request.Spec.NodeName), metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	request.Spec.ServiceAccountUID, request.Spec.NodeUID = account.UID, node.UID
	return a.certificates.PodCertificateRequests(request.Namespace).Create(ctx, request, metav1.CreateOptions{})
}

// CertificateRequest implements Objects. A node may list its own requests only.
func (a fromAPI) CertificateRequest(ctx context.Context, node, namespace, name string) (*certificatesv1.PodCertificateRequest, error) {
	list, err := a.certificates.PodCertificateRequests(namespace).List(ctx, metav1.ListOptions{
		FieldSelector: fields.Set{"metadata.name": name, "spec.nodeName": node}.String(),
	})
	if err != nil {
		return nil, err
	}
	if len(list.Items) == 0 {
		return nil, apierrors.NewNotFound(certificatesv1.Resource("podcertificaterequests"), name)
	}
	return &list.Items[0], nil
}

// references are the ConfigMaps and Secrets that a pod refers to, its tokens and certificates, or the errors of reading
// them.
type references struct {
	configMaps map[string]found[corev1.ConfigMap]
	secrets    map[string]found[corev1.Secret]
	tokens     map[*corev1.ServiceAccountTokenProjection]found[string]
	anchors    map[*corev1.ClusterTrustBundleProjection]found[[]byte]
	issued     map[*corev1.PodCertificateProjection]found[podCredential]
}

// found is an object, or the error of reading it.
type found[T any] struct {
	object *T
	err    error
}

func (m *references) configMap(name string, optional *bool) (*corev1.ConfigMap, error) {
	f := m.configMaps[name]
	return f.object, unlessOptional(f.err, optional)
}

func (m *references) secret(name string, optional *bool) (*corev1.Secret, error) {
	f := m.secrets[name]
	return f.object, unlessOptional(f.err, optional)
}

func (m *references) token(p *corev1.ServiceAccountTokenProjection) (string, error) {
	f := m.tokens[p]
	if f.object == nil {
		return "", f.err
	}
	return *f.object, f.err
}

// unlessOptional returns err unless it is NotFound and the reference is optional.
func unlessOptional(err error, optional *bool) error {
	if isOptional(optional) && apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

var errNoObjects = errors.New("config maps, secrets and tokens cannot be read by this node")

func newReferences() *references {
	return &references{
		configMaps: map[string]found[corev1.ConfigMap]{}, secrets: map[string]found[corev1.Secret]{},
		tokens:  map[*corev1.ServiceAccountTokenProjection]found[string]{},
		anchors: map[*corev1.ClusterTrustBundleProjection]found[[]byte]{}, issued: map[*corev1.PodCertificateProjection]found[podCredential]{},
	}
}

// issuers make what the API does not store for the volumes of pods.
type issuers struct {
	tokens       *tokens
	certificates *certificates
}

// forget drops what was made for a pod.
func (i issuers) forget(uid types.UID) {
	i.tokens.forget(uid)
	i.certificates.forget(uid)
}

// gatherVolumes reads the objects that the volumes of a pod refer to, and gets their tokens and certificates.
func gatherVolumes(ctx context.Context, objects Objects, made issuers, of *corev1.Pod) *references {
	m := newReferences()
	for i := range of.Spec.Volumes {
		for j, source := range sourcesOf(&of.Spec.Volumes[i].VolumeSource) {
			if source.ConfigMap != nil {
				m.addConfigMap(ctx, objects, of.Namespace, source.ConfigMap.Name)
			}
			if source.Secret != nil {
				m.addSecret(ctx, objects, of.Namespace, source.Secret.Name)
			}
			if p := source.ServiceAccountToken; p != nil {
				text, err := made.tokens.get(ctx, of, p)
				m.tokens[p] = found[string]{&text, err}
			}
			if p := source.ClusterTrustBundle; p != nil {
				anchors, err := trusted(ctx, objects, p)
				m.anchors[p] = found[[]byte]{&anchors, err}
			}
			if p := source.PodCertificate; p != nil {
				issued, err := made.certificates.get(ctx, of, of.Spec.Volumes[i].Name, j, p)
				m.issued[p] = found[podCredential]{&issued, err}
			}
		}
	}
	return m
}

// gather reads the objects that the environment of a container refers to.
func gather(ctx context.Context, objects Objects, namespace string, c *corev1.Container) *references {
	m := newReferences()
	for _, from := range c.EnvFrom {
		if ref := from.ConfigMapRef; ref != nil {
			m.addConfigMap(ctx, objects, namespace, ref.Name)
		}
		if ref := from.SecretRef; ref != nil {
			m.addSecret(ctx, objects, namespace, ref.Name)
		}
	}
	for _, v := range c.Env {
		if v.ValueFrom == nil {
			continue
		}
		if ref := v.ValueFrom.ConfigMapKeyRef; ref != nil {
			m.addConfigMap(ctx, objects, namespace, ref.Name)
		}
		if ref := v.ValueFrom.SecretKeyRef; ref != nil {
			m.addSecret(ctx, objects, namespace, ref.Name)
		}
	}
	return m
}

func (m *references) addConfigMap(ctx context.Context, objects Objects, namespace, name string) {
	if _, known := m.configMaps[name]; known {
		return
	}
	f := found[corev1.ConfigMap]{err: errNoObjects}
	if objects != nil {
		f.object, f.err = objects.ConfigMap(ctx, namespace, name)
	}
	if f.err != nil {
		f.object, f.err = nil, unread("configmap", namespace, name, f.err)
	}
	m.configMaps[name] = f
}

func (m *references) addSecret(ctx context.Context, objects Objects, namespace, name string) {
	if _, known := m.secrets[name]; known {
		return
	}
	f := found[corev1.Secret]{err: errNoObjects}
	if objects != nil {
		f.object, f.err = objects.Secret(ctx, namespace, name)
	}
	if f.err != nil {
		f.object, f.err = nil, unread("secret", namespace, name, f.err)
	}
	m.secrets[name] = f
}

// unread returns the error for an object that could not be read. Of a missing one it says what a kubelet says.
func unread(kind, namespace, name string, err error) error {
	if apierrors.IsNotFound(err) {
		return apierrors.NewNotFound(corev1.Resource(kind), name)
	}
	return fmt.Errorf("%s %s/%s: %w", kind, namespace, name, err)
}
