package stage

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	kubernetesfake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/coppice-dev/coppice/internal/demo"
)

// theatre is a server in memory on which stories are played.
type theatre struct {
	Config
	dynamic *dynamicfake.FakeDynamicClient
	out     *bytes.Buffer
}

func newTheatre(t *testing.T) theatre {
	t.Helper()
	kinds := map[schema.GroupVersionResource]string{{Version: "v1", Resource: "namespaces"}: "NamespaceList"}
	for resource, kind := range map[string]string{
		"deployments": "DeploymentList", "replicasets": "ReplicaSetList", "pods": "PodList", "configmaps": "ConfigMapList", "roles": "RoleList",
	} {
		for _, r := range shown() {
			if r.Resource == resource {
				kinds[r] = kind
			}
		}
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default", Namespace: "stage"}}
	dynamic, out := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds), &bytes.Buffer{}
	return theatre{
		Config: Config{
			Client: kubernetesfake.NewClientset(account), Dynamic: dynamic, Display: Plain{out}, Patience: time.Minute,
			Kubectl: func(context.Context, string, []string) (string, error) { return "done\n", nil },
		},
		dynamic: dynamic, out: out,
	}
}

// create makes a pod.
func (th theatre) create(ctx context.Context, name string) error {
	pod := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": name, "namespace": "stage", "uid": name},
	}}
	_, err := th.dynamic.Resource(schema.GroupVersionResource{Version: "v1", Resource: "pods"}).Namespace("stage").Create(ctx, pod, metav1.CreateOptions{})
	return err
}

func isThere(name string) demo.Expectation {
	return demo.Expectation{Says: name + " is there", Holds: func(v *demo.View) bool {
		_, there := v.Find("Pod", name)
		return there
	}}
}

func story(expect ...demo.Expectation) demo.Story {
	return demo.Story{Name: "s", Namespace: "stage", Steps: []demo.Step{{Tell: "It comes.", Kubectl: []string{"create", "a"}, Expect: expect}}}
}

// TestPlay: the command runs in the story's namespace, and what comes of it is told.
func TestPlay(t *testing.T) {
	th := newTheatre(t)
	th.Kubectl = func(ctx context.Context, namespace string, args []string) (string, error) {
		if namespace != "stage" || strings.Join(args, " ") != "create a" {
			t.Errorf("%s: %s", namespace, args)
		}
		return "pod/a created\n", errors.Join(th.create(ctx, "a"), th.create(ctx, "b"))
	}
	if err := Play(t.Context(), th.Config, story(isThere("a"), isThere("b"))); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"It comes.", "$ kubectl create a", "    + Pod/a", "    + Pod/b", "✓ a is there", "✓ b is there", "pod/a created"} {
		if strings.Count(th.out.String(), line+"\n") != 1 {
			t.Errorf("no line %q in\n%s", line, th.out)
		}
	}
}

// TestWhatDoesNotComeTrue is said, with the time that it was given.
func TestWhatDoesNotComeTrue(t *testing.T) {
	th := newTheatre(t)
	th.Patience = 50 * time.Millisecond
	th.Kubectl = func(ctx context.Context, _ string, _ []string) (string, error) { return "", th.create(ctx, "a") }
	err := Play(t.Context(), th.Config, story(isThere("a"), isThere("b")))
	if want := "story s, step 1: it was to be so that b is there, and was not within 50ms"; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// TestWatchesAlone do not do: what the server does not list has not come true.
func TestWatchesAlone(t *testing.T) {
	th := newTheatre(t)
	th.Patience = 50 * time.Millisecond
	th.dynamic.PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, &unstructured.UnstructuredList{Object: map[string]any{"apiVersion": "v1", "kind": "PodList"}}, nil
	})
	th.Kubectl = func(ctx context.Context, _ string, _ []string) (string, error) { return "", th.create(ctx, "a") }
	if err := Play(t.Context(), th.Config, story(isThere("a"))); err == nil || !strings.Contains(err.Error(), "a is there, and was not") {
		t.Errorf("%v\n%s", err, th.out)
	}
}

// TestFailures: whatever goes wrong is named.
func TestFailures(t *testing.T) {
	refused := errors.New("refused")
	for name, c := range map[string]struct {
		spoil func(*theatre)
		says  string
	}{
		"the command": {func(th *theatre) {
			th.Kubectl = func(context.Context, string, []string) (string, error) { return "", refused }
		}, "story s, step 1: kubectl create a: refused"},
		"a list": {func(th *theatre) {
			th.dynamic.PrependReactor("list", "roles", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, refused })
		}, "list roles: refused"},
		"a watch": {func(th *theatre) {
			th.dynamic.PrependWatchReactor("roles", clienttesting.DefaultWatchReactor(nil, refused))
		}, "watch roles: refused"},
		"the namespace": {func(th *theatre) {
			th.Client.(*kubernetesfake.Clientset).PrependReactor("create", "namespaces", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, refused })
		}, "story s: make its namespace: refused"},
	} {
		t.Run(name, func(t *testing.T) {
			th := newTheatre(t)
			c.spoil(&th)
			if err := Play(t.Context(), th.Config, story(isThere("a"))); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v, want %s", err, c.says)
			}
		})
	}
}

// TestAccountThatIsLate is waited for.
func TestAccountThatIsLate(t *testing.T) {
	th := newTheatre(t)
	clients := kubernetesfake.NewClientset()
	th.Client = clients
	asked := false
	clients.PrependReactor("get", "serviceaccounts", func(clienttesting.Action) (bool, runtime.Object, error) {
		asked = true
		go func() { // after the question whether it is there
			_, err := clients.CoreV1().ServiceAccounts("stage").Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{})
			if err != nil {
				t.Error(err)
			}
		}()
		return false, nil, nil
	})
	th.Kubectl = func(ctx context.Context, _ string, _ []string) (string, error) { return "", th.create(ctx, "a") }
	if err := Play(t.Context(), th.Config, story(isThere("a"))); err != nil || !asked {
		t.Errorf("asked %t, %v", asked, err)
	}
}

// TestStopped: Ctrl-C ends a story at once, and the command with it.
func TestStopped(t *testing.T) {
	th := newTheatre(t)
	ctx, stop := context.WithCancel(t.Context())
	th.Kubectl = func(ctx context.Context, _ string, _ []string) (string, error) {
		stop()
		<-ctx.Done()
		return "", ctx.Err()
	}
	if err := Play(ctx, th.Config, story(isThere("a"))); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
