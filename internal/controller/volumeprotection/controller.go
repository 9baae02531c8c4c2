// Package protection keeps claims and volumes from being removed while they are used
// (R23). The API server puts a finalizer on each when it is created:
//
//	PersistentVolumeClaim  kubernetes.io/pvc-protection  while a pod uses it
//	PersistentVolume       kubernetes.io/pv-protection   while it is bound to a claim
//
// and this package takes it away from those that are being deleted and not used.
//
//	watch event: pending claim or volume, pod or claim that is gone ──▶ queue of keys
//	key ──▶ the object as it is now ──▶ DecideClaim, DecideVolume (plan.go) ──▶ Release: one patch
//
// Pods are watched from the first claim on that is being deleted: most servers never
// delete one. A claim is released only after a list of the pods that began when the
// claim was seen to be terminating; a pod that is bound to a node later than that finds
// its claim terminating and is not started. The patch is conditioned on uid and
// resourceVersion.
//
// This package does not bind claims to volumes, and deletes nothing.
package volumeprotection

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

// workers is how many objects are worked on at a time.
const workers = 2

// Config is what a controller needs. Both fields are required.
type Config struct {
	Client kubernetes.Interface
	Logger *slog.Logger
}

// Controller takes the protection from claims and volumes that are being deleted, when
// nothing uses them.
type Controller struct {
	client  kubernetes.Interface
	log     *slog.Logger
	claims  cache.SharedIndexInformer
	volumes cache.SharedIndexInformer // by claim
	pods    cache.SharedIndexInformer // by claim; runs from the first pending claim on
	queue   workqueue.TypedRateLimitingInterface[key]

	podsNeeded sync.Once
	startPods  chan struct{} // closed by podsNeeded
}

// key names an object to be looked at: a claim, or, without a namespace, a volume.
type key struct{ namespace, name string }

// byClaim is the index of volumes and pods by the claims that they name.
const byClaim = "claim"

// New makes a controller. It sends no request.
func New(c Config) (*Controller, error) {
	if c.Client == nil || c.Logger == nil {
		return nil, errors.New("protection: Client and Logger are required")
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
				for _, name := range claimsOf(pod) {
					keys = append(keys, pod.Namespace+"/"+name)
				}
			}
			return keys, nil
		}}),
		queue:     workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[key]()),
		startPods: make(chan struct{}),
	}
	for _, informer := range []cache.SharedIndexInformer{p.claims, p.volumes, p.pods} {
		if err := informer.SetTransform(essentials); err != nil {
			return nil, fmt.Errorf("protection: %w", err)
		}
	}
	return p, nil
}

// Run works until ctx ends, and returns when all it started has ended. A controller runs once.
func (p *Controller) Run(ctx context.Context) error {
	for informer, observe := range map[cache.SharedIndexInformer]func(any){
		p.claims: p.observeClaim, p.volumes: p.observeVolume, p.pods: p.observePod,
	} {
		_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    observe,
			UpdateFunc: func(_, now any) { observe(now) },
			DeleteFunc: func(obj any) {
				if last, ok := obj.(cache.DeletedFinalStateUnknown); ok {
					obj = last.Obj
				}
				observe(obj)
			},
		})
		if err != nil {
			return fmt.Errorf("watch for protection: %w", err)
		}
	}
	var running sync.WaitGroup
	running.Go(func() { p.claims.RunWithContext(ctx) })
	running.Go(func() { p.volumes.RunWithContext(ctx) })
	running.Go(func() {
		select {
		case <-p.startPods:
			p.pods.RunWithContext(ctx)
		case <-ctx.Done():
		}
	})
	for range workers {
		running.Go(func() { p.work(ctx) })
	}
	<-ctx.Done()
	p.queue.ShutDown()
	running.Wait()
	return nil
}

// observeClaim takes in that a claim has changed or is gone. Its volume may be free now.
func (p *Controller) observeClaim(obj any) {
	claim, ok := obj.(*corev1.PersistentVolumeClaim)
	if !ok {
		return
	}
	if isPending(claim, ClaimFinalizer) {
		p.queue.Add(key{claim.Namespace, claim.Name})
	}
	volumes, err := p.volumes.GetIndexer().ByIndex(byClaim, claim.Namespace+"/"+claim.Name)
	if err != nil {
		return // there is that index
	}
	for _, volume := range volumes {
		p.observeVolume(volume)
	}
}

func (p *Controller) observeVolume(obj any) {
	if volume, ok := obj.(*corev1.PersistentVolume); ok && isPending(volume, VolumeFinalizer) {
		p.queue.Add(key{name: volume.Name})
	}
}

// observePod takes in that a pod has changed or is gone. Its claims may be free now.
func (p *Controller) observePod(obj any) {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return
	}
	for _, name := range claimsOf(pod) {
		known, exists, err := p.claims.GetStore().GetByKey(pod.Namespace + "/" + name)
		if claim, ok := known.(*corev1.PersistentVolumeClaim); ok && exists && err == nil && isPending(claim, ClaimFinalizer) {
			p.queue.Add(key{pod.Namespace, name})
		}
	}
}

func (p *Controller) work(ctx context.Context) {
	for {
		k, shutdown := p.queue.Get()
		if shutdown {
			return
		}
		switch err := p.reconcile(ctx, k); {
		case err == nil, apierrors.IsNotFound(err):
			p.queue.Forget(k)
		case ctx.Err() != nil:
		case apierrors.IsConflict(err):
			p.queue.AddRateLimited(k)
		default:
			p.log.WarnContext(ctx, "protection not released", "object", k, "error", err)
			p.queue.AddRateLimited(k)
		}
		p.queue.Done(k)
	}
}

// reconcile reads one object anew and decides about it.
func (p *Controller) reconcile(ctx context.Context, k key) error {
	if k.namespace == "" {
		return p.reconcileVolume(ctx, k)
	}
	claim, err := p.client.CoreV1().PersistentVolumeClaims(k.namespace).Get(ctx, k.name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("get claim %s/%s: %w", k.namespace, k.name, err)
	}
	if !isPending(claim, ClaimFinalizer) {
		return nil
	}
	decision, err := p.decideClaim(ctx, claim)
	if err != nil {
		return err
	}
	return p.apply(ctx, k, claim, decision)
}

// decideClaim decides by the pods that the watch has shown, and releases only by a list.
func (p *Controller) decideClaim(ctx context.Context, claim *corev1.PersistentVolumeClaim) (Decision, error) {
	// Before the list, so that the watch shows the end of every pod that the list has.
	p.podsNeeded.Do(func() { close(p.startPods) })
	if !cache.WaitForCacheSync(ctx.Done(), p.pods.HasSynced) {
		return nil, fmt.Errorf("watch pods: %w", context.Cause(ctx))
	}
	known, err := p.pods.GetIndexer().ByIndex(byClaim, claim.Namespace+"/"+claim.Name)
	if err != nil {
		return nil, fmt.Errorf("find the pods of a claim: %w", err)
	}
	var pods []corev1.Pod
	for _, pod := range known {
		pods = append(pods, *pod.(*corev1.Pod))
	}
	if decision, ok := DecideClaim(claim, pods).(Keep); ok {
		return decision, nil
	}
	list, err := p.client.CoreV1().Pods(claim.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list the pods of namespace %s: %w", claim.Namespace, err)
	}
	return DecideClaim(claim, list.Items), nil
}

func (p *Controller) reconcileVolume(ctx context.Context, k key) error {
	volume, err := p.client.CoreV1().PersistentVolumes().Get(ctx, k.name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("get volume %s: %w", k.name, err)
	}
	var claim *corev1.PersistentVolumeClaim
	if ref := volume.Spec.ClaimRef; ref != nil {
		found, err := p.client.CoreV1().PersistentVolumeClaims(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
		switch {
		case err == nil:
			claim = found
		case !apierrors.IsNotFound(err):
			return fmt.Errorf("get claim %s/%s of volume %s: %w", ref.Namespace, ref.Name, k.name, err)
		}
	}
	return p.apply(ctx, k, volume, DecideVolume(volume, claim))
}

// apply carries out a decision about the object that it was made on.
func (p *Controller) apply(ctx context.Context, k key, object metav1.Object, d Decision) error {
	var release Release
	switch d := d.(type) {
	case Keep:
		p.log.DebugContext(ctx, "protected", "object", k, "reason", d.Reason)
		return nil
	case Release:
		release = d
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": object.GetUID(), "resourceVersion": object.GetResourceVersion(), "finalizers": release.Finalizers,
	}})
	if err != nil {
		return fmt.Errorf("release %v: %w", k, err)
	}
	if k.namespace == "" {
		_, err = p.client.CoreV1().PersistentVolumes().Patch(ctx, k.name, types.MergePatchType, patch, metav1.PatchOptions{})
	} else {
		_, err = p.client.CoreV1().PersistentVolumeClaims(k.namespace).Patch(ctx, k.name, types.MergePatchType, patch, metav1.PatchOptions{})
	}
	if err != nil {
		return fmt.Errorf("release %v: %w", k, err)
	}
	p.log.InfoContext(ctx, "released, as nothing uses it", "object", k, "uid", object.GetUID())
	return nil
}

// String names the object in logs.
func (k key) String() string {
	if k.namespace == "" {
		return "persistentvolume " + k.name
	}
	return "persistentvolumeclaim " + k.namespace + "/" + k.name
}

// essentials keeps of an object what is looked at here.
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
		o.Spec, o.Status = corev1.PersistentVolumeClaimSpec{}, corev1.PersistentVolumeClaimStatus{}
	case *corev1.PersistentVolume:
		o.Spec, o.Status = corev1.PersistentVolumeSpec{ClaimRef: o.Spec.ClaimRef}, corev1.PersistentVolumeStatus{}
	}
	return obj, nil
}

// claimVolumes are the volumes that stand for claims, and of these the names.
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
