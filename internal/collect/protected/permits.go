package protected

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/clock"
)

const (
	// permitsName is the name of the ConfigMap with permits.
	permitsName = "coppice-confirmed"
	// permittedFor is how long a permit is kept: a cascade may wait for finalizers.
	permittedFor = 24 * time.Hour
	// mostPermits bounds the ConfigMap, at some 600 KB. The oldest permits are dropped.
	mostPermits = 8192
)

// permitsInConfigMap are Permits that all replicas of a webhook share: times by UID.
type permitsInConfigMap struct {
	client corev1client.ConfigMapInterface
	clock  clock.PassiveClock
}

// Permit implements Permits.
func (p permitsInConfigMap) Permit(ctx context.Context, uid types.UID) error {
	return retry.OnError(retry.DefaultBackoff, func(err error) bool { return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) }, func() error {
		all, err := p.client.Get(ctx, permitsName, metav1.GetOptions{})
		isFirst := apierrors.IsNotFound(err)
		switch {
		case isFirst:
			all = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: permitsName}}
		case err != nil:
			return err
		}
		all.Data = currentPermits(all.Data, p.clock.Now())
		all.Data[string(uid)] = p.clock.Now().UTC().Format(time.RFC3339)
		if isFirst {
			_, err = p.client.Create(ctx, all, metav1.CreateOptions{})
		} else {
			_, err = p.client.Update(ctx, all, metav1.UpdateOptions{})
		}
		return err
	})
}

// currentPermits returns the permits that have not expired, and leaves room for another.
func currentPermits(all map[string]string, now time.Time) map[string]string {
	current := map[string]string{}
	for uid, at := range all {
		if when, err := time.Parse(time.RFC3339, at); err == nil && now.Sub(when) < permittedFor {
			current[uid] = at
		}
	}
	byAge := slices.SortedFunc(maps.Keys(current), func(a, b string) int { return strings.Compare(current[a]+a, current[b]+b) })
	for _, oldest := range byAge[:max(0, len(byAge)+1-mostPermits)] {
		delete(current, oldest)
	}
	return current
}

// IsPermitted implements Permits.
func (p permitsInConfigMap) IsPermitted(ctx context.Context, uid types.UID) (bool, error) {
	all, err := p.client.Get(ctx, permitsName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	when, err := time.Parse(time.RFC3339, all.Data[string(uid)])
	return err == nil && p.clock.Since(when) < permittedFor, nil
}
