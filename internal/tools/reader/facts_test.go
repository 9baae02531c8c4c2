package reader

import (
	"fmt"
	"slices"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
)

func in(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name}
}

// readAll reads the facts that a decision needs.
func readAll(t *testing.T, client kubernetes.Interface, decide func(*inventory.Facts)) *inventory.Facts {
	t.Helper()
	facts := inventory.NewFacts()
	decide(facts)
	(&Facts{client: client}).Read(t.Context(), facts.Needs(), facts)
	decide(facts)
	if needs := facts.Needs(); !needs.IsEmpty() {
		t.Errorf("not read: %+v", needs)
	}
	return facts
}

// Facts are read with GET requests only, each object once.
func TestFactsAreReadOnce(t *testing.T) {
	since := metav1.NewTime(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	three, holder, path := int32(3), "pod_1", "/validate"
	ready, gold := true, "gold"
	client := fake.NewClientset(
		&appsv1.Deployment{
			ObjectMeta: in("ops", "operator"),
			Spec: appsv1.DeploymentSpec{Replicas: &three, Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
				ServiceAccountName: "operator", Containers: []corev1.Container{{Image: "acme/operator:v1"}},
			}}},
			Status: appsv1.DeploymentStatus{Conditions: []appsv1.DeploymentCondition{
				{Type: appsv1.DeploymentAvailable, Status: corev1.ConditionFalse, LastTransitionTime: since},
			}},
		},
		&coordinationv1.Lease{ObjectMeta: in("ops", "operator"), Spec: coordinationv1.LeaseSpec{
			HolderIdentity: &holder, RenewTime: &metav1.MicroTime{Time: since.Time}, LeaseDurationSeconds: &three,
		}},
		&corev1.PersistentVolume{ObjectMeta: in("", "bound"), Spec: corev1.PersistentVolumeSpec{ClaimRef: &corev1.ObjectReference{Namespace: "shop", Name: "data"}}},
		&corev1.PersistentVolume{ObjectMeta: in("", "released"), Spec: corev1.PersistentVolumeSpec{ClaimRef: &corev1.ObjectReference{Namespace: "shop", Name: "gone"}}},
		&corev1.PersistentVolume{ObjectMeta: in("", "free")},
		&corev1.PersistentVolumeClaim{ObjectMeta: in("shop", "data"), Spec: corev1.PersistentVolumeClaimSpec{VolumeAttributesClassName: &gold}},
		&corev1.Node{ObjectMeta: in("", "n1"), Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
			{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, LastTransitionTime: since},
		}}},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "new", CreationTimestamp: since}},
		&admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: in("", "v"), Webhooks: []admissionregistrationv1.ValidatingWebhook{
			{Name: "dead", ClientConfig: admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{Namespace: "ops", Name: "dead", Path: &path}}},
			{Name: "alive", ClientConfig: admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{Namespace: "ops", Name: "alive"}}},
			{Name: "open", FailurePolicy: new(admissionregistrationv1.Ignore), ClientConfig: admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{Namespace: "ops", Name: "alive"}}},
		}},
		&discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ops", Name: "alive-1", Labels: map[string]string{discoveryv1.LabelServiceName: "alive"}},
			Endpoints:  []discoveryv1.Endpoint{{Addresses: []string{"10.0.0.1"}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}}},
		},
	)
	deployment := &inventory.Object{Object: ownership.Object{UID: "d", Kind: ownership.Kind{Group: "apps", Kind: "Deployment"}, Namespace: "ops", Name: "operator"}}
	facts := readAll(t, client, func(f *inventory.Facts) {
		for _, name := range []string{"bound", "released", "free", "nobody"} {
			f.Volume(name)
		}
		f.UsersOfClass(gold)
		f.UsersOfClass("silver")
		f.Node("n1")
		f.Node("n2")
		f.Node("new")
		f.Workload(deployment)
		f.Lease(deployment) // it has the same name
		f.AllWebhooks()
	})
	for name, claim := range map[string]string{"bound": "data", "released": "", "free": ""} {
		v := facts.Volume(name)
		if c := v.Value.Claim; v.Unread != "" || v.Value.Volume.Name != name || (c != nil) != (claim != "") || c != nil && c.Name != claim {
			t.Errorf("%s: %+v", name, v)
		}
	}
	if facts.Volume("nobody").Unread == "" {
		t.Error("a volume that does not exist is read")
	}
	if users := facts.UsersOfClass(gold).Value; len(users) != 1 || users[0].Name != "data" || users[0].Kind != "PersistentVolumeClaim" || len(facts.UsersOfClass("silver").Value) > 0 {
		t.Errorf("the class gold is named by %+v", users)
	}
	w := facts.Workload(deployment).Value
	if w.Replicas != 3 || w.Ready != 0 || w.ServiceAccount != "operator" || !w.UnreadySince.Equal(since.Time) || !slices.Equal(w.Images, []string{"acme/operator:v1"}) {
		t.Errorf("the workload is %+v", w)
	}
	if n := facts.Node("n1"); n.Unread != "" || !n.Value.Exists || n.Value.Ready || n.Value.HasNotReported || !n.Value.Since.Equal(since.Time) {
		t.Errorf("the node is %+v", n)
	}
	if n := facts.Node("new"); !n.Value.Exists || n.Value.Ready || !n.Value.HasNotReported || !n.Value.Since.Equal(since.Time) {
		t.Errorf("a node without a condition is %+v", n)
	}
	if n := facts.Node("n2"); n.Unread != "" || n.Value.Exists {
		t.Errorf("a node that does not exist is %+v", n)
	}
	hooks := facts.AllWebhooks().Value
	if len(hooks) != 3 || !hooks[0].FailsClosed || hooks[0].Endpoints != 0 || hooks[1].Endpoints != 1 || hooks[2].FailsClosed || hooks[2].Endpoints != 1 {
		t.Errorf("the webhooks are %+v", hooks)
	}
	lease := facts.Lease(deployment).Value
	if lease.Holder != "pod_1" || !lease.Renewed.Equal(since.Time) || lease.Duration != 3*time.Second {
		t.Errorf("the Lease is %+v", lease)
	}
	asked := map[string]int{}
	for _, a := range client.Actions() {
		if a.GetVerb() != "get" && a.GetVerb() != "list" {
			t.Errorf("a request to %s %s", a.GetVerb(), a.GetResource().Resource)
		}
		asked[a.GetResource().Resource]++
	}
	if asked["deployments"] != 1 || asked["nodes"] != 3 || asked["validatingwebhookconfigurations"] != 1 {
		t.Errorf("the server was asked more than once: %v", asked)
	}
}

// TestManyWorkloadsAreListed: hundreds of workloads do not cause hundreds of requests.
func TestManyWorkloadsAreListed(t *testing.T) {
	client := fake.NewClientset()
	const many = 200
	one := int32(1)
	for n := range many {
		name := fmt.Sprintf("d%d", n)
		meta := in("ops", name)
		meta.UID = types.UID(name)
		if err := client.Tracker().Add(&appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{Replicas: &one}}); err != nil {
			t.Fatal(err)
		}
	}
	readAll(t, client, func(f *inventory.Facts) {
		for n := range many {
			name := fmt.Sprintf("d%d", n)
			o := &inventory.Object{Object: ownership.Object{UID: ownership.UID(name), Kind: ownership.Kind{Group: "apps", Kind: "Deployment"}, Namespace: "ops", Name: name}}
			if w := f.Workload(o); w.Unread == "" && (w.Value.Replicas != 1 || w.Value.ServiceAccount != "default") {
				t.Fatalf("%s is %+v", name, w)
			}
		}
	})
	if got := len(client.Actions()); got > 3 {
		t.Errorf("%d requests for %d workloads", got, many)
	}
}

// TestManyNodesAreListed: the nodes of a large namespace's pods do not cause a request each, and a removed node stays
// removed.
func TestManyNodesAreListed(t *testing.T) {
	client := fake.NewClientset()
	const many = 200
	for n := range many {
		node := &corev1.Node{ObjectMeta: in("", fmt.Sprintf("n%d", n)), Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
			{Type: corev1.NodeReady, Status: corev1.ConditionTrue},
		}}}
		if n == many-1 {
			node.Status.Conditions[0].Status = corev1.ConditionUnknown
		}
		if err := client.Tracker().Add(node); err != nil {
			t.Fatal(err)
		}
	}
	readAll(t, client, func(f *inventory.Facts) {
		for n := range many {
			if node := f.Node(fmt.Sprintf("n%d", n)); node.Unread == "" && (!node.Value.Exists || node.Value.Ready == (n == many-1)) {
				t.Errorf("node %d is %+v", n, node)
			}
		}
		if node := f.Node("gone"); node.Value.Exists {
			t.Errorf("a node that does not exist is %+v", node)
		}
	})
	if got := len(client.Actions()); got > 2 {
		t.Errorf("%d requests for %d nodes", got, many)
	}
}
