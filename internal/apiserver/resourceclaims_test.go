package apiserver_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	"github.com/coppice-dev/coppice/internal/controller"
	"github.com/coppice-dev/coppice/internal/controller/resourceclaim"
	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

// startResourceClaims runs the ResourceClaim controllers until the test ends, with their own rights.
func (s *server) startResourceClaims(t *testing.T) {
	t.Helper()
	config, err := s.Workloads()
	if err != nil {
		t.Fatal(err)
	}
	shared, err := controller.NewContext(typed(t, config), clock.RealClock{}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	controllers, err := resourceclaim.Controllers(shared)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := shared.Run(ctx, controllers...); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
}

func gpu(adminAccess bool) resourcev1.ResourceClaimSpec {
	exactly := &resourcev1.ExactDeviceRequest{DeviceClassName: "gpus"}
	if adminAccess {
		exactly.AdminAccess = &adminAccess
	}
	return resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{Name: "gpu", Exactly: exactly}}}}
}

// claimPod creates a pod with a claim from the template "gpus", and returns the created claim.
func claimPod(t *testing.T, client kubernetes.Interface, namespace string) *resourcev1.ResourceClaim {
	t.Helper()
	template := "gpus"
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
	pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimTemplateName: &template}}
	pod.Spec.Containers = []corev1.Container{{Name: "c", Image: "i", Resources: corev1.ResourceRequirements{Claims: []corev1.ResourceClaim{{Name: "gpu"}}}}}
	if _, err := client.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	var claim *resourcev1.ResourceClaim
	eventually.Succeeds(t, func() error {
		pod, err := client.CoreV1().Pods(namespace).Get(t.Context(), "p", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if len(pod.Status.ResourceClaimStatuses) != 1 || pod.Status.ResourceClaimStatuses[0].ResourceClaimName == nil {
			return errors.New("no claim was made")
		}
		claim, err = client.ResourceV1().ResourceClaims(namespace).Get(t.Context(), *pod.Status.ResourceClaimStatuses[0].ResourceClaimName, metav1.GetOptions{})
		if err == nil && !metav1.IsControlledBy(claim, pod) {
			return fmt.Errorf("the owners are %v", claim.OwnerReferences)
		}
		return err
	})
	return claim
}

// A deleted claim that is allocated and reserved for a pod exists until the pod has been removed, like a
// volume claim.
func TestR23_ResourceClaimInUseStays(t *testing.T) {
	s := startServer(t, nil)
	s.startResourceClaims(t)
	namespace, client := s.namespace(t), typed(t, s.config)
	claims := client.ResourceV1().ResourceClaims(namespace)
	_, err := client.ResourceV1().ResourceClaimTemplates(namespace).Create(t.Context(), &resourcev1.ResourceClaimTemplate{
		ObjectMeta: metav1.ObjectMeta{Name: "gpus"}, Spec: resourcev1.ResourceClaimTemplateSpec{Spec: gpu(false)},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	claim := claimPod(t, client, namespace)
	pod, err := client.CoreV1().Pods(namespace).Get(t.Context(), "p", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}

	// A scheduler does this.
	claim.Finalizers = append(claim.Finalizers, resourcev1.Finalizer)
	if claim, err = claims.Update(t.Context(), claim, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	claim.Status.Allocation = &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{
		Results: []resourcev1.DeviceRequestAllocationResult{{Request: "gpu", Driver: "gpu.example.com", Pool: "n", Device: "gpu-0"}},
	}}
	claim.Status.ReservedFor = []resourcev1.ResourceClaimConsumerReference{{Resource: "pods", Name: "p", UID: pod.UID}}
	if _, err = claims.UpdateStatus(t.Context(), claim, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}

	if err := claims.Delete(t.Context(), claim.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	marked, err := claims.Get(t.Context(), claim.Name, metav1.GetOptions{})
	if err != nil || marked.DeletionTimestamp == nil || marked.Status.Allocation == nil {
		t.Fatalf("%v: %v", marked, err)
	}
	marked.Status.ReservedFor = append(marked.Status.ReservedFor, resourcev1.ResourceClaimConsumerReference{Resource: "pods", Name: "q", UID: "q"})
	if _, err := claims.UpdateStatus(t.Context(), marked, metav1.UpdateOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("a claim that is being deleted is reserved for others: %v", err)
	}
	if err := client.CoreV1().Pods(namespace).Delete(t.Context(), "p", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually.Succeeds(t, func() error {
		if _, err := claims.Get(t.Context(), claim.Name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("the claim is there: %w", err)
		}
		return nil
	})
}

// The label of a namespace decides whether devices in use may be accessed in it.
func TestAdminAccessToDevices(t *testing.T) {
	s := sharedServer(t)
	client := typed(t, s.config)
	for name, test := range map[string]struct {
		labels map[string]string
		want   string
	}{
		"labelled":     {map[string]string{"resource.kubernetes.io/admin-access": "true"}, ""},
		"not labelled": {nil, "spec.devices.requests[0].adminAccess: Forbidden: admin access to devices requires the `resource.kubernetes.io/admin-access: true` label on the containing namespace"},
	} {
		t.Run(name, func(t *testing.T) {
			namespace, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "devices-", Labels: test.labels}}, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			_, err = client.ResourceV1().ResourceClaims(namespace.Name).Create(t.Context(), &resourcev1.ResourceClaim{
				ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: gpu(true),
			}, metav1.CreateOptions{})
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("a claim: %v, want %q", err, test.want)
			}
			_, err = client.ResourceV1().ResourceClaimTemplates(namespace.Name).Create(t.Context(), &resourcev1.ResourceClaimTemplate{
				ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: resourcev1.ResourceClaimTemplateSpec{Spec: gpu(true)},
			}, metav1.CreateOptions{})
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("a template: %v, want %q", err, test.want)
			}
			plain, err := client.ResourceV1().ResourceClaims(namespace.Name).Create(t.Context(), &resourcev1.ResourceClaim{
				ObjectMeta: metav1.ObjectMeta{Name: "b"}, Spec: gpu(false),
			}, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			plain.Status.Allocation = &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{
				{Request: "gpu", Driver: "gpu.example.com", Pool: "a", Device: "gpu-0", AdminAccess: new(true)},
			}}}
			_, err = client.ResourceV1().ResourceClaims(namespace.Name).UpdateStatus(t.Context(), plain, metav1.UpdateOptions{})
			want := strings.Replace(test.want, "spec.devices.requests[0]", "status.allocation.devices.results[0]", 1)
			if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("an allocation: %v, want %q", err, want)
			}
		})
	}
}

// TestDriverReportsTheDevicesOfItsNode checks that the token of a driver's pod is enough for the devices on the pod's node, and
// not for others.
func TestDriverReportsTheDevicesOfItsNode(t *testing.T) {
	s := sharedServer(t)
	client, namespace := typed(t, s.config), s.namespace(t)
	s.account(t, namespace, "driver")
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: unique("driver")}, Rules: []rbacv1.PolicyRule{
		{Verbs: []string{"list"}, APIGroups: []string{""}, Resources: []string{"pods"}},
		{Verbs: []string{"get", "update"}, APIGroups: []string{"resource.k8s.io"}, Resources: []string{"resourceclaims", "resourceclaims/status"}},
		{Verbs: []string{"associated-node:update"}, APIGroups: []string{"resource.k8s.io"}, Resources: []string{"resourceclaims/driver"}},
	}}
	if _, err := client.RbacV1().ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.bind(t, namespace, role.Name, "system:serviceaccount:"+namespace+":driver")
	pods := s.pods(t, namespace) // on node-1
	pods.content["spec"].(map[string]any)["serviceAccountName"] = "driver"
	pods.create("driver")
	driver := typed(t, s.bearer(s.token(t, namespace, "driver", authenticationv1.TokenRequestSpec{BoundObjectRef: &authenticationv1.BoundObjectReference{
		APIVersion: "v1", Kind: "Pod", Name: "driver",
	}}).Token)).ResourceV1().ResourceClaims(namespace)
	claims := client.ResourceV1().ResourceClaims(namespace)
	for node, want := range map[string]string{"node-1": "", "node-2": "resourceclaims/driver"} {
		claim, err := claims.Create(t.Context(), &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: node}, Spec: gpu(false)}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		claim.Status.Allocation = &resourcev1.AllocationResult{
			Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{
				{Request: "gpu", Driver: "gpu.example.com", Pool: node, Device: "gpu-0"},
			}},
			NodeSelector: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{
				{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{node}},
			}}}},
		}
		if claim, err = claims.UpdateStatus(t.Context(), claim, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		claim.Status.Devices = []resourcev1.AllocatedDeviceStatus{{Driver: "gpu.example.com", Pool: node, Device: "gpu-0"}}
		_, err = driver.UpdateStatus(t.Context(), claim, metav1.UpdateOptions{})
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("on %s: %v, want %q", node, err, want)
		}
	}
}
