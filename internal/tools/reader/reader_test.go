package reader

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/rest"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
)

// server answers discovery and lists of few objects, and records the requests.
type server struct {
	t       *testing.T
	objects map[string][]metav1.PartialObjectMetadata // by the path of the list in all namespaces
	forbids string                                    // a path that it refuses

	mu    sync.Mutex
	asked []string // guarded by mu: paths, followed by "whole" for requests of whole objects
}

// served are the resources, by the paths of their lists in all namespaces.
func served() map[string]*inventory.Resource {
	of := func(group, kind, plural string, namespaced bool) *inventory.Resource {
		r := &inventory.Resource{Kind: kind, Namespaced: namespaced}
		r.Group, r.Version, r.Resource = group, "v1", plural
		return r
	}
	return map[string]*inventory.Resource{
		"/api/v1/namespaces": of("", "Namespace", "namespaces", false), "/api/v1/pods": of("", "Pod", "pods", true),
		"/api/v1/configmaps": of("", "ConfigMap", "configmaps", true), "/api/v1/secrets": of("", "Secret", "secrets", true),
		"/apis/apps/v1/deployments": of("apps", "Deployment", "deployments", true),
	}
}

func (s *server) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	path := request.URL.Path
	s.note(path, request.Header.Get("Accept"))
	switch path {
	case "/version":
		s.write(w, "application/json", version.Info{GitVersion: "v1.36.0"})
	case "/api", "/apis":
		s.write(w, "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList", discoveryBelow(path+"/"))
	default:
		s.list(w, path)
	}
}

func (s *server) note(path, accept string) {
	if strings.HasSuffix(path, "/pods") && !strings.Contains(accept, "PartialObjectMetadataList") {
		path += " whole"
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, path)
}

// list answers with the metadata of objects, which have nothing else.
func (s *server) list(w http.ResponseWriter, path string) {
	before, after, inNamespace := strings.Cut(path, "/namespaces/")
	var namespace string
	if path == s.forbids {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		_ = json.NewEncoder(w).Encode(metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonForbidden, Code: http.StatusForbidden})
		return
	}
	if inNamespace {
		namespace, path, _ = strings.Cut(after, "/")
		path = before + "/" + path
	}
	list := metav1.PartialObjectMetadataList{}
	for _, o := range s.objects[path] {
		if namespace == "" || o.Namespace == namespace {
			list.Items = append(list.Items, o)
		}
	}
	s.write(w, "application/json", list)
}

func (s *server) write(w http.ResponseWriter, mediaType string, answer any) {
	w.Header().Set("Content-Type", mediaType)
	if err := json.NewEncoder(w).Encode(answer); err != nil {
		s.t.Errorf("write an answer: %v", err)
	}
}

func discoveryBelow(prefix string) apidiscoveryv2.APIGroupDiscoveryList {
	groups := map[string]*apidiscoveryv2.APIGroupDiscovery{}
	list := apidiscoveryv2.APIGroupDiscoveryList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupDiscoveryList", APIVersion: "apidiscovery.k8s.io/v2"}}
	for path, r := range served() {
		if !strings.HasPrefix(path, prefix) {
			continue
		}
		if groups[r.Group] == nil {
			groups[r.Group] = &apidiscoveryv2.APIGroupDiscovery{
				ObjectMeta: metav1.ObjectMeta{Name: r.Group}, Versions: []apidiscoveryv2.APIVersionDiscovery{{Version: r.Version}},
			}
		}
		scope := apidiscoveryv2.ScopeCluster
		if r.Namespaced {
			scope = apidiscoveryv2.ScopeNamespace
		}
		v := &groups[r.Group].Versions[0]
		v.Resources = append(v.Resources, apidiscoveryv2.APIResourceDiscovery{
			Resource: r.Resource, Scope: scope, SingularResource: strings.ToLower(r.Kind), Verbs: []string{"get", "list", "delete"},
			ResponseKind: &metav1.GroupVersionKind{Group: r.Group, Version: r.Version, Kind: r.Kind},
		})
	}
	for _, g := range groups {
		list.Items = append(list.Items, *g)
	}
	return list
}

// add adds an object, whose name is its UID, with an optional owner: "PATH NAME".
func (s *server) add(path, namespace, name string, owner string, finalizers ...string) {
	o := metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: name, UID: types.UID(name), ResourceVersion: "1", Finalizers: finalizers,
	}}
	if of, named, ok := strings.Cut(owner, " "); ok {
		r := served()[of]
		o.OwnerReferences = []metav1.OwnerReference{{APIVersion: r.GroupVersion().String(), Kind: r.Kind, Name: named, UID: types.UID(named)}}
	}
	s.objects[path] = append(s.objects[path], o)
}

// newServer returns a server with the namespaces shop and other, each with a Deployment, and a pod owned by a
// ConfigMap.
func newServer(t *testing.T) (*server, *rest.Config) {
	t.Helper()
	s := &server{t: t, objects: map[string][]metav1.PartialObjectMetadata{}}
	for _, namespace := range []string{"shop", "other"} {
		s.add("/api/v1/namespaces", "", namespace, "")
		s.add("/api/v1/configmaps", namespace, namespace+"-root", "")
		s.add("/api/v1/pods", namespace, namespace+"-pod", "/api/v1/configmaps "+namespace+"-root")
		s.add("/apis/apps/v1/deployments", namespace, namespace+"-web", "")
	}
	http := httptest.NewServer(s)
	t.Cleanup(http.Close)
	return s, &rest.Config{Host: http.URL}
}

// read reads the objects for a question about an object, and returns the requested lists.
func (s *server) read(config *rest.Config, scope Scope, uid string) (*inventory.Inventory, []string) {
	s.t.Helper()
	inv, err := Read(s.t.Context(), config, Options{
		Pods: true, Scope: func(*inventory.Inventory) Scope { return scope }, Namespaces: []string{"elsewhere"},
		Missing: func(read *inventory.Inventory) inventory.Missing {
			return read.Missing([]ownership.UID{ownership.UID(uid)}, func(f string) bool { return f != "acme.io/held" })
		},
	})
	if err != nil {
		s.t.Fatal(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	lists := slices.DeleteFunc(slices.Clone(s.asked), func(path string) bool { return path == "/api/v1/namespaces" || path == "/version" })
	slices.Sort(lists)
	return inv, lists
}

// TestReadNoMoreThanNeeded: a question about an object in a namespace reads that namespace. The controller of a
// finalizer is searched everywhere, and if an object elsewhere claims an owner, everything is read. Discovery is asked
// once.
func TestReadNoMoreThanNeeded(t *testing.T) {
	within := []string{
		"/api", "/api/v1/namespaces/shop/configmaps", "/api/v1/namespaces/shop/pods whole", "/api/v1/namespaces/shop/secrets",
		"/apis", "/apis/apps/v1/namespaces/shop/deployments",
	}
	workloads := []string{"/api/v1/configmaps", "/api/v1/pods whole", "/apis/apps/v1/deployments"}
	all := append([]string{"/api/v1/secrets"}, workloads...)
	shop := Scope{Namespaces: []string{"shop"}}
	for name, test := range map[string]struct {
		add     func(*server)
		scope   Scope
		of      string
		lists   []string
		objects string
	}{
		"a leaf": {nil, shop, "shop-pod", within, "other shop shop-pod shop-root shop-web"},
		"a finalizer": {
			func(s *server) {
				s.add("/api/v1/configmaps", "shop", "held", "/api/v1/configmaps shop-root", "acme.io/held")
			},
			shop, "shop-root", slices.Concat(within, workloads),
			"held other other-pod other-root other-web shop shop-pod shop-root shop-web",
		},
		"a claim from elsewhere, on what only a finalizer has had read": {
			func(s *server) {
				s.add("/api/v1/configmaps", "shop", "held", "/api/v1/configmaps shop-root", "acme.io/held")
				s.add("/apis/apps/v1/deployments", "other", "far", "/api/v1/configmaps shop-root")
				s.add("/api/v1/secrets", "other", "farther", "")
			},
			shop, "shop-root", slices.Concat(within, workloads, all),
			"far farther held other other-pod other-root other-web shop shop-pod shop-root shop-web",
		},
		"a namespace, and what it owns elsewhere": {
			func(s *server) { s.add("/api/v1/pods", "other", "mirror", "/api/v1/namespaces other") },
			Scope{Namespaces: []string{"shop"}, Beyond: true},
			"shop",
			[]string{"/api", "/api/v1/configmaps", "/api/v1/namespaces/shop/pods whole", "/api/v1/pods", "/api/v1/secrets", "/apis", "/apis/apps/v1/deployments"},
			"mirror other shop shop-pod shop-root shop-web",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, config := newServer(t)
			if test.add != nil {
				test.add(s)
			}
			inv, lists := s.read(config, test.scope, test.of)
			slices.Sort(test.lists)
			if !slices.Equal(lists, test.lists) {
				t.Errorf("asked for\n%s, want\n%s", strings.Join(lists, "\n"), strings.Join(test.lists, "\n"))
			}
			var names []string
			for _, o := range inv.Objects {
				names = append(names, o.Name)
			}
			slices.Sort(names)
			if got := strings.Join(names, " "); got != test.objects {
				t.Errorf("read %s, want %s", got, test.objects)
			}
			if inv.Pods["shop-pod"] == nil || inv.Pods["mirror"] != nil {
				t.Errorf("whole pods are %v", inv.Pods)
			}
		})
	}
}

// TestReadBeyondWithoutRights: a user with rights to the pods of one namespace sees these, and that others are unread.
func TestReadBeyondWithoutRights(t *testing.T) {
	s, config := newServer(t)
	s.forbids = "/api/v1/pods"
	inv, _ := s.read(config, Scope{Namespaces: []string{"shop"}, Beyond: true}, "shop")
	if len(inv.Unread) != 1 || !slices.Equal(inv.Unread[0].Except, []string{"shop"}) || !inv.Unread[0].Forbidden {
		t.Errorf("unread is %+v", inv.Unread)
	}
	if inv.Pods["shop-pod"] == nil || !inv.Complete(inv.Resource(ownership.Kind{Kind: "Pod"}), "shop") {
		t.Errorf("the pods of the namespace count as unread: %v", inv.Pods)
	}
}
