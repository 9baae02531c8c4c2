package volumeprotection

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/coppice-dev/coppice/internal/controller"
	"github.com/coppice-dev/coppice/internal/rules/inuse"
)

// classController returns the controller of VolumeAttributesClasses. It has keys of its own, because
// the keys of the other controller have no room for a third kind.
func (p *Controller) classController() *controller.Controller {
	return &controller.Controller{
		Name: name, Reconcile: p.reconcileClass, Workers: 1, Informers: []cache.SharedIndexInformer{p.classes},
		Sources: []controller.Source{
			controller.For(p.classes), {Informer: p.volumes, Keys: classKeys}, {Informer: p.claims, Keys: classKeys},
		},
	}
}

// classKeys returns the classes that a volume or a volume claim names, or has named until now.
func classKeys(obj any) []cache.ObjectName {
	var names []string
	switch o := obj.(type) {
	case *corev1.PersistentVolume:
		names = inuse.ClassesOfVolume(o)
	case *corev1.PersistentVolumeClaim:
		names = inuse.ClassesOfClaim(o)
	}
	var keys []cache.ObjectName
	for _, name := range names {
		keys = append(keys, cache.ObjectName{Name: name})
	}
	return keys
}

func (p *Controller) reconcileClass(ctx context.Context, key cache.ObjectName) (time.Duration, error) {
	known, exists, err := p.classes.GetStore().GetByKey(key.Name)
	if err != nil || !exists {
		return 0, err
	}
	if class, ok := known.(*storagev1.VolumeAttributesClass); !ok || !inuse.IsPending(class, inuse.VACProtection) {
		return 0, nil
	}
	class, err := p.client.StorageV1().VolumeAttributesClasses().Get(ctx, key.Name, metav1.GetOptions{})
	if err != nil {
		return 0, controller.IgnoreNotFound(fmt.Errorf("get volumeattributesclass %s: %w", key.Name, err))
	}
	volumes, claims := p.knownUsers()
	decision := inuse.DecideClass(class, volumes, claims)
	if _, ok := decision.(inuse.RemoveFinalizer); ok {
		if decision, err = p.decideClass(ctx, class); err != nil {
			return 0, err
		}
	}
	switch d := decision.(type) {
	case inuse.Keep:
		p.log.DebugContext(ctx, "protected", "object", "volumeattributesclass "+key.Name, "reason", d.Reason)
	case inuse.RemoveFinalizer:
		return 0, controller.IgnoreNotFound(p.releaseClass(ctx, class, d.Finalizers))
	}
	return 0, nil
}

// knownUsers returns the volumes and volume claims in the caches.
func (p *Controller) knownUsers() ([]corev1.PersistentVolume, []corev1.PersistentVolumeClaim) {
	var volumes []corev1.PersistentVolume
	for _, obj := range p.volumes.GetStore().List() {
		if volume, ok := obj.(*corev1.PersistentVolume); ok {
			volumes = append(volumes, *volume)
		}
	}
	var claims []corev1.PersistentVolumeClaim
	for _, obj := range p.claims.GetStore().List() {
		if claim, ok := obj.(*corev1.PersistentVolumeClaim); ok {
			claims = append(claims, *claim)
		}
	}
	return volumes, claims
}

// decideClass decides on live reads: only they prove that nothing names the class.
func (p *Controller) decideClass(ctx context.Context, class *storagev1.VolumeAttributesClass) (inuse.Decision, error) {
	volumes, err := p.client.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list volumes: %w", err)
	}
	claims, err := p.client.CoreV1().PersistentVolumeClaims(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list volume claims: %w", err)
	}
	return inuse.DecideClass(class, volumes.Items, claims.Items), nil
}

func (p *Controller) releaseClass(ctx context.Context, class *storagev1.VolumeAttributesClass, finalizers []string) error {
	patch, err := patchOf(class, finalizers)
	if err == nil {
		_, err = p.client.StorageV1().VolumeAttributesClasses().Patch(ctx, class.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	}
	if err != nil {
		return fmt.Errorf("remove the protection of volumeattributesclass %s: %w", class.Name, err)
	}
	p.log.InfoContext(ctx, "protection removed, nothing uses it", "object", "volumeattributesclass "+class.Name, "uid", class.UID)
	return nil
}
