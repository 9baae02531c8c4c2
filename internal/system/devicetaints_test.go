package system

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// TestDeviceTaintRuleForetellsAndEvicts checks that a rule with the effect None says what it would do, and that with the
// effect NoExecute it ends the pod that uses the device, and no other.
func TestDeviceTaintRuleForetellsAndEvicts(t *testing.T) {
	o := ephemeral(t)
	o.Nodes.Nodes = 1
	runWith(t, o, taintDevices)
}

func taintDevices(ctx context.Context, client kubernetes.Interface) error {
	for _, name := range []string{"gpu-0", "gpu-1"} {
		if err := useDevice(ctx, client, name); err != nil {
			return err
		}
	}
	device := "gpu-0"
	_, err := client.ResourceV1().DeviceTaintRules().Create(ctx, &resourcev1.DeviceTaintRule{
		ObjectMeta: metav1.ObjectMeta{Name: "broken"},
		Spec: resourcev1.DeviceTaintRuleSpec{
			DeviceSelector: &resourcev1.DeviceTaintSelector{Device: &device},
			Taint:          resourcev1.DeviceTaint{Key: "example.com/broken", Effect: resourcev1.DeviceTaintEffectNone},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	rule, err := evictionInProgress(ctx, client, "0 published devices selected. 1 allocated device selected. 1 pod would be evicted in 1 namespace")
	if err != nil {
		return err
	}
	rule.Spec.Taint.Effect = resourcev1.DeviceTaintEffectNoExecute
	if _, err := client.ResourceV1().DeviceTaintRules().Update(ctx, rule, metav1.UpdateOptions{}); err != nil {
		return err
	}
	if err := becomesTrue(ctx, "the pod that uses the device is gone", func(ctx context.Context) (bool, error) {
		_, err := client.CoreV1().Pods("default").Get(ctx, "gpu-0", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return true, nil
		}
		return false, err
	}); err != nil {
		return err
	}
	other, err := client.CoreV1().Pods("default").Get(ctx, "gpu-1", metav1.GetOptions{})
	if err == nil && other.DeletionTimestamp != nil {
		err = fmt.Errorf("a pod of another device is deleted: %v", other.Status.Conditions)
	}
	return err
}

// useDevice creates a pod that uses a device: its claim is allocated and reserved as a scheduler would.
func useDevice(ctx context.Context, client kubernetes.Interface, name string) error {
	claim := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{
		Requests: []resourcev1.DeviceRequest{{Name: "gpu", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "gpus"}}},
	}}}
	claim, err := client.ResourceV1().ResourceClaims("default").Create(ctx, claim, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	pod := boundPod(name, "node-1")
	pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: &name}}
	pod.Spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: "gpu"}}
	if pod, err = client.CoreV1().Pods("default").Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		return err
	}
	claim.Status.Allocation = &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{
		Results: []resourcev1.DeviceRequestAllocationResult{{Request: "gpu", Driver: "gpu.example.com", Pool: "n", Device: name}},
	}}
	claim.Status.ReservedFor = []resourcev1.ResourceClaimConsumerReference{{Resource: "pods", Name: name, UID: pod.UID}}
	_, err = client.ResourceV1().ResourceClaims("default").UpdateStatus(ctx, claim, metav1.UpdateOptions{})
	return err
}

// evictionInProgress waits until the rule says that, and returns it.
func evictionInProgress(ctx context.Context, client kubernetes.Interface, words string) (rule *resourcev1.DeviceTaintRule, err error) {
	var said string
	err = becomesTrue(ctx, "the rule says "+words, func(ctx context.Context) (bool, error) {
		if rule, err = client.ResourceV1().DeviceTaintRules().Get(ctx, "broken", metav1.GetOptions{}); err != nil {
			return false, err
		}
		c := meta.FindStatusCondition(rule.Status.Conditions, resourcev1.DeviceTaintConditionEvictionInProgress)
		if c != nil {
			said = c.Message
		}
		return strings.HasPrefix(said, words), nil
	})
	if err != nil {
		err = fmt.Errorf("%w, but %q", err, said)
	}
	return rule, err
}
