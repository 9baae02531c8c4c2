package details

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
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/explain"
	"github.com/coppice-dev/coppice/internal/tools/finalizerowner"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
)

func in(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name}
}

// TestDetails: explanations get their details with GET requests only, and not more than necessary.
func TestDetails(t *testing.T) {
	since := metav1.NewTime(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	three, holder, path := int32(3), "pod_1", "/validate"
	ready := true
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
		&corev1.PersistentVolumeClaim{ObjectMeta: in("shop", "data")},
		&corev1.Node{ObjectMeta: in("", "n1"), Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
			{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, LastTransitionTime: since},
		}}},
		&admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: in("", "v"), Webhooks: []admissionregistrationv1.ValidatingWebhook{
			{Name: "dead", ClientConfig: admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{Namespace: "ops", Name: "dead", Path: &path}}},
			{Name: "alive", ClientConfig: admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{Namespace: "ops", Name: "alive"}}},
		}},
		&discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ops", Name: "alive-1", Labels: map[string]string{discoveryv1.LabelServiceName: "alive"}},
			Endpoints:  []discoveryv1.Endpoint{{Addresses: []string{"10.0.0.1"}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}}},
		},
	)
	d := &Reader{client: client, ctx: t.Context(), workloads: map[ownership.UID]answer[finalizerowner.Workload]{}, nodes: map[string]answer[explain.Node]{}, volumes: map[string]answer[volume]{}}
	for name, claim := range map[string]string{"bound": "data", "released": "", "free": ""} {
		for range 2 { // the second time without a request
			v, c, err := d.Volume(name)
			if err != nil || v.Name != name || (c != nil) != (claim != "") || c != nil && c.Name != claim {
				t.Errorf("%s: %v, %v, %v", name, v, c, err)
			}
		}
	}
	if _, _, err := d.Volume("nobody"); err == nil {
		t.Error("a volume that is not there is read")
	}
	deployment := &inventory.Object{Object: ownership.Object{UID: "d", Kind: ownership.Kind{Group: "apps", Kind: "Deployment"}, Namespace: "ops", Name: "operator"}}
	for range 2 {
		w, err := d.Workload(deployment)
		if err != nil || w.Replicas != 3 || w.Ready != 0 || w.ServiceAccount != "operator" || !w.UnreadySince.Equal(since.Time) || !slices.Equal(w.Images, []string{"acme/operator:v1"}) {
			t.Errorf("the workload is %+v, %v", w, err)
		}
		n, err := d.Node("n1")
		if err != nil || !n.Exists || n.Ready || !n.Since.Equal(since.Time) {
			t.Errorf("the node is %+v, %v", n, err)
		}
		if n, err := d.Node("n2"); err != nil || n.Exists {
			t.Errorf("a node that is gone is %+v, %v", n, err)
		}
		hooks, err := d.Webhooks()
		if err != nil || len(hooks) != 2 || !hooks[0].FailsClosed || hooks[0].Endpoints != 0 || hooks[1].Endpoints != 1 {
			t.Errorf("the webhooks are %+v, %v", hooks, err)
		}
	}
	lease, err := d.Lease(deployment) // it has the same name
	if err != nil || lease.Holder != "pod_1" || !lease.Renewed.Equal(since.Time) || lease.Duration != 3*time.Second {
		t.Errorf("the Lease is %+v, %v", lease, err)
	}
	asked := map[string]int{}
	for _, a := range client.Actions() {
		if a.GetVerb() != "get" && a.GetVerb() != "list" {
			t.Errorf("a request to %s %s", a.GetVerb(), a.GetResource().Resource)
		}
		asked[a.GetResource().Resource]++
	}
	if asked["deployments"] != 1 || asked["nodes"] != 2 || asked["validatingwebhookconfigurations"] != 1 {
		t.Errorf("the server was asked more than once: %v", asked)
	}
}

// TestManyWorkloadsAreListed: hundreds of workloads do not cause hundreds of requests.
func TestManyWorkloadsAreListed(t *testing.T) {
	client := fake.NewClientset()
	d := &Reader{client: client, ctx: t.Context(), workloads: map[ownership.UID]answer[finalizerowner.Workload]{}}
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
	for n := range many {
		name := fmt.Sprintf("d%d", n)
		o := &inventory.Object{Object: ownership.Object{UID: ownership.UID(name), Kind: ownership.Kind{Group: "apps", Kind: "Deployment"}, Namespace: "ops", Name: name}}
		if w, err := d.Workload(o); err != nil || w.Replicas != 1 || w.ServiceAccount != "default" {
			t.Fatalf("%s is %+v, %v", name, w, err)
		}
	}
	if got := len(client.Actions()); got > fewWorkloads+3 {
		t.Errorf("%d requests for %d workloads", got, many)
	}
}

// TestManyNodesAreListed: the nodes of a large namespace's pods do not cause a request each, and a removed node stays
// removed.
func TestManyNodesAreListed(t *testing.T) {
	client := fake.NewClientset()
	d := &Reader{client: client, ctx: t.Context(), nodes: map[string]answer[explain.Node]{}}
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
	for n := range many {
		if got, want := d.IsLost(fmt.Sprintf("n%d", n)), n == many-1; got != want {
			t.Errorf("node %d is lost: %v", n, got)
		}
	}
	if state, err := d.Node("gone"); err != nil || state.Exists {
		t.Errorf("a node that is gone is %+v, %v", state, err)
	}
	if got := len(client.Actions()); got > fewNodes+2 {
		t.Errorf("%d requests for %d nodes", got, many)
	}
}

// TestRolesOf: a service account has the rules of its bindings in the namespace and in the cluster.
func TestRolesOf(t *testing.T) {
	rule := func(resource string) []rbacv1.PolicyRule {
		return []rbacv1.PolicyRule{{Verbs: []string{"update"}, APIGroups: []string{"acme.io"}, Resources: []string{resource}}}
	}
	account := func(namespace, name string) []rbacv1.Subject {
		return []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: namespace, Name: name}}
	}
	group := func(name string) []rbacv1.Subject { return []rbacv1.Subject{{Kind: "Group", Name: name}} }
	r := &roles{
		clusterRoles: map[string][]rbacv1.PolicyRule{"everywhere": rule("a"), "shared": rule("b"), "all": rule("c")},
		roles:        map[types.NamespacedName][]rbacv1.PolicyRule{{Namespace: "shop", Name: "local"}: rule("d")},
		clusterBindings: []rbacv1.ClusterRoleBinding{
			{RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "everywhere"}, Subjects: account("ops", "sa")},
			{RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "all"}, Subjects: group("system:serviceaccounts:ops")},
		},
		bindings: []rbacv1.RoleBinding{
			{ObjectMeta: in("shop", "x"), RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "shared"}, Subjects: account("ops", "sa")},
			{ObjectMeta: in("shop", "y"), RoleRef: rbacv1.RoleRef{Kind: "Role", Name: "local"}, Subjects: account("ops", "sa")},
			{ObjectMeta: in("shop", "z"), RoleRef: rbacv1.RoleRef{Kind: "Role", Name: "local"}, Subjects: account("", "sa")},
		},
	}
	for _, test := range []struct {
		account   types.NamespacedName
		namespace string
		want      []string
	}{
		{types.NamespacedName{Namespace: "ops", Name: "sa"}, "shop", []string{"a", "b", "c", "d"}},
		{types.NamespacedName{Namespace: "ops", Name: "sa"}, "other", []string{"a", "c"}},
		{types.NamespacedName{Namespace: "ops", Name: "sa"}, "", []string{"a", "c"}},
		{types.NamespacedName{Namespace: "ops", Name: "another"}, "shop", []string{"c"}},
		{types.NamespacedName{Namespace: "shop", Name: "sa"}, "shop", []string{"d"}}, // of the binding's own namespace
		{types.NamespacedName{Namespace: "web", Name: "sa"}, "shop", nil},
	} {
		var got []string
		for _, rule := range r.of(test.account, test.namespace) {
			got = append(got, rule.Resources...)
		}
		slices.Sort(got)
		if !slices.Equal(got, test.want) {
			t.Errorf("%s in %q: %v, want %v", test.account, test.namespace, got, test.want)
		}
	}
}
