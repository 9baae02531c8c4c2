package e2e

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sync/errgroup"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

// backlogSize is the number of objects of one namespace that are made to wait for the collector:
// more than the 1000 from which on the server refuses references, and enough more that it does so
// for minutes, while deletions that get no answer time out and are put off.
const backlogSize = 1300

const (
	dependentPrefix = "dependent-"
	// bystander has no owner. The webhook refuses its deletion.
	bystander = "bystander"
)

// TestBacklogOfANamespace makes more objects of a namespace wait for the collector than the
// server allows. Until fewer wait, references to missing owners are refused in that namespace,
// with the reason; everything else works.
func TestBacklogOfANamespace(t *testing.T) {
	t.Parallel()
	s := pileUp(t)
	for name, send := range map[string]func() (string, string){
		"a new object": func() (string, string) { return s.create(s.busy, "dangling", "nobody") },
		"an update": func() (string, string) {
			return s.p.curl(t, "-X", "PATCH", "-H", "Content-Type: application/merge-patch+json", s.url(s.busy)+"/"+bystander,
				"-d", `{"metadata":{"ownerReferences":[`+reference("nobody", "nobody")+`]}}`)
		},
	} {
		code, body := send()
		var status metav1.Status
		if err := json.Unmarshal([]byte(body), &status); err != nil || code != "429" || status.Reason != metav1.StatusReasonTooManyRequests {
			t.Fatalf("%s: %s %s", name, code, body)
		}
		want := fmt.Sprintf(`objects in namespace %q are waiting for the garbage collector, and the owner ConfigMap nobody (uid nobody) of this object does not exist: try again later`, s.busy)
		count, rest, _ := strings.Cut(status.Message, " ")
		if n, err := strconv.Atoi(count); err != nil || n <= 1000 || n > backlogSize || rest != want {
			t.Errorf("%s is refused with %q, want more than 1000 %s", name, status.Message, want)
		}
		if status.Details == nil || status.Details.RetryAfterSeconds != 1 {
			t.Errorf("%s: to come again after %+v", name, status.Details)
		}
	}
	for name, send := range map[string]func() (string, string){
		"an object without an owner":      func() (string, string) { return s.create(s.busy, "free", "") },
		"an owner that is there":          func() (string, string) { return s.create(s.busy, "owned", bystander) },
		"an absent owner, somewhere else": func() (string, string) { return s.create(s.calm, "dangling", "nobody") },
		"a change that is not about owners": func() (string, string) {
			return s.p.curl(t, "-X", "PATCH", "-H", "Content-Type: application/merge-patch+json", s.url(s.busy)+"/"+bystander, "-d", `{"data":{"a":"b"}}`)
		},
	} {
		if code, body := send(); code != "201" && code != "200" {
			t.Errorf("%s: %s %s", name, code, body)
		}
	}

	s.release()
	// Refusals say when to retry, and they end.
	eventually.Agrees(t, func() string {
		if code, body := s.create(s.busy, "dangling", "nobody"); code != "201" {
			return code + " " + body
		}
		return ""
	})
	s.k.eventuallyNames(t, s.busy, "configmaps", "configmap/bystander", "configmap/free", "configmap/owned")
	s.k.eventuallyNames(t, s.calm, "configmaps")
}

// TestBacklogWithoutTheAdmission does the same with the check of owner references disabled.
func TestBacklogWithoutTheAdmission(t *testing.T) {
	t.Parallel()
	s := pileUp(t, "--disable-admission-plugins=OwnerReferencesPermissionEnforcement")
	if code, body := s.create(s.busy, "dangling", "nobody"); code != "201" {
		t.Errorf("%s %s", code, body)
	}
	s.release()
	s.k.eventuallyNames(t, s.busy, "configmaps", "configmap/bystander")
}

// pile is a control plane whose collector is stuck in one namespace.
type pile struct {
	t          *testing.T
	p          *plane
	k          kubectl
	busy, calm string
	// release lets the collector continue.
	release func()
}

// pileUp starts such a control plane, and makes the dependents of one owner wait there.
func pileUp(t *testing.T, args ...string) *pile {
	t.Helper()
	p := startPlane(t, append([]string{"--ephemeral", "--secure-port=0", byHand, noNodes}, args...)...)
	s := &pile{t: t, p: p, k: ourKubectl(p)}
	s.busy, s.calm = newNamespace(t, s.k), newNamespace(t, s.k)
	config, err := clientcmd.BuildConfigFromFlags("", p.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	s.release = holdDeletions(t, client, s.busy)
	s.k.apply(t, s.busy, configMap("owner", ""))
	uid := uidOf(t, s.k, s.busy, "configmap/owner")
	var group errgroup.Group
	group.SetLimit(8)
	for i := range backlogSize {
		group.Go(func() error {
			o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(dependentPrefix, i), OwnerReferences: []metav1.OwnerReference{
				{APIVersion: "v1", Kind: "ConfigMap", Name: "owner", UID: types.UID(uid)},
			}}}
			_, err := client.CoreV1().ConfigMaps(s.busy).Create(t.Context(), o, metav1.CreateOptions{})
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	s.k.run(t, "delete", "-n", s.busy, "configmap", "owner", "--wait=false")
	depth := regexp.MustCompile(`(?m)^coppice_queue_depth (\S+)$`)
	eventually.Agrees(t, func() string {
		found := depth.FindStringSubmatch(s.k.run(t, "get", "--raw", "/coppice/metrics"))
		if found == nil {
			return "the metrics do not tell how much waits"
		}
		if n, err := strconv.ParseFloat(found[1], 64); err != nil || n <= 1000 {
			return found[0] + " objects wait"
		}
		return ""
	})
	return s
}

// url returns the URL of the config maps of a namespace.
func (s *pile) url(namespace string) string {
	return s.p.server + "/api/v1/namespaces/" + namespace + "/configmaps"
}

// create makes a config map, owned by the one of that name unless that is "", and returns
// the status code and body of the answer.
func (s *pile) create(namespace, name, owner string) (code, body string) {
	s.t.Helper()
	references := ""
	if owner != "" {
		uid := owner
		if owner == bystander {
			uid = uidOf(s.t, s.k, namespace, "configmap/"+owner)
		}
		references = reference(owner, uid)
	}
	return s.p.curl(s.t, "-H", "Content-Type: application/json", s.url(namespace),
		"-d", fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"ownerReferences":[%s]}}`, name, references))
}

// reference returns one owner reference, in JSON.
func reference(name, uid string) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","name":%q,"uid":%q}`, name, uid)
}

// holdDeletions makes deletions of dependents in a namespace wait for a webhook that does not
// answer, until release is called. The namespace then also has a bystander.
func holdDeletions(t *testing.T, client kubernetes.Interface, namespace string) (release func()) {
	t.Helper()
	released := make(chan struct{})
	hook := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil || review.Request == nil {
			http.Error(w, fmt.Sprint("no review: ", err), http.StatusBadRequest)
			return
		}
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: review.Request.Name != bystander}
		if strings.HasPrefix(review.Request.Name, dependentPrefix) {
			select {
			case <-released:
			case <-r.Context().Done():
				return
			}
		}
		_ = json.NewEncoder(w).Encode(review) // a client that has given up does not read it
	}))
	t.Cleanup(hook.Close)
	release = sync.OnceFunc(func() { close(released) })
	t.Cleanup(release)
	none, fail := admissionregistrationv1.SideEffectClassNone, admissionregistrationv1.Fail
	_, err := client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(t.Context(), &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "hold"},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: "hold.example.com", SideEffects: &none, FailurePolicy: &fail, TimeoutSeconds: new(int32(30)), AdmissionReviewVersions: []string{"v1"},
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Delete},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
			}},
			ClientConfig: admissionregistrationv1.WebhookClientConfig{
				URL: new(hook.URL), CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: hook.Certificate().Raw}),
			},
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	eventually.Agrees(t, func() string {
		objects := client.CoreV1().ConfigMaps(namespace)
		if _, err := objects.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: bystander}}, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
		if err := objects.Delete(t.Context(), bystander, metav1.DeleteOptions{}); err == nil || !strings.Contains(err.Error(), "denied the request") {
			return fmt.Sprintf("the webhook is not asked: %v", err)
		}
		return ""
	})
	return release
}
