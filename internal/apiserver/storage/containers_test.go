package storage

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apistorage "k8s.io/apiserver/pkg/storage"

	"github.com/coppice-dev/coppice/internal/testing/etcdcluster"
)

func mark(obj runtime.Object) {
	ns := obj.(*corev1.Namespace)
	ns.DeletionTimestamp = new(metav1.Now())
	ns.Status.Phase = corev1.NamespaceTerminating
}

func label(obj runtime.Object) {
	ns := obj.(*corev1.Namespace)
	ns.Labels = map[string]string{"changed": fmt.Sprint(len(ns.Labels["changed"]) + 1)}
}

// makeConfigMap is a PUT that creates.
func (o objects) makeConfigMap(namespace, name string) error {
	return o.change(namespace, name, func(obj runtime.Object) {
		obj.(*corev1.ConfigMap).Namespace, obj.(*corev1.ConfigMap).Name = namespace, name
	})
}

func TestR21_CreationOnConditionOfTheNamespace(t *testing.T) {
	for where, open := range stacks() {
		t.Run(where, func(t *testing.T) { testCreationOnCondition(t, open(t)) })
	}
}

func testCreationOnCondition(t *testing.T, s *Stack) {
	namespaces, contents := s.namespaceStorage(t), s.configMapStorage(t)
	for way, create := range map[string]func(namespace, name string) error{
		"create":           contents.create,
		"PUT that creates": contents.makeConfigMap,
	} {
		t.Run(way, func(t *testing.T) {
			ns := "team-" + way[:3]
			if err := create(ns, "early"); !apierrors.IsNotFound(err) {
				t.Errorf("before the namespace is there: %v", err)
			}
			must(t, namespaces.create("", ns))
			must(t, create(ns, "a"))
			must(t, create(ns, "b"))
			must(t, namespaces.change("", ns, label))
			must(t, create(ns, "c"))
			must(t, namespaces.change("", ns, mark))
			for range 2 { // unknown at first, then known
				err := create(ns, "late")
				if !apierrors.IsForbidden(err) || !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
					t.Errorf("in a terminating namespace: %v", err)
				}
			}
			// Existing objects can be changed and deleted.
			must(t, contents.makeConfigMap(ns, "a"))
			for _, name := range []string{"a", "b", "c"} {
				must(t, contents.remove(ns, name))
			}
			must(t, namespaces.remove("", ns))
			if err := create(ns, "late"); !apierrors.IsNotFound(err) {
				t.Errorf("after the namespace is gone: %v", err)
			}
			must(t, namespaces.create("", ns))
			must(t, create(ns, "a"))
			if got := contents.names(t, s, ns); len(got) != 1 || got[0] != "a" {
				t.Errorf("there is %v", got)
			}
		})
	}
}

// AlreadyExists takes precedence over the state of the namespace.
func TestAlreadyExistsPrecedesTheNamespace(t *testing.T) {
	s := open(t)
	namespaces, contents := s.namespaceStorage(t), s.configMapStorage(t)
	must(t, namespaces.create("", "team"))
	must(t, contents.create("team", "a"))
	if err := contents.create("team", "a"); !apistorage.IsExist(err) {
		t.Errorf("%v, want that it exists", err)
	}
	must(t, namespaces.change("", "team", label))
	if err := contents.create("team", "a"); !apistorage.IsExist(err) {
		t.Errorf("after a change of the namespace: %v, want that it exists", err)
	}
}

// A stack that serves no namespaces has no conditions.
func TestStackWithoutNamespacesHasNoConditions(t *testing.T) {
	s := open(t)
	must(t, s.configMapStorage(t).create("nowhere", "a"))
}

// After the first creation in a namespace, creations in it read nothing. Every creation is a single
// transaction.
func TestR21_CreationCosts(t *testing.T) {
	s := open(t)
	namespaces, contents := s.namespaceStorage(t), s.configMapStorage(t)
	must(t, namespaces.create("", "team"))
	must(t, contents.create("team", "first"))
	before, err := s.store.Revision(t.Context())
	must(t, err)
	const n = 100
	for i := range n {
		must(t, contents.create("team", fmt.Sprint(i)))
	}
	after, err := s.store.Revision(t.Context())
	must(t, err)
	if after-before != n {
		t.Errorf("%d creations made %d revisions", n, after-before)
	}
	if s.namespaces.named("team").revision == never {
		t.Error("the namespace is not remembered")
	}
}

// The number of remembered namespaces is bounded.
func TestRememberedNamespacesAreBounded(t *testing.T) {
	var n containers
	for i := range maxKnown + 1 {
		n.remember(fmt.Sprint(i), 1)
	}
	if len(n.active) > maxKnown {
		t.Errorf("%d are remembered", len(n.active))
	}
	n.remember("a", 1)
	n.forget("a")
	if revision := n.named("a").revision; revision != never {
		t.Errorf("revision %d of a forgotten one", revision)
	}
}

// Creations that admission has allowed just before the namespace was marked leave no objects in a
// namespace that is removed when it was empty once.
func TestR21_RaceOfCreationAndRemovalOfNamespace(t *testing.T) {
	for where, open := range stacks() {
		t.Run(where, func(t *testing.T) { testRaceOfCreationAndRemoval(t, open(t)) })
	}
}

func testRaceOfCreationAndRemoval(t *testing.T, s *Stack) {
	namespaces, contents := s.namespaceStorage(t), s.configMapStorage(t)
	var created, late atomic.Int64
	rounds := 0
	for ; rounds < 100; rounds++ {
		ns := fmt.Sprintf("team-%d", rounds)
		// The namespace is marked after so many creations: with none, with a few on their way.
		creations := newCountdown(rounds % 6)
		must(t, namespaces.create("", ns))
		var creators sync.WaitGroup
		for worker := range 4 {
			creators.Go(func() {
				for i := 0; namespaces.isActive(ns); i++ {
					switch err := contents.create(ns, fmt.Sprintf("%d-%d", worker, i)); {
					case err == nil:
						created.Add(1)
						creations.count()
					case apierrors.IsForbidden(err), apierrors.IsNotFound(err):
						late.Add(1)
					default:
						t.Error(err)
						return
					}
				}
			})
		}
		<-creations.done
		must(t, s.removeNamespace(t, namespaces, contents, ns))
		creators.Wait()
		if left := contents.names(t, s, ns); len(left) > 0 {
			t.Fatalf("round %d: %d objects are left behind", rounds, len(left))
		}
	}
	t.Logf("%d namespaces, %d objects created, %d refused after their admission, none left behind", rounds, created.Load(), late.Load())
}

// countdown closes done once there were so many counts. It may be used by several goroutines.
type countdown struct {
	left atomic.Int64
	done chan struct{}
}

func newCountdown(counts int) *countdown {
	c := &countdown{done: make(chan struct{})}
	c.left.Store(int64(counts) + 1)
	c.count()
	return c
}

func (c *countdown) count() {
	if c.left.Add(-1) == 0 {
		close(c.done)
	}
}

// isActive returns the result of an admission check.
func (o objects) isActive(name string) bool {
	ns := &corev1.Namespace{}
	err := o.Get(context.Background(), o.key("", name), apistorage.GetOptions{}, ns)
	return err == nil && ns.DeletionTimestamp == nil
}

// removeNamespace marks a namespace, empties it and removes it.
func (s *Stack) removeNamespace(t *testing.T, namespaces, contents objects, ns string) error {
	t.Helper()
	if err := namespaces.change("", ns, mark); err != nil {
		return err
	}
	for left := contents.names(t, s, ns); len(left) > 0; left = contents.names(t, s, ns) {
		for _, name := range left {
			if err := contents.remove(ns, name); err != nil {
				return err
			}
		}
	}
	return namespaces.remove("", ns)
}

// R21 between servers: after one server has seen a namespace active, another server marks it. From
// then on the first server rejects creations in it.
func TestR21_AcrossServers(t *testing.T) {
	c := etcdcluster.Start(t, 1, nil)
	one, other := connect(t, c), connect(t, c)
	must(t, one.namespaceStorage(t).create("", "team"))
	contents := one.configMapStorage(t)
	must(t, contents.create("team", "a"))
	must(t, other.namespaceStorage(t).change("", "team", mark))
	if err := contents.create("team", "late"); !apierrors.IsForbidden(err) {
		t.Errorf("%v, want that it is refused", err)
	}
}

// A namespace that cannot be decoded causes an error, and does not count as missing.
func TestUnreadableNamespaceIsNotMissing(t *testing.T) {
	s := open(t)
	s.namespaceStorage(t)
	contents := s.configMapStorage(t)
	_, err := s.store.Client().Put(t.Context(), "/registry/namespaces/broken", "no object")
	must(t, err)
	if err := contents.create("broken", "a"); err == nil || !strings.Contains(err.Error(), "/registry/namespaces/broken") {
		t.Errorf("%v", err)
	}
	if got := contents.names(t, s, "broken"); len(got) > 0 {
		t.Errorf("created %v", got)
	}
}

func BenchmarkCreate(b *testing.B) {
	for _, served := range []bool{true, false} {
		b.Run(fmt.Sprintf("conditional=%t", served), func(b *testing.B) {
			s := open(b)
			if served {
				must(b, s.namespaceStorage(b).create("", "team"))
			}
			contents := s.configMapStorage(b)
			i := 0
			for b.Loop() {
				i++
				must(b, contents.Create(context.Background(), contents.key("team", fmt.Sprint(i)),
					&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: fmt.Sprint(i)}}, nil, 0))
			}
		})
	}
}

// TestR21_CreationOnConditionOfTheDefinition: an instance is created in its transaction only while its definition exists and is
// not terminating. An object that this storage can read stands for the definition.
func TestR21_CreationOnConditionOfTheDefinition(t *testing.T) {
	s := open(t)
	definitions := s.namespaceStorage(t)
	s.definitions.open(s.namespaces.reader)
	s.custom.Store(corev1.Resource("configmaps"), true)
	instances := s.configMapStorage(t)
	must(t, definitions.create("", "team"))
	if err := instances.create("team", "early"); !apierrors.IsNotFound(err) {
		t.Errorf("before the definition is there: %v", err)
	}
	must(t, definitions.create("", "configmaps"))
	must(t, instances.create("team", "a"))
	must(t, definitions.change("", "configmaps", label))
	must(t, instances.create("team", "b"))
	must(t, definitions.change("", "configmaps", mark))
	for range 2 { // unknown at first, then known
		if err := instances.create("team", "late"); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "custom resource definition is terminating") {
			t.Errorf("while the definition goes: %v", err)
		}
	}
	must(t, instances.makeConfigMap("team", "a")) // an existing one can be changed
}
