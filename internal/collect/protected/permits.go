package protected

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/utils/clock"

	"github.com/coppice-dev/coppice/internal/rules/protection"
)

const (
	// permitPrefix begins the names of ConfigMaps with permits, which have the label permitLabel.
	permitPrefix = "coppice-confirmed-"
	permitLabel  = protection.Domain + "/permit"
	permitKey    = "objects"
	// mostConfigMaps bounds the ConfigMaps with permits. The oldest are deleted.
	mostConfigMaps = 512
)

// permitsInConfigMaps are Permits that all replicas of a webhook share, a ConfigMap for each.
type permitsInConfigMaps struct {
	client corev1client.ConfigMapInterface
	clock  clock.PassiveClock
}

// Put implements Permits. It also deletes the permits whose time is over.
func (p permitsInConfigMaps) Put(ctx context.Context, name string, permit []byte) error {
	_, err := p.client.Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: permitPrefix + name, Labels: map[string]string{permitLabel: ""}},
		BinaryData: map[string][]byte{permitKey: permit}, Immutable: new(true),
	}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	return p.deleteOld(ctx)
}

// deleteOld deletes the permits whose time is over, and the oldest ones if there are too many.
func (p permitsInConfigMaps) deleteOld(ctx context.Context) error {
	list, err := p.list(ctx)
	if err != nil {
		return err
	}
	for i := range list {
		if i >= len(list)-mostConfigMaps && p.isCurrent(&list[i]) || !strings.HasPrefix(list[i].Name, permitPrefix) {
			continue
		}
		err := p.client.Delete(ctx, list[i].Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &list[i].UID}})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return fmt.Errorf("delete an old permit: %w", err)
		}
	}
	return nil
}

func (p permitsInConfigMaps) isCurrent(m *corev1.ConfigMap) bool {
	return p.clock.Since(m.CreationTimestamp.Time) < PermittedFor
}

// list returns the ConfigMaps in the order of their names, which is that of time.
func (p permitsInConfigMaps) list(ctx context.Context) ([]corev1.ConfigMap, error) {
	list, err := p.client.List(ctx, metav1.ListOptions{LabelSelector: permitLabel})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// Names implements Permits.
func (p permitsInConfigMaps) Names(ctx context.Context) (names []string, err error) {
	list, err := p.list(ctx)
	if err != nil {
		return nil, err
	}
	for i := range list {
		if name, isPermit := strings.CutPrefix(list[i].Name, permitPrefix); isPermit && p.isCurrent(&list[i]) {
			names = append(names, name)
		}
	}
	return names, nil
}

// Get implements Permits.
func (p permitsInConfigMaps) Get(ctx context.Context, name string) ([]byte, error) {
	m, err := p.client.Get(ctx, permitPrefix+name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return m.BinaryData[permitKey], nil
}
