package systemobjects

import (
	"context"
	"log/slog"
	"os"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/component-helpers/apimachinery/lease"
	"k8s.io/utils/clock"

	"github.com/coppice-dev/coppice/internal/collect/pace"
)

// The Lease of an API server. The label and its value are Kubernetes'.
const (
	identityLabel   = "apiserver.kubernetes.io/identity"
	identityValue   = "kube-apiserver"
	identitySeconds = 3600
	// identityInterval is the renewal interval of the Lease. It is longer than Kubernetes' ten seconds:
	// nothing else is written in an idle cluster.
	identityInterval = 10 * time.Minute
)

// NewIdentity returns the controller of the Lease that announces the API server with this ID in the
// cluster. It removes the Lease when it is stopped.
func NewIdentity(client kubernetes.Interface, id string) lease.Controller {
	label := func(l *coordinationv1.Lease) error {
		hostname, err := os.Hostname()
		if err != nil {
			return err
		}
		l.Labels = map[string]string{identityLabel: identityValue, corev1.LabelHostname: hostname}
		return nil
	}
	holder := id + "_" + string(uuid.NewUUID())
	return lease.NewController(clock.RealClock{}, client, holder, identitySeconds, nil, identityInterval, id, metav1.NamespaceSystem, label)
}

// The ConfigMap that contains the date since when the API server records the use of service account tokens
// in Secrets.
const (
	tokenTracking      = "kube-apiserver-legacy-service-account-token-tracking"
	tokenTrackingSince = "since"
)

// EnsureTokenTracking creates a missing ConfigMap, and retries until ctx ends.
func EnsureTokenTracking(ctx context.Context, log *slog.Logger, client corev1client.ConfigMapsGetter, now func() time.Time) error {
	return pace.Retry(ctx, log, "create config map "+tokenTracking, func(ctx context.Context) error {
		configMaps := client.ConfigMaps(metav1.NamespaceSystem)
		if _, err := configMaps.Get(ctx, tokenTracking, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return err
		}
		_, err := configMaps.Create(ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: tokenTracking}, Data: map[string]string{tokenTrackingSince: now().UTC().Format(time.DateOnly)},
		}, metav1.CreateOptions{})
		return ignoreExisting(err)
	})
}
