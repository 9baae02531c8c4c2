package devicetainteviction

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"
)

// users are the claims on devices, and the pods that they are reserved for.
type users struct {
	claims []*resourcev1.ResourceClaim
	// pod returns a pod, or nil if it does not exist.
	pod func(key cache.ObjectName) (*corev1.Pod, error)
	// reserved returns the claims that are reserved for a pod.
	reserved func(pod *corev1.Pod) []*resourcev1.ResourceClaim
}

// usersFor returns the users that the extent of a rule counts. A rule with the effect None tells its extent once, so they
// are read live: the caches may not have claims and pods that are older than the rule.
func (c *reconciler) usersFor(ctx context.Context, rule *resourcev1.DeviceTaintRule) (users, error) {
	if rule.Spec.Taint.Effect == resourcev1.DeviceTaintEffectNone {
		return c.liveUsers(ctx)
	}
	return c.cachedUsers()
}

// cachedUsers returns the users in the caches.
func (c *reconciler) cachedUsers() (users, error) {
	claims, err := c.claims.List(labels.Everything())
	pod := func(key cache.ObjectName) (*corev1.Pod, error) {
		pod, err := c.pods.Pods(key.Namespace).Get(key.Name)
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		return pod, err
	}
	return users{claims, pod, c.reserved}, err
}

// liveUsers reads the users from the server.
func (c *reconciler) liveUsers(ctx context.Context) (users, error) {
	list, err := c.client.ResourceV1().ResourceClaims(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return users{}, fmt.Errorf("list resource claims: %w", err)
	}
	claims := make([]*resourcev1.ResourceClaim, len(list.Items))
	for i := range list.Items {
		claims[i] = &list.Items[i]
	}
	pod := func(key cache.ObjectName) (*corev1.Pod, error) {
		pod, err := c.client.CoreV1().Pods(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return nil, nil
		case err != nil:
			return nil, fmt.Errorf("get pod %s: %w", key, err)
		}
		return pod, nil
	}
	reserved := func(pod *corev1.Pod) (of []*resourcev1.ResourceClaim) {
		for _, claim := range claims {
			isReserved := slices.ContainsFunc(claim.Status.ReservedFor, func(r resourcev1.ResourceClaimConsumerReference) bool { return r.UID == pod.UID })
			if isReserved && claim.Namespace == pod.Namespace {
				of = append(of, claim)
			}
		}
		return of
	}
	return users{claims, pod, reserved}, nil
}
