package namespaces

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	fakediscovery "k8s.io/client-go/discovery/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
)

// served is client-go's fake discovery, with groups whose discovery fails.
type served struct {
	*fakediscovery.FakeDiscovery

	down map[string]error // by group version
}

func (s served) ServerResourcesForGroupVersionWithContext(ctx context.Context, groupVersion string) (*metav1.APIResourceList, error) {
	if err := s.down[groupVersion]; err != nil {
		return nil, err
	}
	return s.FakeDiscovery.ServerResourcesForGroupVersionWithContext(ctx, groupVersion)
}

func serving(lists ...*metav1.APIResourceList) served {
	return served{FakeDiscovery: &fakediscovery.FakeDiscovery{Fake: &clienttesting.Fake{Resources: lists}}}
}

func list(groupVersion string, resources ...metav1.APIResource) *metav1.APIResourceList {
	return &metav1.APIResourceList{GroupVersion: groupVersion, APIResources: resources}
}

func namespaced(name string, verbs ...string) metav1.APIResource {
	return metav1.APIResource{Name: name, Kind: kindOf(name), Namespaced: true, Verbs: verbs}
}

func clusterScoped(name string, verbs ...string) metav1.APIResource {
	return metav1.APIResource{Name: name, Verbs: verbs}
}

func TestR22_DeletableResourcesAreDiscovered(t *testing.T) {
	down := errors.New("down")
	core := list("v1",
		namespaced("pods", "create", "delete", "deletecollection", "list"),
		namespaced("pods/status", "get", "delete", "list"),
		namespaced("services", "delete", "list"),
		namespaced("bindings", "create"),
		clusterScoped("nodes", "delete", "list"))
	metrics := list("metrics.k8s.io/v1beta1", namespaced("pods", "get", "list"))
	tests := map[string]struct {
		client     served
		want       []Resource
		wantGroups []schema.GroupVersion
	}{
		"namespaced, with list and delete": {
			client: serving(core, metrics),
			want:   []Resource{pods, {GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "services"}, Kind: kindOf("services")}},
		},
		"the preferred version": {
			client: serving(list("apps/v1", namespaced("deployments", "delete", "deletecollection", "list")), list("apps/v1beta1", namespaced("deployments", "delete", "list"))),
			want:   []Resource{deployments},
		},
		"the same objects in two groups": {
			client: serving(list("apps/v1", namespaced("deployments", "delete", "deletecollection", "list")), list("extensions/v1beta1", namespaced("deployments", "delete", "list"))),
			want:   []Resource{deployments},
		},
		"in the older group only": {
			client: serving(list("extensions/v1beta1", namespaced("deployments", "delete", "list"))),
			want:   []Resource{{GroupVersionResource: schema.GroupVersionResource{Group: "extensions", Version: "v1beta1", Resource: "deployments"}, Kind: kindOf("deployments")}},
		},
		"NS-06 a group is down": {
			client:     served{serving(core, metrics).FakeDiscovery, map[string]error{"metrics.k8s.io/v1beta1": down}},
			want:       []Resource{pods, {GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "services"}, Kind: kindOf("services")}},
			wantGroups: []schema.GroupVersion{{Group: "metrics.k8s.io", Version: "v1beta1"}},
		},
		"nothing served": {client: serving()},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := Discover(test.client, crdsOf(), clock.RealClock{}).Resources(t.Context())
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("resources (-want +got):\n%s", diff)
			}
			var incomplete *Incomplete
			if errors.As(err, &incomplete) != (len(test.wantGroups) > 0) {
				t.Fatalf("err = %v, want groups %v", err, test.wantGroups)
			}
			for _, group := range test.wantGroups {
				if !errors.Is(incomplete.Groups[group], down) {
					t.Errorf("groups = %v, want %s in it", incomplete.Groups, group)
				}
			}
		})
	}
}

// R4: discovery without the core group, as client-go returns it after a 404 of a load balancer, does not mean that namespaces
// are empty.
func TestR4_CoreGroupIsNeverGone(t *testing.T) {
	down := errors.New("down")
	client := serving(list("v1", namespaced("pods", "delete", "list")), list("apps/v1", namespaced("deployments", "delete", "list")))
	catalogue := Discover(client, crdsOf(), clock.RealClock{})
	if _, err := catalogue.Resources(t.Context()); err != nil {
		t.Fatal(err)
	}
	all := client.Resources
	for name, lists := range map[string][]*metav1.APIResourceList{"no group": all[1:], "no resources": {list("v1"), all[1]}} {
		client.Resources = lists
		if got, err := catalogue.Resources(t.Context()); !errors.Is(err, errNoCore) || len(got) > 0 {
			t.Errorf("%s: resources %v, error %v", name, got, err)
		}
	}
	client.Resources, client.down = all, map[string]error{"v1": down}
	catalogue.(*discoverer).client = client
	got, err := catalogue.Resources(t.Context())
	if incomplete, ok := errors.AsType[*Incomplete](err); !ok || incomplete.hides() || len(got) != 2 {
		t.Errorf("its discovery fails: resources %v, error %v", got, err)
	}
}

// malformed serves a malformed group version.
type malformed struct {
	discovery.DiscoveryInterfaceWithContext
}

func (malformed) ServerGroupsWithContext(context.Context) (*metav1.APIGroupList, error) {
	version := metav1.GroupVersionForDiscovery{GroupVersion: "a/b/c", Version: "c"}
	return &metav1.APIGroupList{Groups: []metav1.APIGroup{{Name: "a/b", Versions: []metav1.GroupVersionForDiscovery{version}, PreferredVersion: version}}}, nil
}

func (malformed) ServerResourcesForGroupVersionWithContext(context.Context, string) (*metav1.APIResourceList, error) {
	return list("a/b/c", namespaced("things", "delete", "list")), nil
}

// NS-06: a group whose server is down is remembered as it was: it blocks the namespaces that may
// have objects of it, and no others.
func TestR22_GroupWhoseServerIsDownIsRemembered(t *testing.T) {
	down := errors.New("down")
	client := serving(
		list("v1", namespaced("pods", "delete", "deletecollection", "list")),
		list("metrics.k8s.io/v1beta1", namespaced("podmetrics", "get", "list")),
		list("example.com/v1", namespaced("widgets", "delete", "list")),
		list("example.com/v1beta1", namespaced("widgets", "delete", "list")),
	)
	client.down = map[string]error{"late.example.com/v1": down}
	catalogue := Discover(client, metadatafake.NewSimpleMetadataClient(runtime.NewScheme()), clock.RealClock{})
	before, err := catalogue.Resources(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, version := range []string{"metrics.k8s.io/v1beta1", "example.com/v1", "example.com/v1beta1"} {
		client.down[version] = down
	}
	after, err := catalogue.Resources(t.Context())
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("resources (-before +after):\n%s", diff)
	}
	incomplete, ok := errors.AsType[*Incomplete](err)
	if !ok || len(incomplete.Groups) != 3 || incomplete.hides() {
		t.Errorf("%v, want an error of three groups that are remembered", err)
	}
	client.Resources = append(client.Resources, list("late.example.com/v1", namespaced("gadgets", "delete", "list")))
	_, err = catalogue.Resources(t.Context())
	if incomplete, ok := errors.AsType[*Incomplete](err); !ok || !incomplete.hides() || !incomplete.hidesGroup("late.example.com") || incomplete.hidesGroup("example.com") {
		t.Errorf("%v, want a group that was never seen", err)
	}
}

func TestR22_DiscoverMalformedVersion(t *testing.T) {
	got, err := Discover(malformed{}, crdsOf(), clock.RealClock{}).Resources(t.Context())
	var incomplete *Incomplete
	if !errors.As(err, &incomplete) || len(incomplete.Unparsed) != 1 || len(got) != 0 {
		t.Errorf("resources %v, err %v, want one version that cannot be parsed", got, err)
	}
}

// crdsOf returns a metadata client with some CustomResourceDefinitions.
func crdsOf(defined ...*metav1.PartialObjectMetadata) *metadatafake.FakeMetadataClient {
	scheme := metadatafake.NewTestScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		panic(err)
	}
	client := metadatafake.NewSimpleMetadataClient(scheme)
	for _, d := range defined {
		d.TypeMeta = metav1.TypeMeta{APIVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinition"}
		if err := client.Tracker().Create(definitions(), d, ""); err != nil {
			panic(err)
		}
	}
	return client
}

// A type may have objects before discovery includes it; its age distinguishes it from one that is
// never served.
func TestR22_DefinedJustNow(t *testing.T) {
	definition := func(name string, age time.Duration) *metav1.PartialObjectMetadata {
		return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(now.Add(-age))}}
	}
	deleted := definition("going.example.com", 0)
	deleted.DeletionTimestamp = &now
	failing := func(err error) *metadatafake.FakeMetadataClient {
		client := crdsOf()
		client.PrependReactor("list", "*", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, err })
		return client
	}
	core := list("example.com/v1", namespaced("widgets", "delete", "list"), clusterScoped("globals", "delete", "list"))
	tests := map[string]struct {
		definitions *metadatafake.FakeMetadataClient
		want        []string
	}{
		"all are served":          {crdsOf(definition("widgets.example.com", 0), definition("globals.example.com", 0)), nil},
		"one is not served yet":   {crdsOf(definition("gadgets.example.com", time.Second)), []string{"gadgets.example.com: defined, but not served yet"}},
		"one was never served":    {crdsOf(definition("gadgets.example.com", time.Minute)), nil},
		"one is being deleted":    {crdsOf(deleted), nil},
		"no definitions here":     {failing(apierrors.NewNotFound(definitions().GroupResource(), "")), nil},
		"may not be read":         {failing(apierrors.NewForbidden(definitions().GroupResource(), "", nil)), nil},
		"cannot be read just now": {failing(errors.New("timeout")), []string{"list customresourcedefinitions.apiextensions.k8s.io: timeout"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			resources, err := Discover(serving(core), test.definitions, clocktesting.NewFakePassiveClock(now.Time)).Resources(t.Context())
			var got []string
			if incomplete, ok := errors.AsType[*Incomplete](err); ok {
				for _, e := range incomplete.Unserved {
					got = append(got, e.Error())
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" || len(resources) != 1 {
				t.Errorf("resources %v, unserved (-want +got):\n%s", resources, diff)
			}
		})
	}
}

// source counts discoveries.
type source struct {
	discoveries atomic.Int64
	read        func() // takes the time of a discovery
}

func (s *source) Resources(context.Context) ([]Resource, error) {
	number := s.discoveries.Add(1)
	s.read()
	return []Resource{resource("", "v1", string(rune('a'+number-1)))}, nil
}

// A discovery that began before a call may have missed a new type; all calls that arrive meanwhile
// share the next one.
func TestR22_FreshCatalogueBeginsAfterTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := source{read: func() { time.Sleep(time.Second) }}
		catalogue := shareCatalogue(&s, clock.RealClock{}, time.Minute)
		var asking sync.WaitGroup
		ask := func(want string) {
			asking.Go(func() {
				got, err := catalogue.fresh(t.Context())
				if err != nil || got[0].Resource != want {
					t.Errorf("fresh = %v, %v, want %s", got, err, want)
				}
			})
			synctest.Wait()
		}
		ask("a")
		for range 10 {
			ask("b")
		}
		time.Sleep(1500 * time.Millisecond)
		for range 10 {
			ask("c")
		}
		asking.Wait()
		if got := s.discoveries.Load(); got != 3 {
			t.Errorf("%d discoveries, want 3", got)
		}
	})
}

func TestR22_RecentCatalogueIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := source{read: func() { time.Sleep(time.Second) }}
		catalogue := shareCatalogue(&s, clock.RealClock{}, time.Minute)
		for _, want := range []int64{1, 1, 2} {
			if _, err := catalogue.recent(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := s.discoveries.Load(); got != want {
				t.Errorf("%d discoveries, want %d", got, want)
			}
			time.Sleep(35 * time.Second)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		time.Sleep(time.Hour)
		catalogue.turn <- struct{}{} // a discovery is under way
		if _, err := catalogue.recent(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("err = %v, want that of the context", err)
		}
	})
}
