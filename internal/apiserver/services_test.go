package apiserver_test

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/coppice-dev/coppice/internal/apiserver"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/core"
)

// smallRanges sets ranges with six addresses, one of them for default/kubernetes, and four node ports.
func smallRanges(c *apiserver.Config) {
	c.Services = core.ServiceRanges{Addresses: netip.MustParsePrefix("10.7.0.0/29"), FirstPort: 30000, LastPort: 30003}
}

func clientOf(t *testing.T, s *server) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(rest.CopyConfig(s.config))
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func plainService(name string) *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}
}

// Two servers on one store allocate all addresses, and none twice. The addresses of a deleted service,
// however it was deleted, are free again.
func TestServiceAddressesOfTwoServers(t *testing.T) {
	t.Parallel()
	first := startServer(t, smallRanges)
	second := startServer(t, func(c *apiserver.Config) {
		smallRanges(c)
		c.Store, c.Authority = first.store, first.authority
	})
	clients := []kubernetes.Interface{clientOf(t, first), clientOf(t, second)}
	ctx := context.Background()
	for round := range 2 {
		var wg sync.WaitGroup
		var mu sync.Mutex
		given := map[string]string{}
		for i := range 5 {
			wg.Go(func() {
				s, err := clients[i%2].CoreV1().Services("default").Create(ctx, plainService(fmt.Sprintf("s%d", i)), metav1.CreateOptions{})
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				defer mu.Unlock()
				if other := given[s.Spec.ClusterIP]; other != "" {
					t.Errorf("%s and %s have %s", s.Name, other, s.Spec.ClusterIP)
				}
				given[s.Spec.ClusterIP] = s.Name
			})
		}
		wg.Wait()
		if _, err := clients[0].CoreV1().Services("default").Create(ctx, plainService("more"), metav1.CreateOptions{}); err == nil || !strings.Contains(err.Error(), "range is full") {
			t.Errorf("round %d: one more than there are: %v", round, err)
		}
		if err := clients[1].CoreV1().RESTClient().Delete().Namespace("default").Resource("services").Do(ctx).Error(); err != nil {
			t.Fatal(err)
		}
	}
}

// The last update of a service with a finalizer removes it, and frees its address.
func TestServiceAddressIsFreedByTheLastUpdate(t *testing.T) {
	t.Parallel()
	s := startServer(t, smallRanges)
	services := clientOf(t, s).CoreV1().Services("default")
	ctx := context.Background()
	held := plainService("held")
	held.Finalizers = []string{"example.com/hold"}
	held.Spec.ClusterIP = "10.7.0.3"
	if _, err := services.Create(ctx, held, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := services.Delete(ctx, "held", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	other := plainService("other")
	other.Spec.ClusterIP = "10.7.0.3"
	if _, err := services.Create(ctx, other, metav1.CreateOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("while the other terminates: %v", err)
	}
	if _, err := services.Patch(ctx, "held", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := services.Create(ctx, other, metav1.CreateOptions{}); err != nil {
		t.Errorf("after it is gone: %v", err)
	}
}

// TestServiceOfManyPorts checks that a service may have more node ports than etcd takes operations in one transaction by
// default, and can be deleted, or changed to a type without node ports, however it got them.
func TestServiceOfManyPorts(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil)
	services := clientOf(t, s).CoreV1().Services("default")
	having := func(ports int) corev1.ServiceSpec {
		spec := corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort}
		for n := range ports {
			spec.Ports = append(spec.Ports, corev1.ServicePort{Name: fmt.Sprint("p", n), Port: int32(n + 1)})
		}
		return spec
	}
	for name, end := range map[string]func(*corev1.Service) error{
		"deletion": func(s *corev1.Service) error { return services.Delete(t.Context(), s.Name, metav1.DeleteOptions{}) },
		"deletion of the collection": func(*corev1.Service) error {
			return clientOf(t, s).CoreV1().RESTClient().Delete().Namespace("default").Resource("services").Do(t.Context()).Error()
		},
		"change of the type": func(s *corev1.Service) error {
			s.Spec.Type = corev1.ServiceTypeClusterIP
			for i := range s.Spec.Ports {
				s.Spec.Ports[i].NodePort = 0
			}
			_, err := services.Update(t.Context(), s, metav1.UpdateOptions{})
			return err
		},
	} {
		made, err := services.Create(t.Context(), &corev1.Service{ObjectMeta: metav1.ObjectMeta{GenerateName: "many-"}, Spec: having(130)}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		made.Spec.Ports = append(made.Spec.Ports, having(260).Ports[130:]...)
		if made, err = services.Update(t.Context(), made, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := end(made); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Services can be applied, and patched from one type to another, as kubectl does.
func TestServiceByApply(t *testing.T) {
	t.Parallel()
	s := sharedServer(t)
	services := clientOf(t, s).CoreV1().Services(s.namespace(t))
	ctx := context.Background()
	apply := func(spec string) *corev1.Service {
		t.Helper()
		body := fmt.Sprintf(`{"apiVersion":"v1","kind":"Service","metadata":{"name":"web"},"spec":%s}`, spec)
		applied, err := services.Patch(ctx, "web", types.ApplyPatchType, []byte(body), metav1.PatchOptions{FieldManager: "me"})
		if err != nil {
			t.Fatal(err)
		}
		return applied
	}
	created := apply(`{"type":"NodePort","ports":[{"port":80}]}`)
	if created.Spec.ClusterIP == "" || created.Spec.Ports[0].NodePort == 0 {
		t.Errorf("created as %+v", created.Spec)
	}
	again := apply(`{"type":"NodePort","ports":[{"port":80}]}`)
	if again.ResourceVersion != created.ResourceVersion {
		t.Errorf("applied again, it changed to %+v", again.Spec)
	}
	inside := apply(`{"type":"ClusterIP","ports":[{"port":80}]}`)
	if inside.Spec.Ports[0].NodePort != 0 || inside.Spec.ExternalTrafficPolicy != "" || inside.Spec.ClusterIP != created.Spec.ClusterIP {
		t.Errorf("changed to %+v", inside.Spec)
	}
}

// Unknown fields are refused, dropped, or cause a warning, as the client requests.
func TestUnknownFields(t *testing.T) {
	t.Parallel()
	s := sharedServer(t)
	namespace := s.namespace(t)
	client := clientOf(t, s).CoreV1().RESTClient()
	for validation, refused := range map[string]bool{"Strict": true, "Warn": false, "Ignore": false} {
		body := fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q},"dat":{},"data":{"a":"b","a":"c"}}`, strings.ToLower(validation))
		result := client.Post().Namespace(namespace).Resource("configmaps").Param("fieldValidation", validation).
			SetHeader("Content-Type", "application/json").Body([]byte(body)).Do(context.Background())
		err := result.Error()
		if refused != (err != nil) {
			t.Errorf("%s: %v", validation, err)
		}
		if refused && (!apierrors.IsBadRequest(err) || !strings.Contains(err.Error(), `unknown field "dat"`) || !strings.Contains(err.Error(), `duplicate field "data.a"`)) {
			t.Errorf("%s: %v", validation, err)
		}
		if warnings := len(result.Warnings()); (warnings == 2) != (validation == "Warn") {
			t.Errorf("%s: %d warnings", validation, warnings)
		}
	}
}

// An invalid object is refused with 422 and a cause for each error.
func TestInvalidObject(t *testing.T) {
	t.Parallel()
	s := sharedServer(t)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "Web"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a"}}}}
	_, err := clientOf(t, s).CoreV1().Pods(s.namespace(t)).Create(context.Background(), pod, metav1.CreateOptions{})
	if !apierrors.IsInvalid(err) {
		t.Fatalf("%v, want 422", err)
	}
	for _, field := range []string{"metadata.name", "spec.containers[0].image"} {
		if !strings.Contains(err.Error(), field) {
			t.Errorf("%v does not name %s", err, field)
		}
	}
	if cause, ok := apierrors.StatusCause(err, metav1.CauseTypeFieldValueRequired); !ok || cause.Field != "spec.containers[0].image" {
		t.Errorf("cause %+v", cause)
	}
}

// The system priority classes exist from the start, and users cannot create others.
func TestSystemPriorityClasses(t *testing.T) {
	t.Parallel()
	s := sharedServer(t)
	client := clientOf(t, s)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "agent"}, Spec: corev1.PodSpec{
		PriorityClassName: "system-node-critical", Containers: []corev1.Container{{Name: "a", Image: "a"}},
	}}
	created, err := client.CoreV1().Pods(s.namespace(t)).Create(context.Background(), pod, metav1.CreateOptions{})
	if err != nil || *created.Spec.Priority != 2_000_001_000 {
		t.Errorf("priority %v, %v", created.Spec.Priority, err)
	}
}
