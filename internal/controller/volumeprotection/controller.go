// Package volumeprotection keeps PersistentVolumeClaims, PersistentVolumes and
// VolumeAttributesClasses from being removed while they are in use (R23), as the pvc-protection,
// pv-protection and vac-protection controllers of Kubernetes do. The API server puts a finalizer
// on each when it is created:
//
//	PersistentVolumeClaim  kubernetes.io/pvc-protection  while a pod uses it
//	PersistentVolume       kubernetes.io/pv-protection   while it is bound to a volume claim
//	VolumeAttributesClass  kubernetes.io/vac-protection  while a volume or a volume claim names it
//
// and this package removes it from objects that are being deleted and are not in use.
//
//	watch event: pending volume claim or volume, pod or volume claim that is gone ──▶ key
//	key ──▶ the current object ──▶ DecideClaim, DecideVolume (package inuse)
//	    ──▶ RemoveFinalizer: one patch
//
// Pods are watched only once a volume claim is being deleted: on most servers that never
// happens. The finalizer is removed only after a list of the pods that began after the volume
// claim was seen terminating; a pod that is bound to a node later than that finds its volume
// claim terminating and is not started. The patch is conditioned on uid and resourceVersion.
//
// This package does not bind volume claims to volumes and deletes nothing.
package volumeprotection

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	coreinformers "k8s.io/client-go/informers/core/v1"
	storageinformers "k8s.io/client-go/informers/storage/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/coppice-dev/coppice/internal/controller"
	"github.com/coppice-dev/coppice/internal/rules/inuse"
)

const (
	name    = "volume-protection-controller"
	workers = 2
)

// Config configures a Controller. Both fields are required.
type Config struct {
	Client kubernetes.Interface
	Logger *slog.Logger
}

// Controller removes the protection finalizers of volume claims and volumes that are being
// deleted and not in use.
type Controller struct {
	client  kubernetes.Interface
	log     *slog.Logger
	claims  cache.SharedIndexInformer
	volumes cache.SharedIndexInformer // by volume claim
	pods    cache.SharedIndexInformer // by volume claim; runs once a volume claim is pending
	classes cache.SharedIndexInformer

	podsNeeded sync.Once
	startPods  chan struct{} // closed by podsNeeded
}

// byClaim is the name of the index of volumes and pods by the volume claims that they name.
const byClaim = "claim"

// New returns a controller. It sends no requests.
func New(c Config) (*Controller, error) {
	if c.Client == nil || c.Logger == nil {
		return nil, errors.New("volumeprotection: Client and Logger are required")
	}
	p := &Controller{
		client: c.Client, log: c.Logger,
		claims: coreinformers.NewPersistentVolumeClaimInformer(c.Client, metav1.NamespaceAll, 0, cache.Indexers{}),
		volumes: coreinformers.NewPersistentVolumeInformer(c.Client, 0, cache.Indexers{byClaim: func(obj any) ([]string, error) {
			if volume, ok := obj.(*corev1.PersistentVolume); ok && volume.Spec.ClaimRef != nil {
				return []string{volume.Spec.ClaimRef.Namespace + "/" + volume.Spec.ClaimRef.Name}, nil
			}
			return nil, nil
		}}),
		pods: coreinformers.NewPodInformer(c.Client, metav1.NamespaceAll, 0, cache.Indexers{byClaim: func(obj any) ([]string, error) {
			var keys []string
			if pod, ok := obj.(*corev1.Pod); ok {
				for _, name := range inuse.ClaimsOf(pod) {
					keys = append(keys, pod.Namespace+"/"+name)
				}
			}
			return keys, nil
		}}),
		classes:   storageinformers.NewVolumeAttributesClassInformer(c.Client, 0, cache.Indexers{}),
		startPods: make(chan struct{}),
	}
	for _, informer := range []cache.SharedIndexInformer{p.claims, p.volumes, p.pods, p.classes} {
		if err := informer.SetTransform(essentials); err != nil {
			return nil, fmt.Errorf("volumeprotection: %w", err)
		}
	}
	return p, nil
}

// Run runs the controller until ctx ends, and returns when all its goroutines have ended. A
// controller can run only once.
func (p *Controller) Run(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	running.Go(func() {
		select {
		case <-p.startPods:
			p.pods.RunWithContext(ctx)
		case <-ctx.Done():
		}
	})
	c := controller.Controller{
		Name: name, Reconcile: p.reconcile, Workers: workers, Informers: []cache.SharedIndexInformer{p.claims, p.volumes},
		Sources: []controller.Source{
			{Informer: p.claims, Keys: p.keysOfClaim}, {Informer: p.volumes, Keys: keysOfVolume}, {Informer: p.pods, Keys: p.keysOfPod, Late: true},
		},
	}
	ofClasses := p.classController()
	group, together := errgroup.WithContext(ctx)
	for _, c := range []*controller.Controller{&c, ofClasses} {
		group.Go(func() error { return c.Run(together, p.log, clock.RealClock{}) })
	}
	return group.Wait()
}

// keysOfClaim returns a volume claim that has changed or is gone, and its volume, which may not
// be bound any more. A key with a namespace is a volume claim, a key without one is a volume.
func (p *Controller) keysOfClaim(obj any) []cache.ObjectName {
	claim, ok := obj.(*corev1.PersistentVolumeClaim)
	if !ok {
		return nil
	}
	var keys []cache.ObjectName
	if inuse.IsPending(claim, inuse.PVCProtection) {
		keys = append(keys, cache.MetaObjectToName(claim))
	}
	volumes, err := p.volumes.GetIndexer().ByIndex(byClaim, claim.Namespace+"/"+claim.Name)
	if err != nil {
		return keys // the only error is a missing index
	}
	for _, volume := range volumes {
		keys = append(keys, keysOfVolume(volume)...)
	}
	return keys
}

func keysOfVolume(obj any) []cache.ObjectName {
	if volume, ok := obj.(*corev1.PersistentVolume); ok && inuse.IsPending(volume, inuse.PVProtection) {
		return []cache.ObjectName{cache.MetaObjectToName(volume)}
	}
	return nil
}

// keysOfPod returns the volume claims of a pod that has changed or is gone: they may no longer
// be in use.
func (p *Controller) keysOfPod(obj any) []cache.ObjectName {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return nil
	}
	var keys []cache.ObjectName
	for _, name := range inuse.ClaimsOf(pod) {
		known, exists, err := p.claims.GetStore().GetByKey(pod.Namespace + "/" + name)
		if claim, ok := known.(*corev1.PersistentVolumeClaim); ok && exists && err == nil && inuse.IsPending(claim, inuse.PVCProtection) {
			keys = append(keys, cache.MetaObjectToName(claim))
		}
	}
	return keys
}

// reconcile reads one object live and decides about it.
func (p *Controller) reconcile(ctx context.Context, key cache.ObjectName) (time.Duration, error) {
	if key.Namespace == "" {
		return 0, controller.IgnoreNotFound(p.reconcileVolume(ctx, key))
	}
	return 0, controller.IgnoreNotFound(p.reconcileClaim(ctx, key))
}

func (p *Controller) reconcileClaim(ctx context.Context, key cache.ObjectName) error {
	claim, err := p.client.CoreV1().PersistentVolumeClaims(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("get volume claim %s: %w", key, err)
	}
	if !inuse.IsPending(claim, inuse.PVCProtection) {
		return nil
	}
	decision, err := p.decideClaim(ctx, claim)
	if err != nil {
		return err
	}
	return p.apply(ctx, key, claim, decision)
}

// decideClaim decides on the cached pods, but concludes only from a live list that a volume
// claim is not in use.
func (p *Controller) decideClaim(ctx context.Context, claim *corev1.PersistentVolumeClaim) (inuse.Decision, error) {
	// Before the list, so that the watch shows the end of every pod that the list has.
	p.podsNeeded.Do(func() { close(p.startPods) })
	if !cache.WaitForCacheSync(ctx.Done(), p.pods.HasSynced) {
		return nil, fmt.Errorf("watch pods: %w", context.Cause(ctx))
	}
	known, err := p.pods.GetIndexer().ByIndex(byClaim, claim.Namespace+"/"+claim.Name)
	if err != nil {
		return nil, fmt.Errorf("find the pods of a volume claim: %w", err)
	}
	var pods []corev1.Pod
	for _, pod := range known {
		pods = append(pods, *pod.(*corev1.Pod))
	}
	if decision, ok := inuse.DecideClaim(claim, pods).(inuse.Keep); ok {
		return decision, nil
	}
	list, err := p.client.CoreV1().Pods(claim.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list the pods of namespace %s: %w", claim.Namespace, err)
	}
	return inuse.DecideClaim(claim, list.Items), nil
}

func (p *Controller) reconcileVolume(ctx context.Context, key cache.ObjectName) error {
	volume, err := p.client.CoreV1().PersistentVolumes().Get(ctx, key.Name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("get volume %s: %w", key.Name, err)
	}
	var claim *corev1.PersistentVolumeClaim
	if ref := volume.Spec.ClaimRef; ref != nil {
		found, err := p.client.CoreV1().PersistentVolumeClaims(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
		switch {
		case err == nil:
			claim = found
		case !apierrors.IsNotFound(err):
			return fmt.Errorf("get volume claim %s/%s of volume %s: %w", ref.Namespace, ref.Name, key.Name, err)
		}
	}
	return p.apply(ctx, key, volume, inuse.DecideVolume(volume, claim))
}

// apply carries out a decision on the object about which it was made.
func (p *Controller) apply(ctx context.Context, key cache.ObjectName, object metav1.Object, d inuse.Decision) error {
	var finalizers []string
	switch d := d.(type) {
	case inuse.Keep:
		p.log.DebugContext(ctx, "protected", "object", describe(key), "reason", d.Reason)
		return nil
	case inuse.RemoveFinalizer:
		finalizers = d.Finalizers
	}
	patch, err := patchOf(object, finalizers)
	if err != nil {
		return fmt.Errorf("remove the protection of %s: %w", describe(key), err)
	}
	if key.Namespace == "" {
		_, err = p.client.CoreV1().PersistentVolumes().Patch(ctx, key.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	} else {
		_, err = p.client.CoreV1().PersistentVolumeClaims(key.Namespace).Patch(ctx, key.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	}
	if err != nil {
		return fmt.Errorf("remove the protection of %s: %w", describe(key), err)
	}
	p.log.InfoContext(ctx, "protection removed, nothing uses it", "object", describe(key), "uid", object.GetUID())
	return nil
}

// patchOf returns the patch that sets the finalizers of an object, on the condition that it has
// not changed.
func patchOf(object metav1.Object, finalizers []string) ([]byte, error) {
	return json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": object.GetUID(), "resourceVersion": object.GetResourceVersion(), "finalizers": finalizers,
	}})
}

// describe returns the object's name for logs and errors.
func describe(key cache.ObjectName) string {
	if key.Namespace == "" {
		return "persistentvolume " + key.Name
	}
	return "persistentvolumeclaim " + key.String()
}

// essentials keeps only the fields that the controller needs.
func essentials(obj any) (any, error) {
	if object, ok := obj.(metav1.Object); ok {
		object.SetManagedFields(nil)
		object.SetAnnotations(nil)
		object.SetLabels(nil)
	}
	switch o := obj.(type) {
	case *corev1.Pod:
		o.Spec = corev1.PodSpec{NodeName: o.Spec.NodeName, Volumes: claimVolumes(o.Spec.Volumes)}
		o.Status = corev1.PodStatus{}
	case *corev1.PersistentVolumeClaim:
		o.Spec = corev1.PersistentVolumeClaimSpec{VolumeAttributesClassName: o.Spec.VolumeAttributesClassName}
		o.Status = corev1.PersistentVolumeClaimStatus{
			CurrentVolumeAttributesClassName: o.Status.CurrentVolumeAttributesClassName, ModifyVolumeStatus: o.Status.ModifyVolumeStatus,
		}
	case *corev1.PersistentVolume:
		o.Spec = corev1.PersistentVolumeSpec{ClaimRef: o.Spec.ClaimRef, VolumeAttributesClassName: o.Spec.VolumeAttributesClassName}
		o.Status = corev1.PersistentVolumeStatus{}
	case *storagev1.VolumeAttributesClass:
		o.Parameters = nil
	}
	return obj, nil
}

// claimVolumes returns the volumes that refer to volume claims, reduced to the names.
func claimVolumes(volumes []corev1.Volume) []corev1.Volume {
	var kept []corev1.Volume
	for _, v := range volumes {
		switch {
		case v.PersistentVolumeClaim != nil:
			kept = append(kept, corev1.Volume{VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: v.PersistentVolumeClaim}})
		case v.Ephemeral != nil:
			kept = append(kept, corev1.Volume{Name: v.Name, VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}})
		}
	}
	return kept
}
