package apiserver_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"

	"github.com/coppice-dev/coppice/internal/apiserver"
	"github.com/coppice-dev/coppice/internal/apiserver/auth/bootstrappolicy"
	"github.com/coppice-dev/coppice/internal/apiserver/recyclebin"
	"github.com/coppice-dev/coppice/internal/testing/eventually"
	toolsapi "github.com/coppice-dev/coppice/internal/tools/web/api"
)

// A flood of requests delays only the user that sends it: while a thousand expensive lists are
// pending, the requests of another user and of an administrator succeed, and afterwards the
// server is ready.
func TestFloodDelaysOnlyItsSender(t *testing.T) {
	if testing.Short() {
		t.Skip("a flood takes its time")
	}
	const flood, objects = 1000, 60
	// The server handles few requests at a time, so that none waits long on a slow machine: a request is refused after
	// 15 s in a queue.
	s := startServer(t, func(c *apiserver.Config) { c.MaxRequests, c.MaxWrites = 40, 20 })
	namespace := s.namespace(t)
	s.bind(t, namespace, bootstrappolicy.Edit, "flooder")
	s.bind(t, namespace, bootstrappolicy.Edit, "ann")
	c := s.configMaps(t, namespace)
	c.content = map[string]any{"data": map[string]any{"key": strings.Repeat("x", 4000)}}
	for i := range objects {
		c.create(fmt.Sprintf("cm-%d", i))
	}
	flooder := s.acting("flooder")
	var (
		running           sync.WaitGroup
		answered, refused atomic.Int64
		stop              = make(chan struct{}) // closed to end the flood
		refusing          = make(chan struct{}) // closed when a request of it has been refused
		first             sync.Once
	)
	for range flood {
		running.Go(func() {
			for {
				switch code, answer := forge(t, flooder, forged{method: http.MethodGet, path: c.path + "?resourceVersion=0"}); code {
				case http.StatusOK:
					answered.Add(1)
				case http.StatusTooManyRequests:
					refused.Add(1)
					first.Do(func() { close(refusing) })
					return // such a client would retry later
				default:
					t.Errorf("a request of the flood: %d %.200s", code, answer)
				}
				select {
				case <-stop:
					return
				default:
				}
			}
		})
	}
	<-refusing
	// These clients do not repeat refused requests.
	ann, err := newClient(s.acting("ann"))
	if err != nil {
		t.Fatal(err)
	}
	admin := s.client(t)
	if _, err := ann.send(http.MethodGet, c.at("cm-1"), "", nil); err != nil {
		t.Errorf("another user: %v", err)
	}
	if _, err := admin.send(http.MethodGet, "/api/v1/namespaces/"+namespace, "", nil); err != nil {
		t.Errorf("an administrator: %v", err)
	}
	close(stop)
	running.Wait()
	t.Logf("%d requests of the flood were answered, %d told to come back", answered.Load(), refused.Load())
	if answered.Load() == 0 {
		t.Error("none of the flood was answered")
	}
	if code := s.status(t, s.outside(t, nil), "/readyz"); code != http.StatusOK {
		t.Errorf("after the flood: readyz %d", code)
	}
}

// Every user has a flow schema, and the controllers have one that users cannot exhaust.
func TestFlowSchemas(t *testing.T) {
	s := sharedServer(t)
	for user, want := range map[string]string{"ann": "global-default", bootstrappolicy.Collector: "coppice-controllers", bootstrappolicy.ProtectionController: "coppice-controllers", bootstrappolicy.ResourceQuotaController: "coppice-controllers", bootstrappolicy.LeaderElection: "coppice-leader-election", "system:serviceaccount:a:b": "service-accounts"} {
		groups := []string{}
		if strings.HasPrefix(user, "system:serviceaccount:") {
			groups = append(groups, "system:serviceaccounts")
		}
		config := s.acting(user, groups...)
		config.WrapTransport = func(next http.RoundTripper) http.RoundTripper {
			return roundTrip(func(r *http.Request) (*http.Response, error) {
				response, err := next.RoundTrip(r)
				if err == nil {
					uid := response.Header.Get("X-Kubernetes-PF-FlowSchema-UID")
					schema, err := typed(t, s.config).FlowcontrolV1().FlowSchemas().Get(t.Context(), want, metav1.GetOptions{})
					if err != nil || string(schema.UID) != uid {
						t.Errorf("%s: schema %s, want %s: %v", user, uid, want, err)
					}
				}
				return response, err
			})
		}
		if _, err := typed(t, config).Discovery().ServerVersion(); err != nil {
			t.Errorf("%s: %v", user, err)
		}
	}
}

// Requests to the tools and to the recycle bin have a seat for as long as they last, in the priority level of their
// user: unlike long-running requests, they are not exempt.
func TestToolsHaveSeats(t *testing.T) {
	s := sharedServer(t)
	want, err := typed(t, s.config).FlowcontrolV1().FlowSchemas().Get(t.Context(), "global-default", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	client, err := rest.HTTPClientFor(s.acting("ann"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range append(toolsapi.Paths(), toolsapi.Stories+"/a", toolsapi.Stories+"/a/watch", recyclebin.Path) {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.config.Host+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		response, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if uid := response.Header.Get("X-Kubernetes-PF-FlowSchema-UID"); uid != string(want.UID) {
			t.Errorf("%s: schema %q, want %s", path, uid, want.UID)
		}
	}
}

// Lists of the controllers are never refused, whatever the load.
func TestControllersReadAtOnce(t *testing.T) {
	s := sharedServer(t)
	want, err := typed(t, s.config).FlowcontrolV1().FlowSchemas().Get(t.Context(), "coppice-controllers-reading", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if level := want.Spec.PriorityLevelConfiguration.Name; level != "exempt" {
		t.Errorf("their level is %s", level)
	}
	config := s.acting(bootstrappolicy.WorkloadControllers)
	config.WrapTransport = func(next http.RoundTripper) http.RoundTripper {
		return roundTrip(func(r *http.Request) (*http.Response, error) {
			response, err := next.RoundTrip(r)
			if err == nil && response.Header.Get("X-Kubernetes-PF-FlowSchema-UID") != string(want.UID) {
				t.Errorf("%s has another flow schema", r.URL)
			}
			return response, err
		})
	}
	if _, err := typed(t, config).CoreV1().Pods("").List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Error(err)
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Deleted default flow schemas and priority levels are created again while the server runs; changes of an
// administrator stay if an annotation says so.
func TestDefaultFlowSchemasAreKept(t *testing.T) {
	s := startServer(t, nil)
	client := typed(t, s.config).FlowcontrolV1()
	// Priority and fairness itself writes the status of a flow schema when it sees it first.
	if err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		changed, err := client.FlowSchemas().Get(t.Context(), "global-default", metav1.GetOptions{})
		if err != nil {
			return err
		}
		changed.Annotations[flowcontrolv1.AutoUpdateAnnotationKey], changed.Spec.MatchingPrecedence = "false", 9901
		_, err = client.FlowSchemas().Update(t.Context(), changed, metav1.UpdateOptions{})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	uid := map[string]types.UID{}
	for _, name := range []string{"catch-all", "service-accounts"} {
		schema, err := client.FlowSchemas().Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		uid[name] = schema.UID
		if err := client.FlowSchemas().Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for name, former := range uid {
		eventually.Succeeds(t, func() error {
			schema, err := client.FlowSchemas().Get(t.Context(), name, metav1.GetOptions{})
			if err == nil && schema.UID == former {
				err = fmt.Errorf("%s is the one that was deleted", name)
			}
			return err
		})
	}
	levels, err := client.PriorityLevelConfigurations().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range levels.Items { // the default ones are what the server makes of them
		if l := &levels.Items[i]; l.Generation != 1 {
			t.Errorf("priority level %s was changed: generation %d", l.Name, l.Generation)
		}
	}
	if kept, err := client.FlowSchemas().Get(t.Context(), "global-default", metav1.GetOptions{}); err != nil || kept.Spec.MatchingPrecedence != 9901 {
		t.Errorf("what an administrator has changed: %v %v", kept, err)
	}
}

// The system's priority classes cannot be deleted, neither by name nor as a collection.
func TestSystemPriorityClassesStay(t *testing.T) {
	s := startServer(t, nil)
	classes := typed(t, s.config).SchedulingV1().PriorityClasses()
	if _, err := classes.Create(t.Context(), &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "own"}, Value: 1}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	err := classes.Delete(t.Context(), "system-node-critical", metav1.DeleteOptions{})
	if want := `priorityclasses.scheduling.k8s.io "system-node-critical" is forbidden: this is a system priority class and cannot be deleted`; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	if err := classes.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("all: %v", err)
	}
	left, err := classes.List(t.Context(), metav1.ListOptions{})
	if err != nil || len(left.Items) != 2 {
		t.Errorf("%v %v", left, err)
	}
}
