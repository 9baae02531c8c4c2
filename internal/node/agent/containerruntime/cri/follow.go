package cri

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coppice-dev/coppice/internal/node/agent/lifecycle"
)

// followEvery is the interval at which volumes are compared with their API objects, and due tokens are renewed.
const followEvery = 40 * time.Second

// Update implements agent.Runtime.
func (r *Runtime) Update(pod *corev1.Pod) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pods[pod.UID] = pod
}

// drop forgets a pod before its files are removed.
func (r *Runtime) drop(uid types.UID) {
	r.mu.Lock()
	delete(r.pods, uid)
	delete(r.troubles, uid)
	r.mu.Unlock()
	r.issuers.forget(uid)
}

// current returns the last observed version of the pod with that UID, or nil if its files are being removed.
func (r *Runtime) current(uid types.UID) *corev1.Pod {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pods[uid]
}

// prepare creates the volumes of a pod.
func (r *Runtime) prepare(of *corev1.Pod, m *references) error {
	defer r.files.lock(of.UID)()
	return r.store.prepare(of, m)
}

// removeFiles removes the volumes and logs of a pod.
func (r *Runtime) removeFiles(uid types.UID) error {
	r.drop(uid)
	defer r.files.lock(uid)()
	return r.store.remove(uid)
}

// removeVolumes removes the volumes of a pod whose containers have ended and will not run again. An error does not keep the
// pod from ending: clean tries again.
func (r *Runtime) removeVolumes(ctx context.Context, of *corev1.Pod) {
	if of.UID == "" || !r.store.hasVolumes(of.UID) {
		return
	}
	r.issuers.forget(of.UID)
	unlock := r.files.lock(of.UID)
	err := r.store.removeVolumes(of.UID)
	unlock()
	if name := of.Namespace + "/" + of.Name; err != nil {
		r.failures.Warn(ctx, "volumes of a finished pod not removed", name, err, "pod", name)
	}
}

// hasEnded reports whether a pod has its final phase and no container that is alive. A final phase alone proves
// nothing: any client with the permission can write it.
func (r *Runtime) hasEnded(pod *corev1.Pod) bool {
	seen := r.Observe(pod.UID)
	return (pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed) && !seen.Unknown &&
		!slices.ContainsFunc(seen.Instances, func(i lifecycle.Instance) bool { return i.Alive() })
}

// keepFollowing follows until ctx ends.
func (r *Runtime) keepFollowing(ctx context.Context) {
	if r.objects == nil {
		return
	}
	r.every(ctx, followEvery, r.follow)
}

// every calls work at an interval until ctx ends.
func (r *Runtime) every(ctx context.Context, interval time.Duration, work func(context.Context)) {
	ticker := r.clock.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
			work(ctx)
		}
	}
}

// seenPods returns all pods as last seen in the API.
func (r *Runtime) seenPods() []*corev1.Pod {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Values(r.pods))
}

// clean removes the volumes of pods that have ended without a sandbox to stop, or before an agent stopped it.
func (r *Runtime) clean(ctx context.Context) {
	for _, pod := range r.seenPods() {
		if ctx.Err() == nil && r.hasEnded(pod) {
			r.removeVolumes(ctx, pod)
		}
	}
}

// follow updates the volumes of API objects of all running pods. It reads each object once, even if several pods refer
// to it.
func (r *Runtime) follow(ctx context.Context) {
	once := &onceObjects{Objects: r.objects}
	for _, pod := range r.seenPods() {
		if ctx.Err() != nil {
			return
		}
		if pod.DeletionTimestamp != nil || !hasFiles(pod) || r.hasEnded(pod) || !r.Observe(pod.UID).Sandbox.Ready {
			continue
		}
		r.report(ctx, pod, r.followPod(ctx, once, pod))
	}
}

// followPod updates the volumes of a pod. A volume whose objects cannot be read keeps its contents. It skips a pod whose
// volumes are being written or removed, which may take long: the other pods must not wait.
func (r *Runtime) followPod(ctx context.Context, objects Objects, pod *corev1.Pod) error {
	pod = withLimits(r.withAddresses(pod), r.capacity)
	found := gatherVolumes(ctx, objects, r.issuers, pod)
	unlock := r.files.tryLock(pod.UID)
	if unlock == nil {
		return nil
	}
	defer unlock()
	if r.current(pod.UID) == nil || !r.store.hasVolumes(pod.UID) {
		return nil // they have been removed
	}
	var failed []error
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if !isFiles(&v.VolumeSource) {
			continue
		}
		changed, err := r.store.writeFiles(pod, v, found)
		if err != nil {
			failed = append(failed, fmt.Errorf("volume %q: %w", v.Name, err))
		}
		if changed {
			r.log.DebugContext(ctx, "volume updated", "pod", pod.Namespace+"/"+pod.Name, "volume", v.Name)
		}
	}
	return errors.Join(failed...)
}

// trouble is the reason why the volumes of a pod are not up to date, and the number of times in a
// row that it occurred.
type trouble struct {
	text  string
	times int
}

// report logs the reason why the volumes of a pod are not up to date, once for each reason, when it
// occurs the second time in a row. The first failure may only mean that the pod is gone, and with
// it the node's permission to read its objects.
func (r *Runtime) report(ctx context.Context, pod *corev1.Pod, err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	r.mu.Lock()
	now := trouble{text: text, times: 1}
	if before := r.troubles[pod.UID]; before.text == text {
		now.times = before.times + 1
	}
	if text == "" || r.pods[pod.UID] == nil {
		delete(r.troubles, pod.UID)
	} else {
		r.troubles[pod.UID] = now
	}
	r.mu.Unlock()
	if text != "" && now.times == 2 {
		r.log.WarnContext(ctx, "volumes of a pod not updated", "pod", pod.Namespace+"/"+pod.Name, "error", err)
	}
}

func hasFiles(pod *corev1.Pod) bool {
	for i := range pod.Spec.Volumes {
		if isFiles(&pod.Spec.Volumes[i].VolumeSource) {
			return true
		}
	}
	return false
}

// onceObjects reads each ConfigMap and Secret once. It is not safe for concurrent use.
type onceObjects struct {
	Objects

	configMaps map[types.NamespacedName]found[corev1.ConfigMap]
	secrets    map[types.NamespacedName]found[corev1.Secret]
}

// ConfigMap implements Objects.
func (o *onceObjects) ConfigMap(ctx context.Context, namespace, name string) (*corev1.ConfigMap, error) {
	return readOnce(&o.configMaps, types.NamespacedName{Namespace: namespace, Name: name}, func() (*corev1.ConfigMap, error) {
		return o.Objects.ConfigMap(ctx, namespace, name)
	})
}

// Secret implements Objects.
func (o *onceObjects) Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error) {
	return readOnce(&o.secrets, types.NamespacedName{Namespace: namespace, Name: name}, func() (*corev1.Secret, error) {
		return o.Objects.Secret(ctx, namespace, name)
	})
}

func readOnce[T any](all *map[types.NamespacedName]found[T], key types.NamespacedName, read func() (*T, error)) (*T, error) {
	known, ok := (*all)[key]
	if !ok {
		known.object, known.err = read()
		if *all == nil {
			*all = map[types.NamespacedName]found[T]{}
		}
		(*all)[key] = known
	}
	return known.object, known.err
}
