package system

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/coppice-dev/coppice/internal/apiserver/etcd"
)

// resetClients are an administrator's clients of a control plane that can be reset.
type resetClients struct {
	t       *testing.T
	kube    kubernetes.Interface
	dynamic dynamic.Interface
}

func newResetClients(t *testing.T, p Plane) (c resetClients, err error) {
	c.t = t
	if c.kube, err = kubernetes.NewForConfig(p.Config); err != nil {
		return c, err
	}
	c.dynamic, err = dynamic.NewForConfig(p.Config)
	return c, err
}

// reset resets the control plane.
func (c resetClients) reset(ctx context.Context) (result resetResult) {
	c.t.Helper()
	answer, err := c.kube.CoreV1().RESTClient().Post().AbsPath(resetPath).DoRaw(ctx)
	if err != nil {
		c.t.Fatalf("reset: %v %s", err, answer)
	}
	if err := json.Unmarshal(answer, &result); err != nil {
		c.t.Fatal(err)
	}
	return result
}

var gizmos = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "gizmos"}

const gizmoDefinition = `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"gizmos.example.com"},
	"spec":{"group":"example.com","names":{"kind":"Gizmo","plural":"gizmos"},"scope":"Namespaced","versions":[{"name":"v1","served":true,"storage":true,
	"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}]}}`

// define creates the definition of gizmos, unless it exists, and returns once they are served.
func (c resetClients) define(ctx context.Context) {
	c.t.Helper()
	err := c.kube.CoreV1().RESTClient().Post().AbsPath("/apis/apiextensions.k8s.io/v1/customresourcedefinitions").Body([]byte(gizmoDefinition)).Do(ctx).Error()
	if err != nil && !apierrors.IsAlreadyExists(err) {
		c.t.Fatal(err)
	}
	err = becomesTrue(ctx, "gizmos are served", func(ctx context.Context) (bool, error) {
		_, err := c.dynamic.Resource(gizmos).List(ctx, metav1.ListOptions{})
		return err == nil, unlessMissing(err)
	})
	if err != nil {
		c.t.Fatal(err)
	}
}

// clutter makes, changes and deletes objects of many kinds, some of which cannot be deleted.
func (c resetClients) clutter(ctx context.Context) {
	c.t.Helper()
	held := metav1.ObjectMeta{Name: "held", Finalizers: []string{"example.com/hold"}}
	replicas := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: appsv1.DeploymentSpec{
		Replicas: new(int32(3)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
		Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		},
	}}
	refuse := &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "refuse"}, Webhooks: []admissionv1.ValidatingWebhook{{
		Name: "refuse.example.com", ClientConfig: admissionv1.WebhookClientConfig{URL: new("https://127.0.0.1:1/")},
		Rules: []admissionv1.RuleWithOperations{{Operations: []admissionv1.OperationType{"DELETE"}, Rule: admissionv1.Rule{
			APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"secrets"},
		}}},
		SideEffects: new(admissionv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
	}}}
	gizmo := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Gizmo"}}
	gizmo.SetName("held")
	gizmo.SetFinalizers(held.Finalizers)
	core := c.kube.CoreV1()
	for _, step := range []func() error{
		func() error {
			_, err := core.Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}, metav1.CreateOptions{})
			return err
		},
		func() error {
			_, err := core.ConfigMaps("shop").Create(ctx, &corev1.ConfigMap{ObjectMeta: held}, metav1.CreateOptions{})
			return err
		},
		func() error { return core.Namespaces().Delete(ctx, "shop", metav1.DeleteOptions{}) },
		func() error {
			_, err := core.Services("default").Create(ctx, nodePortService("web"), metav1.CreateOptions{})
			return err
		},
		func() error {
			_, err := core.Secrets("default").Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "secret"}}, metav1.CreateOptions{})
			return err
		},
		func() error {
			_, err := c.kube.AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(ctx, refuse, metav1.CreateOptions{})
			return err
		},
		func() error {
			_, err := c.kube.AppsV1().Deployments("default").Create(ctx, replicas, metav1.CreateOptions{})
			return err
		},
		func() error {
			_, err := c.dynamic.Resource(gizmos).Namespace("default").Create(ctx, gizmo, metav1.CreateOptions{})
			return err
		},
		func() error {
			return c.dynamic.Resource(gizmos).Namespace("default").Delete(ctx, "held", metav1.DeleteOptions{})
		},
		func() error {
			label := []byte(`{"metadata":{"labels":{"changed":"true"}}}`)
			_, err := core.Namespaces().Patch(ctx, "default", types.MergePatchType, label, metav1.PatchOptions{})
			return err
		},
		func() error { return c.kube.RbacV1().ClusterRoles().Delete(ctx, "view", metav1.DeleteOptions{}) },
	} {
		if err := step(); err != nil {
			c.t.Fatal(err)
		}
	}
}

// TestResetLeadsBackToTheStart checks that after a reset nothing is left of what was made, whatever holds it, that what
// was changed or deleted is as it was, and that somebody who watches sees what goes.
func TestResetLeadsBackToTheStart(t *testing.T) {
	o := ephemeral(t)
	o.Workloads = InProcess
	runWithPlane(t, o, func(ctx context.Context, p Plane) error {
		c, err := newResetClients(t, p)
		if err != nil {
			return err
		}
		c.reset(ctx)
		view, err := c.kube.RbacV1().ClusterRoles().Get(ctx, "view", metav1.GetOptions{})
		if err != nil {
			return err
		}
		for range 3 {
			c.define(ctx)
			seen, err := c.dynamic.Resource(gizmos).Watch(ctx, metav1.ListOptions{})
			if err != nil {
				return err
			}
			c.clutter(ctx)
			result := c.reset(ctx)
			if result.Deleted < 7 || result.Restored < 2 {
				t.Errorf("%+v", result)
			}
			if err := sees(seen, watch.Added, watch.Modified, watch.Deleted); err != nil {
				return err
			}
			if err := c.isAsAtTheStart(ctx, view.UID); err != nil {
				return err
			}
		}
		return nil
	})
}

// sees returns an error unless a watch has these events.
func sees(events watch.Interface, want ...watch.EventType) error {
	defer events.Stop()
	for _, next := range want {
		if event, ok := <-events.ResultChan(); !ok || event.Type != next {
			return fmt.Errorf("want the event %s; got %s", next, event.Type)
		}
	}
	return nil
}

// isAsAtTheStart returns an error for what clutter has left.
func (c resetClients) isAsAtTheStart(ctx context.Context, view types.UID) error {
	core := c.kube.CoreV1()
	if role, err := c.kube.RbacV1().ClusterRoles().Get(ctx, "view", metav1.GetOptions{}); err != nil || role.UID != view {
		return fmt.Errorf("the cluster role view: %v, %w", role, err)
	}
	if ns, err := core.Namespaces().Get(ctx, "default", metav1.GetOptions{}); err != nil || ns.Labels["changed"] != "" {
		return fmt.Errorf("the namespace default has the labels %v, %w", ns.Labels, err)
	}
	if _, err := core.Namespaces().Get(ctx, "shop", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		return fmt.Errorf("the namespace shop is there: %w", err)
	}
	// A list from a cache, such as that of an informer, has no old objects either.
	pods, err := core.Pods("").List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil || len(pods.Items) > 0 {
		return fmt.Errorf("there are pods: %v, %w", pods.Items, err)
	}
	if _, resources, err := c.kube.Discovery().ServerGroupsAndResources(); err != nil || strings.Contains(fmt.Sprint(resources), "gizmos") {
		return fmt.Errorf("gizmos are served: %w", err)
	}
	// The webhook would refuse the deletion.
	if _, err := core.Secrets("default").Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "secret"}}, metav1.CreateOptions{}); err != nil {
		return err
	}
	return core.Secrets("default").Delete(ctx, "secret", metav1.DeleteOptions{})
}

// TestResetKeepsWhatIsMarked checks that a reset leads back to the state at the last PUT.
func TestResetKeepsWhatIsMarked(t *testing.T) {
	o := ephemeral(t)
	runWithPlane(t, o, func(ctx context.Context, p Plane) error {
		c, err := newResetClients(t, p)
		if err != nil {
			return err
		}
		maps := c.kube.CoreV1().ConfigMaps("default")
		create := func(name string, owners ...metav1.OwnerReference) (*corev1.ConfigMap, error) {
			return maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: owners}}, metav1.CreateOptions{})
		}
		owner, err := create("owner")
		if err != nil {
			return err
		}
		owned, err := create("owned", metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "owner", UID: owner.UID})
		if err != nil {
			return err
		}
		if err := c.kube.CoreV1().RESTClient().Put().AbsPath(resetPath).Do(ctx).Error(); err != nil {
			return err
		}
		// The collector has known the owner as absent.
		if err := maps.Delete(ctx, "owner", metav1.DeleteOptions{}); err != nil {
			return err
		}
		err = becomesTrue(ctx, "the owned object is collected", func(ctx context.Context) (bool, error) {
			_, err := maps.Get(ctx, "owned", metav1.GetOptions{})
			return apierrors.IsNotFound(err), unlessMissing(err)
		})
		if err != nil {
			return err
		}
		for range 2 {
			if _, err := create("more"); err != nil {
				return err
			}
			c.reset(ctx)
			if got, err := maps.Get(ctx, "owned", metav1.GetOptions{}); err != nil || got.UID != owned.UID {
				return fmt.Errorf("%v, %w", got, err)
			}
			if _, err := maps.Get(ctx, "more", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				return fmt.Errorf("an object that was not marked: %w", err)
			}
		}
		return nil
	})
}

// nodePortService returns a service that requests a node port and a cluster IP.
func nodePortService(name string) *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{
		Type: corev1.ServiceTypeNodePort, ClusterIP: "10.96.0.77", Ports: []corev1.ServicePort{{Port: 80, NodePort: 30080}},
	}}
}

// TestResetRestoresReservations checks that after a reset a service has its cluster IP and its node port for itself, even
// if another service has had them meanwhile.
func TestResetRestoresReservations(t *testing.T) {
	o := ephemeral(t)
	runWithPlane(t, o, func(ctx context.Context, p Plane) error {
		c, err := newResetClients(t, p)
		if err != nil {
			return err
		}
		services := c.kube.CoreV1().Services("default")
		create := func(name string) error {
			_, err := services.Create(ctx, nodePortService(name), metav1.CreateOptions{})
			return err
		}
		if err := create("marked"); err != nil {
			return err
		}
		err = becomesTrue(ctx, "the cluster IP has an IPAddress", func(ctx context.Context) (bool, error) {
			_, err := c.kube.NetworkingV1().IPAddresses().Get(ctx, "10.96.0.77", metav1.GetOptions{})
			return err == nil, unlessMissing(err)
		})
		if err != nil {
			return err
		}
		if err := c.kube.CoreV1().RESTClient().Put().AbsPath(resetPath).Do(ctx).Error(); err != nil {
			return err
		}
		for _, between := range []func() error{
			func() error { return nil },
			func() error { return create("other") },
		} {
			if err := services.Delete(ctx, "marked", metav1.DeleteOptions{}); err != nil {
				return err
			}
			if err := between(); err != nil {
				return err
			}
			c.reset(ctx)
			if err := create("late"); !apierrors.IsInvalid(err) {
				t.Errorf("another service takes the values of a restored one: %v", err)
			}
		}
		if err := services.Delete(ctx, "marked", metav1.DeleteOptions{}); err != nil {
			return err
		}
		return create("late")
	})
}

// TestResetRestoresARecreatedObject checks that a reset ends although an object of the mark was deleted and created again,
// and that watches see both objects: two UIDs are two objects.
func TestResetRestoresARecreatedObject(t *testing.T) {
	o := ephemeral(t)
	runWithPlane(t, o, func(ctx context.Context, p Plane) error {
		c, err := newResetClients(t, p)
		if err != nil {
			return err
		}
		maps := c.kube.CoreV1().ConfigMaps("default")
		create := func() (*corev1.ConfigMap, error) {
			return maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "marked"}}, metav1.CreateOptions{})
		}
		marked, err := create()
		if err != nil {
			return err
		}
		if err := c.kube.CoreV1().RESTClient().Put().AbsPath(resetPath).Do(ctx).Error(); err != nil {
			return err
		}
		if err := maps.Delete(ctx, "marked", metav1.DeleteOptions{}); err != nil {
			return err
		}
		other, err := create()
		if err != nil {
			return err
		}
		seen, err := maps.Watch(ctx, metav1.ListOptions{ResourceVersion: other.ResourceVersion, FieldSelector: "metadata.name=marked"})
		if err != nil {
			return err
		}
		c.reset(ctx)
		if got, err := maps.Get(ctx, "marked", metav1.GetOptions{}); err != nil || got.UID != marked.UID {
			return fmt.Errorf("%v, %w", got, err)
		}
		return sees(seen, watch.Deleted, watch.Added)
	})
}

// TestResetLeavesTheControlPlanesOwnWrites checks which differences a reset does not undo.
func TestResetLeavesTheControlPlanesOwnWrites(t *testing.T) {
	store, err := etcd.Open(t.Context(), etcd.Options{Dir: t.TempDir(), Ephemeral: true})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	if _, err := store.Client().Put(t.Context(), store.Prefix()+"/namespaces/default", "{}"); err != nil {
		t.Fatal(err)
	}
	mark, err := store.Mark(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	const made, changed, gone = 1 << etcd.Made, 1 << etcd.Changed, 1 << etcd.Gone
	r := &resetter{mark: mark, address: "10.96.0.1"}
	withNodes := &resetter{mark: mark, nodes: true}
	for _, c := range []struct {
		of     *resetter
		key    string
		undoes int
	}{
		{r, "configmaps/default/a", made | changed | gone},
		{r, "configmaps/default/kube-root-ca.crt", changed | gone},
		{r, "configmaps/shop/kube-root-ca.crt", made | changed | gone},
		{r, "serviceaccounts/default/default", changed | gone},
		{r, "serviceaccounts/default/builder", made | changed | gone},
		{r, "serviceaccounts/shop/default", made | changed | gone},
		{r, "leases/kube-system/a", gone},
		{r, "leases/kube-node-lease/a", gone},
		{r, "leases/default/operator", made | changed | gone},
		{r, "nodes/a", made | changed | gone},
		{withNodes, "nodes/a", gone},
		{r, "ipaddresses/10.96.0.1", changed | gone},
		{r, "ipaddresses/10.96.0.2", made | changed | gone},
		{r, "servicecidrs/kubernetes", made | gone},
		{r, "servicecidrs/other", made | changed | gone},
		{r, "flowschemas/exempt", made | gone},
		{r, "apiregistration.k8s.io/apiservices/v1.example.com", made | gone},
		{r, "clustertrustbundles/kubernetes.io:signer:a", changed | gone},
		{r, "clustertrustbundles/example.com:signer:a", made | changed | gone},
	} {
		undoes := 0
		for _, d := range []etcd.Difference{etcd.Made, etcd.Changed, etcd.Gone} {
			if c.of.returns(c.key, d) {
				undoes |= 1 << d
			}
		}
		if undoes != c.undoes {
			t.Errorf("%s: %03b is undone, want %03b (gone, changed, made)", c.key, undoes, c.undoes)
		}
	}
}

// TestResetIsForEphemeralControlPlanes checks that a control plane that keeps its data refuses a reset, and that nobody
// resets one without the right to.
func TestResetIsForEphemeralControlPlanes(t *testing.T) {
	for _, o := range []Options{ephemeral(t), options(t.TempDir())} {
		runWithPlane(t, o, func(ctx context.Context, p Plane) error {
			c, err := newResetClients(t, p)
			if err != nil {
				return err
			}
			rest := c.kube.CoreV1().RESTClient()
			if answer, err := rest.Post().AbsPath(resetPath).DoRaw(ctx); apierrors.IsForbidden(err) == o.Ephemeral {
				t.Errorf("ephemeral %t: %v %s", o.Ephemeral, err, answer)
			}
			for _, method := range []string{http.MethodPost, http.MethodPut} {
				err := rest.Verb(method).AbsPath(resetPath).SetHeader("Impersonate-User", "ann").Do(ctx).Error()
				if !apierrors.IsForbidden(err) {
					t.Errorf("ann may %s: %v", method, err)
				}
				if err := rest.Verb(method).AbsPath(resetPath).SetHeader("Sec-Fetch-Site", "cross-site").Do(ctx).Error(); !apierrors.IsForbidden(err) {
					t.Errorf("a page of another site may %s: %v", method, err)
				}
			}
			return nil
		})
	}
}

// The first answer to a PUT is that of the reset: a suite may send it as soon as the API server is ready, before the
// controllers run.
func TestResetIsServedFromTheStart(t *testing.T) {
	o := ephemeral(t)
	o.WriteKubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	answered := make(chan error, 1)
	go func() {
		answered <- becomesTrue(ctx, "the server answers", func(ctx context.Context) (bool, error) {
			config, err := clientcmd.BuildConfigFromFlags("", o.WriteKubeconfig)
			if err != nil {
				return false, nil //nolint:nilerr // it is not written yet
			}
			client, err := kubernetes.NewForConfig(config)
			if err != nil {
				return false, err
			}
			err = client.CoreV1().RESTClient().Put().AbsPath(resetPath).Do(ctx).Error()
			if apierrors.IsNotFound(err) {
				return false, err
			}
			return err == nil, nil
		})
	}()
	runWithPlane(t, o, func(context.Context, Plane) error { return <-answered })
}

// A reset waits for the start of the control plane, until its request ends.
func TestResetsWaitForTheStart(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	r := newResetter(completedOptions{}, nil, nil)
	if _, err := r.reset(ended); err == nil || !strings.Contains(err.Error(), "the control plane still starts") {
		t.Errorf("a reset: %v", err)
	}
	if err := r.keep(ended); err == nil || !strings.Contains(err.Error(), "the control plane still starts") {
		t.Errorf("a mark: %v", err)
	}
}

// A reset waits for an earlier one, until its request ends.
func TestResetsComeOneAfterTheOther(t *testing.T) {
	r := &resetter{turn: make(chan struct{}, 1)}
	end, err := r.begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.reset(ended); err == nil || !strings.Contains(err.Error(), "an earlier reset has not ended") {
		t.Errorf("a second reset: %v", err)
	}
	if err := r.keep(ended); err == nil || !strings.Contains(err.Error(), "an earlier reset has not ended") {
		t.Errorf("a mark in the middle of a reset: %v", err)
	}
	end()
	if end, err = r.begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	end()
}
