package envtest

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

func configMap(name string, owners ...metav1.OwnerReference) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, OwnerReferences: owners}}
}

func ownerReference(owner *corev1.ConfigMap) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID}
}

// diagnosed returns the code of an answer that only a process with a garbage collector, or with a
// controller of namespaces, has.
func diagnosed(t *testing.T, config *rest.Config) int {
	t.Helper()
	clientset, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	code := 0
	clientset.RESTClient().Get().AbsPath("/status").Do(t.Context()).StatusCode(&code)
	return code
}

// collects checks that an owned object is deleted after its owner, and returns the owner.
func collects(t *testing.T, c client.Client) *corev1.ConfigMap {
	t.Helper()
	owner := configMap("owner")
	create(t, c, owner)
	owned := configMap("owned", ownerReference(owner))
	create(t, c, owned)
	if err := c.Delete(t.Context(), owner); err != nil {
		t.Fatal(err)
	}
	gone(t, c, owned)
	return owner
}

// A suite for an older minor of Kubernetes meets its version and its resources, and all else as in the last one.
func TestOldestMinor(t *testing.T) {
	config := start(t, from(oldestAssets))
	clientset, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	if version, err := clientset.Discovery().ServerVersion(); err != nil || version.Major+"."+version.Minor != oldest || !strings.HasPrefix(version.GitVersion, "v"+oldest+".") {
		t.Errorf("the version is %v, %v", version, err)
	}
	served, err := clientset.Discovery().ServerResourcesForGroupVersion("admissionregistration.k8s.io/v1")
	if err != nil {
		t.Fatal(err)
	}
	for _, resource := range served.APIResources {
		if strings.HasPrefix(resource.Name, "mutatingadmissionpolicies") {
			t.Errorf("%s is served; Kubernetes has it since 1.36", resource.Name)
		}
	}
	collects(t, newClient(t, config))
}

// As with kube-apiserver, no collector runs, and the admission plug-ins set the same fields of new
// objects: a node is not ready, volumes are protected, and a pod has no service account where that
// plug-in is disabled.
func TestAsKubeAPIServer(t *testing.T) {
	config := start(t, &envtest.Environment{})
	c := newClient(t, config)
	if code := diagnosed(t, config); code != http.StatusServiceUnavailable {
		t.Errorf("asked about its controllers, the server answers %d: some run", code)
	}
	owner := configMap("owner")
	create(t, c, owner)
	owned, namespace := configMap("owned", ownerReference(owner)), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "full"}}
	create(t, c, owned, namespace)
	inside := configMap("inside")
	inside.Namespace = namespace.Name
	create(t, c, inside)
	for _, deleted := range []client.Object{owner, namespace} {
		if err := c.Delete(t.Context(), deleted); err != nil {
			t.Fatal(err)
		}
	}
	for _, stays := range []client.Object{owned, namespace, inside} {
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(stays), stays); err != nil {
			t.Error(err)
		}
	}
	if namespace.DeletionTimestamp == nil || namespace.Status.Phase != corev1.NamespaceTerminating {
		t.Errorf("the deleted namespace is %s", namespace.Status.Phase)
	}

	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}}
	volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "volume"}, Spec: corev1.PersistentVolumeSpec{
		Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/volume"}},
	}}
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "claim"}, Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
	}}
	pod := podOf("pod")
	create(t, c, node, volume, claim, pod)
	notReady := corev1.Taint{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule}
	if !slices.Equal(node.Spec.Taints, []corev1.Taint{notReady}) {
		t.Errorf("the new node has the taints %v", node.Spec.Taints)
	}
	if !slices.Equal(volume.Finalizers, []string{"kubernetes.io/pv-protection"}) || !slices.Equal(claim.Finalizers, []string{"kubernetes.io/pvc-protection"}) {
		t.Errorf("volume and claim have the finalizers %v and %v", volume.Finalizers, claim.Finalizers)
	}
	if pod.Spec.ServiceAccountName != "" || len(pod.Spec.Volumes) > 0 {
		t.Errorf("the pod has the account %q and the volumes %v", pod.Spec.ServiceAccountName, pod.Spec.Volumes)
	}
}

func podOf(name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: name, Image: name}}}}
}

// Where a suite enables the plug-in ServiceAccount, a pod needs an account that exists, and gets a token.
func TestServiceAccounts(t *testing.T) {
	environment := &envtest.Environment{}
	environment.ControlPlane.GetAPIServer().Configure().Set("disable-admission-plugins", "NamespaceLifecycle")
	c := newClient(t, start(t, environment))
	pod := podOf("pod")
	pod.Spec.ServiceAccountName = "builder"
	if err := c.Create(t.Context(), pod.DeepCopy()); !apierrors.IsForbidden(err) {
		t.Errorf("without the account: %v", err)
	}
	create(t, c, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "builder"}}, pod)
	if len(pod.Spec.Volumes) != 1 || pod.Spec.Volumes[0].Projected == nil {
		t.Errorf("the pod has the volumes %v", pod.Spec.Volumes)
	}
}

// The variable takes precedence over the directory of the assets.
func TestControllersByVariable(t *testing.T) {
	t.Setenv("COPPICE_CONTROLLERS", "none")
	if code := diagnosed(t, start(t, collecting())); code != http.StatusServiceUnavailable {
		t.Errorf("with none, the server answers %d: some controllers run", code)
	}
	t.Setenv("COPPICE_CONTROLLERS", "gc")
	c := newClient(t, start(t, &envtest.Environment{}))
	orphan := configMap("owned-by-nobody", metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "owner", UID: "none"})
	create(t, c, orphan)
	gone(t, c, orphan)
}

// With coppice assets --collect, owned objects and namespaces are collected; no controller sets the
// status of workloads or creates service accounts.
func TestCollectAssetsCollectOnly(t *testing.T) {
	c := newClient(t, start(t, collecting()))

	owner := collects(t, c)

	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "full"}}
	inside := configMap("inside")
	inside.Namespace = namespace.Name
	create(t, c, namespace, inside)
	if err := c.Delete(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
	gone(t, c, namespace)

	web := deployment("web")
	create(t, c, web)
	web.Status.ObservedGeneration, web.Status.Replicas, web.Status.ReadyReplicas = 1, 1, 1
	if err := c.Status().Update(t.Context(), web); err != nil {
		t.Fatal(err)
	}
	// A collection later than the update shows that everything that runs has had its turn.
	second := configMap("second")
	create(t, c, second)
	orphan := configMap("owned-by-nobody", metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "owner", UID: owner.UID})
	create(t, c, orphan)
	gone(t, c, orphan)
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(web), web); err != nil || web.Status.ReadyReplicas != 1 {
		t.Errorf("the status of the deployment is %+v, %v", web.Status, err)
	}
	var accounts corev1.ServiceAccountList
	if err := c.List(t.Context(), &accounts, client.InNamespace("default")); err != nil || len(accounts.Items) != 0 {
		t.Errorf("%d service accounts, %v", len(accounts.Items), err)
	}
	service := &corev1.Service{}
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "kubernetes"}, service); err != nil || service.Spec.ClusterIP != "10.0.0.1" {
		t.Errorf("the service kubernetes has address %s, %v", service.Spec.ClusterIP, err)
	}
}

// kube-apiserver accepts references to owners that are not served, and so does its stand-in.
func TestOwnersAreNotChecked(t *testing.T) {
	c := newClient(t, start(t, &envtest.Environment{}))
	blocking := metav1.OwnerReference{APIVersion: "example.com/v1", Kind: "Unserved", Name: "none", UID: "1", BlockOwnerDeletion: new(true)}
	create(t, c, configMap("owned", blocking))
}

func TestAddedUsersAuthenticate(t *testing.T) {
	environment := &envtest.Environment{}
	admin := newClient(t, start(t, environment))
	user, err := environment.AddUser(envtest.User{Name: "jane", Groups: []string{"readers"}}, &rest.Config{})
	if err != nil {
		t.Fatal(err)
	}
	jane := newClient(t, user.Config())
	if err := jane.List(t.Context(), &corev1.ConfigMapList{}, client.InNamespace("default")); !apierrors.IsForbidden(err) {
		t.Errorf("a user without rights gets %v", err)
	}
	create(t, admin,
		&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "read"}, Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"list"}}}},
		&rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "read"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "read"},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "Group", Name: "readers"}},
		})
	eventually(t, "the user has no rights", func(ctx context.Context) (bool, error) {
		err := jane.List(ctx, &corev1.ConfigMapList{}, client.InNamespace("default"))
		return err == nil, err
	})
	kubectl, err := user.Kubectl()
	if err != nil {
		t.Fatal(err)
	}
	stdout, stderr, err := kubectl.Run("get", "configmaps", "-n", "default", "-o", "name")
	if err != nil {
		said := new(strings.Builder)
		_, _ = fmt.Fprint(said, stdout, stderr)
		t.Errorf("kubectl: %v: %s", err, said)
	}
}

func definition(plural, kind string) *apiextensionsv1.CustomResourceDefinition {
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: plural + ".example.com"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "example.com", Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: plural, Kind: kind},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: new(true)}},
			}},
		},
	}
}

func custom(kind, name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetAPIVersion("example.com/v1")
	u.SetKind(kind)
	u.SetNamespace("default")
	u.SetName(name)
	return u
}

// The first object of a definition can be created at once; upstream's server makes it wait for two
// seconds.
func TestFirstObjectOfADefinitionComesAtOnce(t *testing.T) {
	environment := collecting()
	environment.CRDs = []*apiextensionsv1.CustomResourceDefinition{definition("saws", "Saw")}
	config := start(t, environment)
	create(t, newClient(t, config), custom("Saw", "installed-with-the-environment"))

	began := time.Now()
	if _, err := envtest.InstallCRDs(config, envtest.CRDInstallOptions{CRDs: []*apiextensionsv1.CustomResourceDefinition{definition("axes", "Axe")}, PollInterval: 5 * time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	installed := time.Now()
	axe := custom("Axe", "first")
	c := newClient(t, config)
	create(t, c, axe)
	t.Logf("installed in %s, the first object created %s later", installed.Sub(began), time.Since(installed))

	handle := configMap("handle", metav1.OwnerReference{APIVersion: axe.GetAPIVersion(), Kind: axe.GetKind(), Name: axe.GetName(), UID: axe.GetUID()})
	create(t, c, handle)
	if err := c.Delete(t.Context(), axe); err != nil {
		t.Fatal(err)
	}
	gone(t, c, handle)
}

// A suite with a client of etcd reads the server's writes, and the server reads the suite's.
func TestSuiteReadsAndWritesEtcd(t *testing.T) {
	environment := &envtest.Environment{}
	c := newClient(t, start(t, environment))
	create(t, c, configMap("kept"))
	etcd, err := clientv3.New(clientv3.Config{Endpoints: []string{environment.ControlPlane.Etcd.URL.String()}, DialTimeout: patience})
	if err != nil {
		t.Fatal(err)
	}
	defer etcd.Close()
	const key = "/registry/configmaps/default/kept"
	found, err := etcd.Get(t.Context(), key)
	if err != nil || len(found.Kvs) != 1 {
		t.Fatalf("%s: %v, %v", key, found, err)
	}
	if _, err := etcd.Delete(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	gone(t, c, configMap("kept"))
}

// Several control planes run side by side, each for itself.
func TestControlPlanesSideBySide(t *testing.T) {
	var took []time.Duration
	for range 4 {
		began := time.Now()
		first := newClient(t, start(t, &envtest.Environment{}))
		took = append(took, time.Since(began))
		create(t, first, configMap("own"))
	}
	slices.Sort(took)
	t.Logf("starts took from %s to %s", took[0], took[len(took)-1])
	t.Run("at the same time", func(t *testing.T) {
		for i := range 3 {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				create(t, newClient(t, start(t, &envtest.Environment{})), configMap("own"))
			})
		}
	})
}

// TestSuiteResetsItsControlPlane goes back to what a suite has kept, where no controllers run: a terminating namespace
// and an object with a finalizer go, too.
func TestSuiteResetsItsControlPlane(t *testing.T) {
	config := start(t, &envtest.Environment{})
	c := newClient(t, config)
	kept := configMap("kept")
	create(t, c, kept)
	clientset, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	ask := func(method string) {
		t.Helper()
		if err := clientset.RESTClient().Verb(method).AbsPath("/coppice/v1/reset").Do(t.Context()).Error(); err != nil {
			t.Fatal(err)
		}
	}
	ask(http.MethodPut)
	for range 2 {
		namespace, held := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "full"}}, configMap("held")
		held.Finalizers = []string{"example.com/hold"}
		create(t, c, namespace, held)
		for _, deleted := range []client.Object{namespace, held, kept} {
			if err := c.Delete(t.Context(), deleted); err != nil {
				t.Fatal(err)
			}
		}
		ask(http.MethodPost)
		for _, o := range []client.Object{namespace, held} {
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(o), o); !apierrors.IsNotFound(err) {
				t.Errorf("%s: %v", o.GetName(), err)
			}
		}
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(kept), kept); err != nil {
			t.Error(err)
		}
	}
}
