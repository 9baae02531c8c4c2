package apiserver_test

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/coppice-dev/coppice/internal/controller"
	"github.com/coppice-dev/coppice/internal/controller/servicecidrs"
	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

// addressed starts a server with few addresses, and the controllers of ranges and addresses. It returns a
// client and the controllers' clock.
func addressed(t *testing.T) (kubernetes.Interface, *clocktesting.FakeClock) {
	t.Helper()
	s := startServer(t, smallRanges)
	config, err := s.Workloads()
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	clock := clocktesting.NewFakeClock(time.Now())
	shared, err := controller.NewContext(client, clock, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	controllers, err := servicecidrs.Controllers(shared)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- shared.Run(t.Context(), controllers...) }()
	t.Cleanup(func() {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return clientOf(t, s), clock
}

// addRange creates a ServiceCIDR and waits until it is ready.
func addRange(t *testing.T, client kubernetes.Interface, name, cidr string) {
	t.Helper()
	ranges := client.NetworkingV1().ServiceCIDRs()
	_, err := ranges.Create(t.Context(), &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{cidr}}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	eventually.Agrees(t, func() string {
		r, err := ranges.Get(t.Context(), name, metav1.GetOptions{})
		if err != nil || !meta.IsStatusConditionTrue(r.Status.Conditions, networkingv1.ServiceCIDRConditionReady) || !slices.Contains(r.Finalizers, servicecidrs.Finalizer) {
			return fmt.Sprintf("not ready: %v, %v", r, err)
		}
		return ""
	})
}

// Each service with an address has an IPAddress, which is restored after a deletion, and deleted with the
// service.
func TestAddressesFollowServices(t *testing.T) {
	t.Parallel()
	client, _ := addressed(t)
	ctx := t.Context()
	created, err := client.CoreV1().Services("default").Create(ctx, plainService("web"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ip, addresses := created.Spec.ClusterIP, client.NetworkingV1().IPAddresses()
	for _, address := range []string{ip, "10.7.0.1"} { // and the address of default/kubernetes
		eventually.Agrees(t, func() string {
			a, err := addresses.Get(ctx, address, metav1.GetOptions{})
			if err != nil {
				return err.Error()
			}
			if p := a.Spec.ParentRef; p.Resource != "services" || p.Namespace != "default" || (p.Name == "web") != (address == ip) {
				return fmt.Sprintf("%+v", p)
			}
			return ""
		})
	}
	before, err := addresses.Get(ctx, ip, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := addresses.Delete(ctx, ip, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually.Agrees(t, func() string {
		if a, err := addresses.Get(ctx, ip, metav1.GetOptions{}); err != nil || a.UID == before.UID {
			return fmt.Sprintf("not put back: %v", err)
		}
		return ""
	})
	if err := client.CoreV1().Services("default").Delete(ctx, "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually.Agrees(t, func() string {
		if _, err := addresses.Get(ctx, ip, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Sprintf("it stays: %v", err)
		}
		return ""
	})
}

// A ServiceCIDR extends the server's range. A deleted one stays while a service uses one of its addresses,
// allocates no more, and its condition says why. After the deletion of the service and a grace period, it
// is removed.
func TestR23_ServiceCIDRStaysWhileInUse(t *testing.T) {
	t.Parallel()
	client, clock := addressed(t)
	ctx, services, ranges := t.Context(), client.CoreV1().Services("default"), client.NetworkingV1().ServiceCIDRs()
	for i := range 5 {
		if _, err := services.Create(ctx, plainService(fmt.Sprintf("s%d", i)), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := services.Create(ctx, plainService("more"), metav1.CreateOptions{}); err == nil || !strings.Contains(err.Error(), `Service "more": range is full`) {
		t.Fatalf("one more than there are: %v", err)
	}
	addRange(t, client, "further", "10.8.0.0/29")
	eventually.Agrees(t, func() string {
		created, err := services.Create(ctx, plainService("more"), metav1.CreateOptions{})
		if err != nil || !strings.HasPrefix(created.Spec.ClusterIP, "10.8.0.") {
			return fmt.Sprintf("no address of the further range: %v, %v", created, err)
		}
		return ""
	})
	if err := ranges.Delete(ctx, "further", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually.Agrees(t, func() string {
		r, err := ranges.Get(ctx, "further", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		c := meta.FindStatusCondition(r.Status.Conditions, networkingv1.ServiceCIDRConditionReady)
		if c.Status != metav1.ConditionFalse || c.Reason != networkingv1.ServiceCIDRReasonTerminating {
			return fmt.Sprintf("%+v", c)
		}
		return ""
	})
	eventually.Agrees(t, func() string {
		created, err := services.Create(ctx, plainService("late"), metav1.CreateOptions{})
		if err != nil {
			return "" // a dry run would not notice that the other addresses are taken
		}
		if err := services.Delete(ctx, "late", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		return "it gives another address away: " + created.Spec.ClusterIP
	})
	if err := services.Delete(ctx, "more", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually.Agrees(t, func() string {
		clock.Step(servicecidrs.Grace) // the controller starts to wait when it observes the deletion
		if _, err := ranges.Get(ctx, "further", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Sprintf("it stays: %v", err)
		}
		return ""
	})
}

// The ServiceCIDR of the server's own range is recreated after a deletion.
func TestServiceCIDROfTheServerIsKept(t *testing.T) {
	t.Parallel()
	s := startServer(t, smallRanges)
	ranges := clientOf(t, s).NetworkingV1().ServiceCIDRs()
	before, err := ranges.Get(t.Context(), "kubernetes", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := ranges.Delete(t.Context(), "kubernetes", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually.Agrees(t, func() string {
		if now, err := ranges.Get(t.Context(), "kubernetes", metav1.GetOptions{}); err != nil || now.UID == before.UID {
			return fmt.Sprintf("not made again: %v", err)
		}
		return ""
	})
}

// Services do not get an address whose IPAddress belongs to another object.
func TestReservedAddress(t *testing.T) {
	t.Parallel()
	s := startServer(t, smallRanges)
	client := clientOf(t, s)
	_, err := client.NetworkingV1().IPAddresses().Create(t.Context(), &networkingv1.IPAddress{
		ObjectMeta: metav1.ObjectMeta{Name: "10.7.0.4"},
		Spec:       networkingv1.IPAddressSpec{ParentRef: &networkingv1.ParentReference{Group: "example.com", Resource: "gateways", Name: "g"}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	asking := plainService("asking")
	asking.Spec.ClusterIP = "10.7.0.4"
	dry := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	eventually.Agrees(t, func() string {
		if _, err := client.CoreV1().Services("default").Create(t.Context(), asking, dry); !apierrors.IsInvalid(err) {
			return fmt.Sprintf("a service asks for it: %v", err)
		}
		return ""
	})
	for i := range 4 {
		created, err := client.CoreV1().Services("default").Create(t.Context(), plainService(fmt.Sprintf("s%d", i)), metav1.CreateOptions{})
		if err != nil || created.Spec.ClusterIP == "10.7.0.4" {
			t.Errorf("%v, %v", created, err)
		}
	}
	if _, err := client.CoreV1().Services("default").Create(t.Context(), plainService("s4"), metav1.CreateOptions{}); !apierrors.IsInternalError(err) {
		t.Errorf("no address is left: %v", err)
	}
}

// TestGeneratedNamesOfAddresses checks that the generateName of an IPAddress becomes its name unchanged,
// unlike that of all other objects.
func TestGeneratedNamesOfAddresses(t *testing.T) {
	t.Parallel()
	c := sharedServer(t).collection(t, gvk("networking.k8s.io", "v1", "IPAddress"), "ipaddresses", "", map[string]any{
		"spec": map[string]any{"parentRef": map[string]any{"resource": "services", "namespace": "default", "name": "a"}},
	})
	o := c.named("")
	o.SetGenerateName("198.51.100.77")
	if created := c.post(o); created.GetName() != "198.51.100.77" {
		t.Errorf("it is named %s", created.GetName())
	}
	c.mustRemove("198.51.100.77", nil)
}
