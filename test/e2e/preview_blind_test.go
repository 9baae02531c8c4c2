package e2e

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coppice-dev/coppice/internal/testing/eventually"
	question "github.com/coppice-dev/coppice/internal/tools/ask"
	"github.com/coppice-dev/coppice/internal/tools/explain"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
	"github.com/coppice-dev/coppice/internal/tools/preview"
)

// blindness is what the server and the controllers cannot read in a case. It holds other cases, so there is one case of
// this sort at a time.
type blindness string

const (
	// unconverted: the widgets of the case cannot be converted from one version to the other.
	unconverted blindness = "unconverted"
	// migrated: the same, and their definition says that they are stored in the other version.
	migrated blindness = "migrated"
	// neverUp: a group of the API never answers.
	neverUp blindness = "never up"
	// wentDown: a group of the API has answered, and does not answer any more.
	wentDown blindness = "went down"
)

// blindKinds are the rare kinds, each with its sorts.
var blindKinds = [][]blindness{{unconverted, migrated}, {neverUp, wentDown}}

// isDead reports whether a group of the API does not answer.
func (b blindness) isDead() bool { return b == neverUp || b == wentDown }

// drawBlind draws a case in which something cannot be read.
func drawBlind(seed uint64, sorts []blindness) previewCase {
	r := rand.New(rand.NewPCG(seed, ^seed))
	w := drawCase(r)
	w.drawGuards(r)
	w.blind = sorts[r.IntN(len(sorts))]
	if !w.blind.isDead() {
		for range 2 {
			w.objects[r.IntN(len(w.objects))].kind = "Widget"
		}
	}
	return w
}

// blind makes a case blind. The returned function ends that.
func (c *previewCluster) blind(t *testing.T, w previewCase, m madeCase) (end func()) {
	t.Helper()
	switch w.blind {
	case unconverted, migrated:
		return c.breakConversion(t, m, w.blind == migrated)
	case neverUp:
		return c.registerAPI(t, m, "nowhere", "443")
	case wentDown:
		o := startOrchard(t, m.orchard())
		_, port, err := net.SplitHostPort(o.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		end = c.registerAPI(t, m, "orchard", port)
		eventually.Holds(t, "the API is followed", func() bool { return c.foreign || o.isFollowed() })
		eventually.Agrees(t, func() string { return c.available(t, m, "True") })
		o.stop()
		eventually.Agrees(t, func() string { return c.available(t, m, "False") })
		return end
	}
	return func() {}
}

// breakConversion gives the definition of a case a conversion webhook that does not exist.
func (c *previewCluster) breakConversion(t *testing.T, m madeCase, migrates bool) (end func()) {
	t.Helper()
	definitions, name := c.in(m.resource("CustomResourceDefinition"), ""), "widgets."+m.namespace+".example.com"
	patch := func(conversion string) {
		t.Helper()
		versions := ""
		if migrates {
			versions = fmt.Sprintf(`,{"op":"replace","path":"/spec/versions/0/storage","value":%t},{"op":"replace","path":"/spec/versions/1/storage","value":%t}`, conversion == "None", conversion != "None")
		}
		patch := fmt.Sprintf(`[{"op":"replace","path":"/spec/conversion","value":%s}%s]`, conversion, versions)
		_, err := definitions.Patch(t.Context(), name, types.JSONPatchType, []byte(patch), metav1.PatchOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
	}
	patch(`{"strategy":"Webhook","webhook":{"conversionReviewVersions":["v1"],"clientConfig":{"service":{"namespace":"default","name":"nowhere"}}}}`)
	other := *m.resource("Widget")
	other.Version = "v2"
	eventually.Agrees(t, func() string {
		list, err := c.in(m.resource("Widget"), m.namespace).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err.Error()
		}
		if _, err := c.in(&other, m.namespace).List(t.Context(), metav1.ListOptions{}); err == nil && len(list.Items) > 0 {
			return "the widgets are converted"
		}
		return ""
	})
	return func() {
		patch(`{"strategy":"None"}`)
		eventually.Succeeds(t, func() error { // a server follows its definitions a moment later
			_, err := c.in(&other, m.namespace).List(t.Context(), metav1.ListOptions{})
			if apierrors.IsNotFound(err) {
				return nil // its definition is gone
			}
			return err
		})
	}
}

// renewWatchCache has kube-apiserver make a new watch cache of the widgets of a case. While they cannot be converted, it
// has the clients that list them try again later, and the later, the longer it goes on: after a minute, upstream's
// controllers take five for each namespace. A change of the definition begins that anew.
func (c *previewCluster) renewWatchCache(t *testing.T, m madeCase) {
	t.Helper()
	c.canaries++
	patch := fmt.Sprintf(`[{"op":"replace","path":"/spec/conversion/webhook/clientConfig/service/name","value":"nowhere-%d"}]`, c.canaries)
	_, err := c.in(m.resource("CustomResourceDefinition"), "").Patch(t.Context(), "widgets."+m.namespace+".example.com", types.JSONPatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
}

// orchard is the group of the API of a case that does not answer.
func (m madeCase) orchard() string { return "orchard." + m.namespace + ".example.com" }

// registerAPI registers a group of the API that a service serves, and waits until the server has looked at it.
func (c *previewCluster) registerAPI(t *testing.T, m madeCase, service, port string) (end func()) {
	t.Helper()
	group := m.orchard()
	manifest := strings.NewReplacer("GROUP", group, "NAME", service, "PORT", port).Replace(`
apiVersion: v1
kind: Service
metadata: {name: orchard, namespace: default}
spec: {type: ExternalName, externalName: 127.0.0.1}
---
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1.GROUP}
spec:
  group: GROUP
  version: v1
  groupPriorityMinimum: 2000
  versionPriority: 15
  insecureSkipTLSVerify: true
  service: {namespace: default, name: NAME, port: PORT}
`)
	k := kubectl{"coppice kubectl", []string{binary, "kubectl", "--kubeconfig", c.kubeconfig}, &plane{kubeconfig: c.kubeconfig}}
	k.apply(t, "default", manifest)
	eventually.Agrees(t, func() string {
		if c.available(t, m, "True") == "" || c.available(t, m, "False") == "" {
			return ""
		}
		return "the server has not looked at the API"
	})
	return func() { k.run(t, "delete", "apiservice", "v1."+group) }
}

// available describes how the availability of the API of a case differs from what it is to be.
func (c *previewCluster) available(t *testing.T, m madeCase, want string) string {
	t.Helper()
	k := kubectl{"coppice kubectl", []string{binary, "kubectl", "--kubeconfig", c.kubeconfig}, &plane{kubeconfig: c.kubeconfig}}
	got := k.get(t, "", "apiservice/v1."+m.orchard(), `{.status.conditions[?(@.type=="Available")].status}`)
	if got == want {
		return ""
	}
	return fmt.Sprintf("available: %q, want %s", got, want)
}

// readAsTools reads the cluster as the tools do. A collector of ours knows the resources of a group that has answered.
func (c *previewCluster) readAsTools(t *testing.T, w previewCase, m madeCase) *inventory.Inventory {
	t.Helper()
	sources := question.Sources{Config: c.config, Address: question.NoCollector, Now: time.Now}
	cluster, err := sources.Cluster(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if w.blind == wentDown && !c.foreign {
		cluster.Inventory.Resources = append(cluster.Inventory.Resources, &inventory.Resource{
			GroupVersionResource: schema.GroupVersionResource{Group: m.orchard(), Version: "v1", Resource: "trees"}, Kind: "Tree", Namespaced: true, Deletable: true,
		})
		cluster.Inventory.Index()
	}
	return cluster.Inventory
}

// rest waits until a case is at rest. While something cannot be read, our collector is never settled. So the case is at
// rest when it does not change while the controllers do all that they had to do: the garbage collector collects objects,
// and the namespace controller empties a namespace, which were made after the last look.
func (c *previewCluster) rest(t *testing.T, a attempt) {
	t.Helper()
	if a.blind == "" {
		c.settle(t)
		return
	}
	for before := ""; ; {
		if c.foreign && !a.blind.isDead() {
			c.renewWatchCache(t, a.made)
		}
		c.awaitCanaries(t)
		c.awaitEmptied(t)
		now := c.picture(t, a.made)
		if now == before {
			return
		}
		before = now
	}
}

// picture describes the objects of a case, without what controllers only report.
func (c *previewCluster) picture(t *testing.T, m madeCase) string {
	t.Helper()
	var text strings.Builder
	for _, o := range c.read(t, m).Objects {
		fmt.Fprintf(&text, "%s %s %s %s\n", o.Kind, o.Name, o.Phase, ends(o.Finalizers, o.Owners))
	}
	return text.String()
}

// awaitEmptied waits until the namespace controller has emptied a new namespace.
func (c *previewCluster) awaitEmptied(t *testing.T) {
	t.Helper()
	c.canaries++
	name := fmt.Sprintf("canary-%s-%d", c.name, c.canaries)
	m := madeCase{resources: resourcesOf("")}
	c.create(t, m.resource("Namespace"), map[string]any{"name": name}, nil)
	c.create(t, m.resource("Secret"), map[string]any{"name": "canary", "namespace": name}, nil)
	if err := c.in(m.resource("Namespace"), "").Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually.Holds(t, "the namespace controller empties a namespace", func() bool {
		_, err := c.in(m.resource("Secret"), name).Get(t.Context(), "canary", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
}

// explained describes a wait for a group that does not answer which our collector does not confirm.
func (c *previewCluster) explained(t *testing.T, prediction preview.Prediction) string {
	t.Helper()
	for _, o := range prediction.Outcomes {
		for _, w := range o.Waits {
			if w.Reason != preview.OnBarrier || o.Race {
				continue
			}
			group, _, _ := strings.Cut(w.Name, "/")
			text := ""
			isNamed := func() bool {
				x := c.explain(t, o.Object, time.Now(), false)
				text = x.Text(time.Now())
				return slices.ContainsFunc(x.Leaves(), func(leaf *explain.Wait) bool { return strings.Contains(leaf.Says, group) })
			}
			if !eventually.True(isNamed) { // when it has tried to prove that no dependent is missed
				return fmt.Sprintf("%s %s was predicted to wait for %s, and the collector says\n%s", o.Object.Kind, o.Object.Name, w.Name, text)
			}
		}
	}
	return ""
}

// orchard is an API server behind the API server, with a resource of which there is no object.
type orchard struct {
	*httptest.Server

	group  string
	closed chan struct{}

	mu       sync.Mutex
	followed bool // guarded by mu
}

// startOrchard starts the server of a group.
func startOrchard(t *testing.T, group string) *orchard {
	t.Helper()
	o := &orchard{group: group, closed: make(chan struct{})}
	o.Server = httptest.NewUnstartedServer(http.HandlerFunc(o.serve))
	o.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	o.StartTLS()
	t.Cleanup(o.stop)
	return o
}

// stop stops the server. It may be called again.
func (o *orchard) stop() {
	o.mu.Lock()
	isClosed := o.group == ""
	o.group = ""
	o.mu.Unlock()
	if !isClosed {
		close(o.closed)
		o.CloseClientConnections()
		o.Close()
	}
}

// isFollowed reports whether a client watches the objects.
func (o *orchard) isFollowed() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.followed
}

func (o *orchard) serve(w http.ResponseWriter, r *http.Request) {
	o.mu.Lock()
	group := o.group
	o.mu.Unlock()
	version := metav1.GroupVersionForDiscovery{GroupVersion: group + "/v1", Version: "v1"}
	query := r.URL.Query()
	switch {
	case group == "":
		http.Error(w, "closed", http.StatusServiceUnavailable)
	case r.URL.Path == "/apis/"+group:
		answerJSON(w, http.StatusOK, metav1.APIGroup{
			TypeMeta: metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}, Name: group, Versions: []metav1.GroupVersionForDiscovery{version}, PreferredVersion: version,
		})
	case r.URL.Path == "/apis/"+group+"/v1":
		answerJSON(w, http.StatusOK, metav1.APIResourceList{
			TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: version.GroupVersion,
			APIResources: []metav1.APIResource{{Name: "trees", SingularName: "tree", Kind: "Tree", Namespaced: true, Verbs: metav1.Verbs{"delete", "get", "list", "watch"}}},
		})
	case !strings.HasPrefix(r.URL.Path, "/apis/"+group+"/v1/"):
		http.NotFound(w, r)
	case query.Get("sendInitialEvents") != "":
		answerJSON(w, http.StatusUnprocessableEntity, metav1.Status{
			TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Reason: metav1.StatusReasonInvalid, Code: http.StatusUnprocessableEntity,
		})
	case query.Get("watch") != "":
		o.mu.Lock()
		o.followed = true
		o.mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		select {
		case <-r.Context().Done():
		case <-o.closed:
		}
	default:
		answerJSON(w, http.StatusOK, metav1.PartialObjectMetadataList{
			TypeMeta: metav1.TypeMeta{Kind: "PartialObjectMetadataList", APIVersion: "meta.k8s.io/v1"}, ListMeta: metav1.ListMeta{ResourceVersion: "1"},
		})
	}
}

func answerJSON(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body) // a client that has given up does not read it
}
