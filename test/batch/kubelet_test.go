package batch

import (
	"context"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/coppice-dev/coppice/internal/controller"
)

// fateKey is the annotation of a pod that says what becomes of it: run, succeed, fail.
const fateKey = "test/fate"

// runKubelet plays the scheduler and the only node, until ctx ends.
func runKubelet(ctx context.Context) error {
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n"},
		Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
	}
	if _, err := client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil {
		return err
	}
	shared, err := controller.NewContext(client, clock.RealClock{}, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	source := shared.Informers.Core().V1().Pods()
	return shared.Run(ctx, &controller.Controller{
		Name: "kubelet", Workers: 4, Sources: []controller.Source{controller.For(source.Informer())},
		Reconcile: func(ctx context.Context, key cache.ObjectName) (time.Duration, error) {
			pod, err := source.Lister().Pods(key.Namespace).Get(key.Name)
			if err == nil {
				err = play(ctx, pod)
			}
			if apierrors.IsNotFound(err) {
				return 0, nil // gone
			}
			return 0, err
		},
	})
}

func play(ctx context.Context, pod *corev1.Pod) error {
	pods := client.CoreV1().Pods(pod.Namespace)
	ended := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	switch {
	case pod.DeletionTimestamp != nil && (ended || pod.Spec.NodeName == ""):
		return pods.Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64), Preconditions: &metav1.Preconditions{UID: &pod.UID}})
	case pod.DeletionTimestamp != nil:
		return become(ctx, pod, corev1.PodFailed)
	case pod.Spec.NodeName == "":
		return pods.Bind(ctx, &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: pod.Name}, Target: corev1.ObjectReference{Kind: "Node", Name: "n"}}, metav1.CreateOptions{})
	case pod.Status.Phase != corev1.PodRunning && !ended:
		return become(ctx, pod, corev1.PodRunning)
	case pod.Status.Phase == corev1.PodRunning && pod.Annotations[fateKey] == "succeed":
		return become(ctx, pod, corev1.PodSucceeded)
	case pod.Status.Phase == corev1.PodRunning && pod.Annotations[fateKey] == "fail":
		return become(ctx, pod, corev1.PodFailed)
	}
	return nil
}

func become(ctx context.Context, pod *corev1.Pod, phase corev1.PodPhase) error {
	changed := pod.DeepCopy()
	changed.Status.Phase = phase
	if phase == corev1.PodRunning {
		changed.Status.Conditions = append(changed.Status.Conditions, corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue})
	} else {
		changed.Status.Conditions = nil
	}
	_, err := client.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, changed, metav1.UpdateOptions{})
	return err
}
