package e2eframework_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coppice-dev/coppice/coppicetest"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/e2e-framework/klient/k8s"
	"sigs.k8s.io/e2e-framework/klient/wait"
	"sigs.k8s.io/e2e-framework/klient/wait/conditions"
	"sigs.k8s.io/e2e-framework/pkg/env"
	"sigs.k8s.io/e2e-framework/pkg/envconf"
	"sigs.k8s.io/e2e-framework/pkg/envfuncs"
	"sigs.k8s.io/e2e-framework/pkg/features"

	"github.com/coppice-dev/coppice/coppicetest/e2eframework"
)

const (
	clusterName = "shop"
	namespace   = "storefront"
)

// often has the framework look more often than every five seconds.
var often = wait.WithInterval(50 * time.Millisecond)

// environment is the environment of the suite, as users of the framework write it.
var environment = env.New()

func TestMain(m *testing.M) {
	os.Exit(testMain(m))
}

func testMain(m *testing.M) int {
	dir, err := os.MkdirTemp("", "coppicetest-e2eframework-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	if os.Getenv("COPPICE_BIN") == "" {
		binary := filepath.Join(dir, "coppice")
		build := exec.Command("go", "build", "-o", binary, "./cmd/coppice")
		build.Dir = "../.."
		if out, err := build.CombinedOutput(); err != nil {
			panic(fmt.Sprintf("build coppice: %v\n%s", err, out))
		}
		os.Setenv("COPPICE_BIN", binary)
	}
	environment.Setup(
		envfuncs.CreateCluster(e2eframework.NewProvider(), clusterName),
		envfuncs.CreateNamespace(namespace),
	)
	environment.Finish(
		envfuncs.DeleteNamespace(namespace),
		envfuncs.ExportClusterLogs(clusterName, filepath.Join(dir, "logs")),
		envfuncs.DestroyCluster(clusterName),
	)
	code := environment.Run(m)
	if deletions, err := os.ReadFile(filepath.Join(dir, "logs", "deletions.txt")); err != nil || !strings.Contains(string(deletions), "ReplicaSet.apps storefront/web-") {
		fmt.Fprintf(os.Stderr, "the logs have no ReplicaSet of the Deployment: %v\n%s", err, deletions)
		return 1
	}
	return code
}

// TestDeploymentBecomesAvailableAndEnds has a Deployment become available, and its pods end before it does.
func TestDeploymentBecomesAvailableAndEnds(t *testing.T) {
	deployment := newDeployment("web", 2)
	feature := features.New("a Deployment that is deleted in the foreground").
		Setup(func(ctx context.Context, t *testing.T, c *envconf.Config) context.Context {
			if err := c.Client().Resources().Create(ctx, deployment); err != nil {
				t.Fatal(err)
			}
			return ctx
		}).
		Assess("becomes available", func(ctx context.Context, t *testing.T, c *envconf.Config) context.Context {
			if err := wait.For(conditions.New(c.Client().Resources()).DeploymentAvailable("web", namespace), wait.WithContext(ctx), often); err != nil {
				t.Fatal(err)
			}
			if pods := list(ctx, t, c, &corev1.PodList{}); len(pods.Items) != 2 {
				t.Errorf("there are %d pods, want 2", len(pods.Items))
			}
			if plane, ok := e2eframework.Plane(ctx, clusterName); ok {
				plane.NoLeaks(t) // a Deployment that runs has left nothing behind
			}
			return ctx
		}).
		Assess("goes after its pods", func(ctx context.Context, t *testing.T, c *envconf.Config) context.Context {
			plane, ok := e2eframework.Plane(ctx, clusterName)
			if !ok {
				t.Fatal("there is no control plane in the context")
			}
			plane.See(t)
			foreground := func(o *metav1.DeleteOptions) { o.PropagationPolicy = new(metav1.DeletePropagationForeground) }
			if err := c.Client().Resources().Delete(ctx, deployment, foreground); err != nil {
				t.Fatal(err)
			}
			if err := wait.For(conditions.New(c.Client().Resources()).ResourceDeleted(deployment), wait.WithContext(ctx), often); err != nil {
				t.Fatal(err)
			}
			if sets := list(ctx, t, c, &appsv1.ReplicaSetList{}); len(sets.Items) != 0 {
				t.Errorf("there are %d ReplicaSets after the Deployment", len(sets.Items))
			}
			if pods := list(ctx, t, c, &corev1.PodList{}); len(pods.Items) != 0 {
				t.Errorf("there are %d pods after the Deployment", len(pods.Items))
			}
			plane.Gone(t, deployment)
			plane.NoLeaks(t)
			return ctx
		}).Feature()
	environment.Test(t, feature)
}

// TestLifeOfACluster goes through the life of a cluster beside the suite's cluster.
func TestLifeOfACluster(t *testing.T) {
	cluster := e2eframework.NewCluster("second")
	if path, err := cluster.GenerateKubeconfig(); err == nil || cluster.GetKubeconfig() != "" || cluster.GetKubectlContext() != "" {
		t.Errorf("before it is created, its kubeconfig is %q", path)
	}
	cluster.WithOpts(e2eframework.WithOptions(coppicetest.WithAudit()))
	path, err := cluster.Create(t.Context(), "--log-level=debug")
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Destroy(context.WithoutCancel(t.Context()))
	if again, err := cluster.Create(t.Context()); err != nil || again != path {
		t.Errorf("a second Create returns %q, %v, want %q", again, err, path)
	}
	if generated, err := cluster.GenerateKubeconfig(); err != nil || generated != path || cluster.GetKubeconfig() != path {
		t.Errorf("the kubeconfigs are %q and %q, %v, want %q", generated, cluster.GetKubeconfig(), err, path)
	}
	if got := cluster.GetKubectlContext(); got != "coppice" {
		t.Errorf("the context is %q", got)
	}
	client := envconf.NewWithKubeConfig(path).Client()
	if err := cluster.WaitForControlPlane(t.Context(), client); err != nil {
		t.Error(err)
	}
	if got := cluster.KubernetesRestConfig().Host; got != client.RESTConfig().Host {
		t.Errorf("the config is for %s, want %s", got, client.RESTConfig().Host)
	}
	if err := client.Resources().Create(t.Context(), newDeployment("idle", 1)); err == nil {
		t.Errorf("namespace %s of the suite's cluster is there", namespace)
	}
	logs := filepath.Join(t.TempDir(), "new", "logs")
	if err := cluster.ExportLogs(t.Context(), logs); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"coppice.log": "level=DEBUG", "audit.log": namespace, "deletions.txt": ""} {
		if text, err := os.ReadFile(filepath.Join(logs, name)); err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s has no %q: %v\n%.500s", name, want, err, text)
		}
	}
	for range 2 {
		if err := cluster.Destroy(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(filepath.Dir(path)); !os.IsNotExist(err) {
		t.Errorf("after it is destroyed, %s is there: %v", filepath.Dir(path), err)
	}
	if err := cluster.WaitForControlPlane(t.Context(), client); err == nil {
		t.Error("a cluster that is destroyed is ready")
	}
}

// TestRefusedSetUpLeavesNoProcess: what cannot be done is an error, and no process stays.
func TestRefusedSetUpLeavesNoProcess(t *testing.T) {
	for name, test := range map[string]struct {
		create func(*e2eframework.Cluster) (string, error)
		want   string
	}{
		"version": {func(c *e2eframework.Cluster) (string, error) { return c.WithVersion("v1.3").Create(t.Context()) }, "not v1.3"},
		"binary":  {func(c *e2eframework.Cluster) (string, error) { return c.WithPath("/nowhere").Create(t.Context()) }, "/nowhere"},
		"flag":    {func(c *e2eframework.Cluster) (string, error) { return c.Create(t.Context(), "--bogus") }, "--bogus"},
		"file":    {func(c *e2eframework.Cluster) (string, error) { return c.CreateWithConfig(t.Context(), "kind.yaml") }, "kind.yaml"},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := e2eframework.NewCluster("refused")
			path, err := test.create(cluster)
			if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), `"refused"`) {
				t.Errorf("got %q, %v, want an error with %q", path, err, test.want)
			}
			if got := cluster.GetKubeconfig(); got != "" {
				t.Errorf("its kubeconfig is %s", got)
			}
		})
	}
}

// list fills a list with the objects of the namespace.
func list[L k8s.ObjectList](ctx context.Context, t *testing.T, c *envconf.Config, into L) L {
	t.Helper()
	if err := c.Client().Resources(namespace).List(ctx, into); err != nil {
		t.Fatal(err)
	}
	return into
}

func newDeployment(name string, replicas int32) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "registry.example/web"}}},
			},
		},
	}
}
