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

	"github.com/coppice-dev/coppice/internal/cli/demo"
)

// fakeServer is an in-memory server on which stories are played.
type fakeServer struct {
	Config
	dynamic *dynamicfake.FakeDynamicClient
	out     *bytes.Buffer
}

func newFakeServer(t *testing.T) fakeServer {
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
	return fakeServer{
		Config: Config{
			Client: kubernetesfake.NewClientset(account), Dynamic: dynamic, Display: Plain{out}, Timeout: time.Minute,
			Kubectl: func(context.Context, string, []string) (string, error) { return "done\n", nil },
		},
		dynamic: dynamic, out: out,
	}
}

func (server fakeServer) create(ctx context.Context, name string) error {
	pod := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": name, "namespace": "stage", "uid": name},
	}}
	_, err := server.dynamic.Resource(schema.GroupVersionResource{Version: "v1", Resource: "pods"}).Namespace("stage").Create(ctx, pod, metav1.CreateOptions{})
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

// TestCommandRunsInTheNamespaceOfTheStory: the command runs in the story's namespace, and its effects are shown.
func TestCommandRunsInTheNamespaceOfTheStory(t *testing.T) {
	server := newFakeServer(t)
	server.Kubectl = func(ctx context.Context, namespace string, args []string) (string, error) {
		if namespace != "stage" || strings.Join(args, " ") != "create a" {
			t.Errorf("%s: %s", namespace, args)
		}
		return "pod/a created\n", errors.Join(server.create(ctx, "a"), server.create(ctx, "b"))
	}
	if err := Play(t.Context(), server.Config, story(isThere("a"), isThere("b"))); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"It comes.", "$ kubectl create a", "    + Pod/a", "    + Pod/b", "✓ a is there", "✓ b is there", "pod/a created"} {
		if strings.Count(server.out.String(), line+"\n") != 1 {
			t.Errorf("no line %q in\n%s", line, server.out)
		}
	}
}

// TestWhatDoesNotComeTrue: the error names the expectation that did not become true, and the timeout.
func TestWhatDoesNotComeTrue(t *testing.T) {
	server := newFakeServer(t)
	server.Timeout = 50 * time.Millisecond
	server.Kubectl = func(ctx context.Context, _ string, _ []string) (string, error) { return "", server.create(ctx, "a") }
	err := Play(t.Context(), server.Config, story(isThere("a"), isThere("b")))
	if want := "story s, step 1: after 50ms it is not true that b is there"; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// TestWatchesAlone: watch events alone are not sufficient; the last expectation must hold in the
// server's lists, too.
func TestWatchesAlone(t *testing.T) {
	server := newFakeServer(t)
	server.Timeout = 50 * time.Millisecond
	server.dynamic.PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, &unstructured.UnstructuredList{Object: map[string]any{"apiVersion": "v1", "kind": "PodList"}}, nil
	})
	server.Kubectl = func(ctx context.Context, _ string, _ []string) (string, error) { return "", server.create(ctx, "a") }
	if err := Play(t.Context(), server.Config, story(isThere("a"))); err == nil || !strings.Contains(err.Error(), "it is not true that a is there") {
		t.Errorf("%v\n%s", err, server.out)
	}
}

// TestErrorNamesTheFailedOperation: the error names the failed operation.
func TestErrorNamesTheFailedOperation(t *testing.T) {
	refused := errors.New("refused")
	for name, c := range map[string]struct {
		spoil func(*fakeServer)
		says  string
	}{
		"the command": {func(server *fakeServer) {
			server.Kubectl = func(context.Context, string, []string) (string, error) { return "", refused }
		}, "story s, step 1: kubectl create a: refused"},
		"a list": {func(server *fakeServer) {
			server.dynamic.PrependReactor("list", "roles", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, refused })
		}, "list roles: refused"},
		"a watch": {func(server *fakeServer) {
			server.dynamic.PrependWatchReactor("roles", clienttesting.DefaultWatchReactor(nil, refused))
		}, "watch roles: refused"},
		"the namespace": {func(server *fakeServer) {
			server.Client.(*kubernetesfake.Clientset).PrependReactor("create", "namespaces", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, refused })
		}, "story s: create its namespace: refused"},
	} {
		t.Run(name, func(t *testing.T) {
			server := newFakeServer(t)
			c.spoil(&server)
			if err := Play(t.Context(), server.Config, story(isThere("a"))); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v, want %s", err, c.says)
			}
		})
	}
}

// TestAccountThatIsLate: a story waits for a service account that appears late.
func TestAccountThatIsLate(t *testing.T) {
	server := newFakeServer(t)
	clients := kubernetesfake.NewClientset()
	server.Client = clients
	asked := false
	clients.PrependReactor("get", "serviceaccounts", func(clienttesting.Action) (bool, runtime.Object, error) {
		asked = true
		go func() { // after the first list
			_, err := clients.CoreV1().ServiceAccounts("stage").Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{})
			if err != nil {
				t.Error(err)
			}
		}()
		return false, nil, nil
	})
	server.Kubectl = func(ctx context.Context, _ string, _ []string) (string, error) { return "", server.create(ctx, "a") }
	if err := Play(t.Context(), server.Config, story(isThere("a"))); err != nil || !asked {
		t.Errorf("asked %t, %v", asked, err)
	}
}

// TestInterruptEndsStoryAndCommand: Ctrl-C ends a story and its command at once.
func TestInterruptEndsStoryAndCommand(t *testing.T) {
	server := newFakeServer(t)
	ctx, stop := context.WithCancel(t.Context())
	server.Kubectl = func(ctx context.Context, _ string, _ []string) (string, error) {
		stop()
		<-ctx.Done()
		return "", ctx.Err()
	}
	if err := Play(ctx, server.Config, story(isThere("a"))); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
