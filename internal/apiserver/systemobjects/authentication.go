package systemobjects

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	certutil "k8s.io/client-go/util/cert"

	"github.com/coppice-dev/coppice/internal/apiserver/auth"
	"github.com/coppice-dev/coppice/internal/collect/pace"
)

// The ConfigMap with which aggregated API servers authenticate requests of front proxies. The names are
// Kubernetes'.
const (
	authenticationConfigMap = "extension-apiserver-authentication"
	clientAuthority         = "client-ca-file"
	proxyAuthority          = "requestheader-client-ca-file"
)

// EnsureAuthentication creates or updates this ConfigMap, and retries until ctx ends.
func EnsureAuthentication(ctx context.Context, log *slog.Logger, client kubernetes.Interface, authority *auth.Authority, now func() time.Time) error {
	return pace.Retry(ctx, log, "publish the authorities of client certificates", func(ctx context.Context) error {
		return ensureAuthentication(ctx, client, authority, now())
	})
}

func ensureAuthentication(ctx context.Context, client kubernetes.Interface, authority *auth.Authority, now time.Time) error {
	configMaps := client.CoreV1().ConfigMaps(metav1.NamespaceSystem)
	stored, err := configMaps.Get(ctx, authenticationConfigMap, metav1.GetOptions{})
	missing := apierrors.IsNotFound(err)
	if err != nil && !missing {
		return err
	}
	if missing {
		stored = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: authenticationConfigMap}}
	}
	data, err := authentication(stored.Data, authority, now)
	if err != nil {
		return err
	}
	switch {
	case missing:
		stored.Data = data
		_, err = configMaps.Create(ctx, stored, metav1.CreateOptions{})
	case !maps.Equal(stored.Data, data):
		stored.Data = data
		_, err = configMaps.Update(ctx, stored, metav1.UpdateOptions{})
	}
	return err
}

// authentication returns the contents of the ConfigMap. It keeps the authorities of other servers on the
// same store until they expire.
func authentication(stored map[string]string, authority *auth.Authority, now time.Time) (map[string]string, error) {
	data := map[string]string{
		clientAuthority: joined(string(authority.Certificate()), stored[clientAuthority], now),
		proxyAuthority:  joined(string(authority.FrontProxy().Authority()), stored[proxyAuthority], now),
	}
	for key, names := range auth.FrontProxyHeaders() {
		text, err := json.Marshal(names)
		if err != nil {
			return nil, fmt.Errorf("encode %s: %w", key, err)
		}
		data[key] = string(text)
	}
	return data, nil
}

// joined returns the own certificates and the valid ones of the others, each once, in PEM.
func joined(own, others string, now time.Time) string {
	text := own
	certificates, err := certutil.ParseCertsPEM([]byte(others))
	if err != nil {
		return text // it contains no valid certificate
	}
	for _, c := range certificates {
		pem, err := certutil.EncodeCertificates(c)
		if err == nil && now.Before(c.NotAfter) && !strings.Contains(text, string(pem)) {
			text += string(pem)
		}
	}
	return text
}
