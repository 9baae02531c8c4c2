package e2e

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

// TestNamespaceGoesAndComesBack deletes a namespace with contents and creates it again.
// (NS-14, NS-15).
func TestNamespaceGoesAndComesBack(t *testing.T) {
	withKubectl(t, func(t *testing.T, k kubectl, namespace string) {
		owned(t, k, namespace)
		k.apply(t, namespace, configMap("one", "")+configMap("two", ""))
		k.run(t, "create", "-n", namespace, "secret", "generic", "key", "--from-literal=a=b")
		k.run(t, "create", "-n", namespace, "service", "clusterip", "web", "--tcp=80")
		k.run(t, "create", "-n", namespace, "role", "reader", "--verb=get", "--resource=pods")
		k.run(t, "delete", "namespace", namespace)
		k.run(t, "create", "namespace", namespace)
		k.eventuallyNames(t, namespace, "pods,replicasets,configmaps,secrets,services,roles")
		if phase := k.get(t, namespace, "namespace/"+namespace, "{.status.phase}"); phase != "Active" {
			t.Errorf("phase of the new namespace: %s", phase)
		}
	})
}

// A file with a namespace and its contents, the namespace first, can be deleted in one go, although everything has gone
// with the namespace before kubectl comes to the end of the file (R21). With pods, the rest goes after them.
func TestR21_FileWithItsNamespaceFirstIsDeleted(t *testing.T) {
	eachKubectl(t, func(t *testing.T, k kubectl, namespace string) {
		group := groupFor(k, "bundled")
		defineWidgets(t, k, group)
		for i, pods := range []string{"", pod("one", "") + pod("two", ""), ""} {
			name := fmt.Sprintf("%s-bundle-%d", namespace, i)
			file := "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: " + name + "\n" + pods
			for i := range 8 {
				file += configMap(fmt.Sprint("settings-", i), "")
			}
			file += "---\napiVersion: v1\nkind: ServiceAccount\nmetadata:\n  name: account\n"
			file += "---\napiVersion: " + group + "/v1\nkind: Widget\nmetadata:\n  name: custom\n" + configMap("last", "")
			for _, object := range []string{"Pod", "ConfigMap", "ServiceAccount", "Widget"} {
				file = strings.ReplaceAll(file, "kind: "+object+"\nmetadata:\n", "kind: "+object+"\nmetadata:\n  namespace: "+name+"\n")
			}
			for _, command := range []string{"create", "delete"} {
				if out, errs, err := k.try(t, file, command, "-f", "-"); err != nil {
					t.Fatalf("%s: %v\n%s%s", command, err, out, errs)
				}
			}
			if left := k.names(t, "", "namespaces", "--field-selector=metadata.name="+name); len(left) > 0 {
				t.Errorf("%v is left", left)
			}
		}
	})
}

// TestNamespaceWaitsForFinalizers: an object holds the deletion of its namespace. No
// object may be created meanwhile, and the conditions list the remaining ones
// (NS-12).
func TestNamespaceWaitsForFinalizers(t *testing.T) {
	withKubectl(t, func(t *testing.T, k kubectl, namespace string) {
		k.apply(t, namespace, pod("held", "", "example.com/hold")+configMap("free", ""))
		k.run(t, "delete", "namespace", namespace, "--wait=false")
		eventually.Agrees(t, func() string {
			message := k.get(t, namespace, "namespace/"+namespace, `{.status.conditions[?(@.type=="NamespaceFinalizersRemaining")].message}`)
			if !strings.Contains(message, "example.com/hold in 1 resource instances") {
				return "condition NamespaceFinalizersRemaining says: " + message
			}
			return ""
		})
		if phase := k.get(t, namespace, "namespace/"+namespace, "{.status.phase}"); phase != "Terminating" {
			t.Errorf("phase: %s", phase)
		}
		_, errs, err := k.try(t, configMap("late", ""), "create", "-n", namespace, "-f", "-")
		if err == nil || !strings.Contains(errs, "because it is being terminated") {
			t.Errorf("creating in a terminating namespace: %v %s", err, errs)
		}
		k.run(t, "patch", "-n", namespace, "pod", "held", "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
		eventually.Agrees(t, func() string {
			return strings.Join(k.names(t, namespace, "namespaces", "--field-selector=metadata.name="+namespace), " ")
		})
	})
}

// TestSystemNamespaces exist, and the first of them cannot be deleted.
func TestSystemNamespaces(t *testing.T) {
	withKubectl(t, func(t *testing.T, k kubectl, _ string) {
		for _, name := range []string{"default", "kube-system", "kube-public", "kube-node-lease"} {
			k.run(t, "get", "namespace", name)
		}
		if _, errs, err := k.try(t, "", "delete", "namespace", "default"); err == nil || !strings.Contains(errs, "forbidden") {
			t.Errorf("deleting default: %v %s", err, errs)
		}
	})
}

// namespaceClient is a client for measurements that are shorter than a run of
// kubectl.
func namespaceClient(t *testing.T) kubernetes.Interface {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", sharedPlane(t).kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// removed waits until a namespace is gone.
func removed(t *testing.T, client kubernetes.Interface, name string) {
	t.Helper()
	eventually.Agrees(t, func() string {
		_, err := client.CoreV1().Namespaces().Get(t.Context(), name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return ""
		}
		return fmt.Sprintf("namespace %s is left: %v", name, err)
	})
}

// NS-16, NS-17: all of 100 namespaces with contents are removed.
func TestHundredNamespacesGo(t *testing.T) {
	t.Parallel()
	const all = 100
	client := namespaceClient(t)
	var filling sync.WaitGroup
	for lane := range 4 {
		filling.Go(func() {
			for i := lane; i < all; i += 4 {
				name := fmt.Sprintf("hundred-%d", i)
				_, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
				for n := 0; err == nil && n < 10; n++ {
					o := metav1.ObjectMeta{Name: fmt.Sprintf("o-%d", n)}
					if _, err = client.CoreV1().ConfigMaps(name).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: o}, metav1.CreateOptions{}); err != nil {
						break
					}
					pod := &corev1.Pod{ObjectMeta: o, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "a"}}}}
					_, err = client.CoreV1().Pods(name).Create(t.Context(), pod, metav1.CreateOptions{})
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	filling.Wait()
	for i := range all {
		if err := client.CoreV1().Namespaces().Delete(t.Context(), fmt.Sprintf("hundred-%d", i), metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range all {
		removed(t, client, fmt.Sprintf("hundred-%d", i))
	}
}
