package apiserver_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/internal/apiserver/auth/bootstrappolicy"
)

// A flood of requests delays only the user that sends it: while a thousand expensive lists are
// pending, the requests of another user and of an administrator succeed, and afterwards the
// server is ready.
func TestFlood(t *testing.T) {
	if testing.Short() {
		t.Skip("a flood takes its time")
	}
	const flood, objects = 1000, 60
	s := startServer(t, nil)
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
		stop              = make(chan struct{}) // closed when the flood is to end
		refusing          = make(chan struct{}) // closed when some of it has been refused
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
					return // a client that comes back later
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
	// These clients do not repeat requests that are refused.
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

// Lists of the controllers are never refused, whatever else goes on.
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
