package apiserver_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// raceVariable names the environment variable that makes the races last longer: the
// number of rounds of each race on each subject ("50000"), or a time ("60s").
const raceVariable = "COPPICE_TEST_RACES"

// race plays rounds of a race, several at a time, until there were enough or a round fails.
func race(t *testing.T, round func(name string)) {
	t.Helper()
	enough := raceLength(t)
	var lanes sync.WaitGroup
	for range 3 {
		lanes.Go(func() {
			for !enough() && !t.Failed() {
				round(unique("race"))
			}
		})
	}
	lanes.Wait()
}

// raceLength returns what tells, when it is asked before each round, whether there were enough.
func raceLength(t *testing.T) (enough func() bool) {
	t.Helper()
	lasts := 500 * time.Millisecond
	if value := os.Getenv(raceVariable); value != "" {
		if rounds, err := strconv.ParseInt(value, 10, 64); err == nil {
			var begun atomic.Int64
			return func() bool { return begun.Add(1) > rounds }
		}
		var err error
		if lasts, err = time.ParseDuration(value); err != nil {
			t.Fatalf("%s: %v", raceVariable, err)
		}
	}
	end := time.Now().Add(lasts)
	return func() bool { return time.Now().After(end) }
}

// together runs all functions at the same time, or nearly.
func together(functions ...func()) {
	var all sync.WaitGroup
	start := make(chan struct{})
	for _, f := range functions {
		all.Go(func() {
			<-start
			time.Sleep(rand.N(600 * time.Microsecond))
			f()
		})
	}
	close(start)
	all.Wait()
}

// tally counts outcomes, so that a race that never was one is noticed.
type tally struct {
	mu     sync.Mutex
	counts map[string]int // guarded by mu
}

func (c *tally) add(outcome string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.counts == nil {
		c.counts = map[string]int{}
	}
	c.counts[outcome]++
}

// expected reports the counts, and fails if one of the outcomes never came up in a
// race that was long enough.
func (c *tally) expected(t *testing.T, outcomes ...string) {
	t.Helper()
	t.Log(c.counts)
	total := 0
	for _, n := range c.counts {
		total += n
	}
	for _, outcome := range outcomes {
		if total > 1000 && c.counts[outcome] == 0 {
			t.Errorf("%q never came up in %d: this was no race", outcome, total)
		}
	}
}

// hold adds a finalizer to the object with that uid, and keeps those that are there.
func (c collection) hold(o *object, finalizer string) error {
	applied := &object{Object: map[string]any{}}
	applied.SetGroupVersionKind(c.kind)
	applied.SetName(o.GetName())
	applied.SetUID(o.GetUID())
	applied.SetFinalizers([]string{finalizer})
	_, err := c.send(http.MethodPatch, c.at(o.GetName())+"?fieldManager="+finalizer[len("example.com/"):], string(types.ApplyPatchType), applied)
	return err
}

// kubernetes#77988: a finalizer that was accepted holds the object, whatever DELETE it
// was accepted beside.
func TestR18_RaceOfFinalizersAndDeletes(t *testing.T) {
	onSubjects(t, func(t *testing.T, c collection) {
		var outcomes tally
		race(t, func(name string) {
			o := c.create(name)
			var accepted [3]bool
			var functions []func()
			for i := range accepted {
				functions = append(functions, func() { accepted[i] = c.hold(o, fmt.Sprintf("example.com/%d", i)) == nil })
			}
			var answers [2]*object
			for i := range answers {
				functions = append(functions, func() {
					answer, err := c.remove(name, nil)
					if err != nil && !apierrors.IsNotFound(err) {
						t.Errorf("delete: %v", err)
					}
					answers[i] = answer
				})
			}
			together(functions...)
			outcomes.add(checkHeld(t, c, o, accepted[:], answers[:]))
		})
		outcomes.expected(t, "gone", "held by 1")
	})
}

// The same, where the object is held at first and an update takes that finalizer away:
// that update, or the DELETE after it, removes the object, if nothing else was accepted.
func TestR18_RaceOfFinalizersAndEmptyingUpdates(t *testing.T) {
	onSubjects(t, func(t *testing.T, c collection) {
		var outcomes tally
		release := []map[string]any{
			{"op": "test", "path": "/metadata/finalizers/0", "value": foreign},
			{"op": "remove", "path": "/metadata/finalizers/0"},
		}
		race(t, func(name string) {
			o := c.create(name, foreign)
			var accepted [2]bool
			var functions []func()
			for i := range accepted {
				functions = append(functions, func() { accepted[i] = c.hold(o, fmt.Sprintf("example.com/%d", i)) == nil })
			}
			var answer *object
			functions = append(functions,
				func() {
					var err error
					if answer, err = c.remove(name, nil); err != nil {
						t.Errorf("delete: %v", err)
					}
				},
				func() {
					_, err := c.patch(name, types.JSONPatchType, release)
					for apierrors.IsConflict(err) {
						_, err = c.patch(name, types.JSONPatchType, release)
					}
					if err != nil {
						t.Errorf("release: %v", err)
					}
				},
			)
			together(functions...)
			outcomes.add(checkHeld(t, c, o, accepted[:], []*object{answer}))
		})
		outcomes.expected(t, "gone", "held by 1")
	})
}

// checkHeld checks an object that finalizers were added to while it was deleted.
func checkHeld(t *testing.T, c collection, o *object, accepted []bool, answers []*object) string {
	t.Helper()
	var want []string
	for i, ok := range accepted {
		if ok {
			want = append(want, fmt.Sprintf("example.com/%d", i))
		}
	}
	left := c.get(o.GetName())
	if len(want) == 0 {
		if left != nil {
			t.Errorf("%s is left, and nothing holds it: %v", o.GetName(), left)
		}
		return "gone"
	}
	if left == nil || left.GetUID() != o.GetUID() {
		t.Errorf("%s is gone, although %v were accepted", o.GetName(), want)
		return "lost"
	}
	got := left.GetFinalizers()
	slices.Sort(got)
	if !slices.Equal(got, want) || left.GetDeletionTimestamp() == nil {
		t.Errorf("%s has finalizers %v, and %v were accepted; deleted at %v", o.GetName(), got, want, left.GetDeletionTimestamp())
	}
	for _, answer := range answers {
		if answer == nil || isStatus(answer) {
			t.Errorf("%s is pending, and a DELETE was answered with %v", o.GetName(), answer)
		}
	}
	return fmt.Sprintf("held by %d", len(want))
}

// H1, S5: the update that takes the last finalizer away removes the object that it is
// about, and no other that has its name by then.
func TestR1_RaceOfEmptyingUpdatesAndRecreation(t *testing.T) {
	onSubjects(t, func(t *testing.T, c collection) {
		var outcomes tally
		race(t, func(name string) {
			first := c.create(name, foreign)
			marked := c.mustRemove(name, nil)
			var second *object
			release := func(patch types.PatchType, body any) func() {
				return func() {
					switch _, err := c.patch(name, patch, body); {
					case err == nil:
						outcomes.add("released")
					case apierrors.IsConflict(err), apierrors.IsNotFound(err), apierrors.IsInvalid(err):
						outcomes.add("refused")
					default:
						t.Errorf("release: %v", err)
					}
				}
			}
			byUID := map[string]any{"metadata": map[string]any{"uid": string(first.GetUID()), "finalizers": []string{}}}
			together(
				release(types.MergePatchType, byUID),
				release(types.MergePatchType, byUID),
				release(types.JSONPatchType, []map[string]any{
					{"op": "test", "path": "/metadata/uid", "value": string(first.GetUID())},
					{"op": "remove", "path": "/metadata/finalizers"},
				}),
				func() {
					emptied := marked.DeepCopy()
					emptied.SetFinalizers(nil)
					_, _ = c.put(emptied)
				},
				func() {
					// Like the first one it is marked and held, so that an update that takes it for that one removes it.
					for second == nil {
						second, _ = c.tryPost(c.named(name, foreign))
					}
					c.mustRemove(name, nil)
				},
			)
			left := c.get(name)
			if left == nil || left.GetUID() != second.GetUID() || !slices.Equal(left.GetFinalizers(), []string{foreign}) {
				t.Errorf("the second %s was uid %s; now there is %v", name, second.GetUID(), left)
			}
		})
		outcomes.expected(t, "released", "refused")
	})
}

// DELETEs with different policies have one of the outcomes that they have one after the other.
func TestR19_RaceOfPolicies(t *testing.T) {
	onSubjects(t, func(t *testing.T, c collection) {
		var outcomes tally
		race(t, func(name string) {
			o := c.create(name, foreign)
			var foregroundErr, orphanErr error
			together(
				func() { _, foregroundErr = c.remove(name, policy(metav1.DeletePropagationForeground)) },
				func() { _, orphanErr = c.remove(name, policy(metav1.DeletePropagationOrphan)) },
			)
			if foregroundErr != nil {
				t.Errorf("foreground: %v", foregroundErr)
			}
			left := c.get(name)
			switch {
			case orphanErr == nil: // first orphan, then foreground
				isMarked(t, left, o, []string{foreign})
				outcomes.add("orphan first")
			case apierrors.IsInvalid(orphanErr):
				isMarked(t, left, o, []string{foreign, foreground})
				outcomes.add("foreground first")
			default:
				t.Errorf("orphan: %v", orphanErr)
			}
		})
		outcomes.expected(t, "orphan first", "foreground first")
	})
}

// A collection that is deleted loses no object whose finalizer was accepted.
func TestR18_RaceOfFinalizersAndDeleteCollection(t *testing.T) {
	onSubjects(t, func(t *testing.T, c collection) {
		var outcomes tally
		race(t, func(name string) {
			const all = 5
			var objects [all]*object
			var accepted [all]bool
			for i := range objects {
				objects[i] = c.labelled(fmt.Sprintf("%s-%d", name, i), name)
			}
			functions := []func(){func() {
				if _, err := c.removeAll(map[string][]string{"labelSelector": {"set=" + name}}, nil); err != nil {
					t.Errorf("delete the collection: %v", err)
				}
			}}
			for i, o := range objects {
				functions = append(functions, func() {
					time.Sleep(rand.N(50 * time.Millisecond)) // the list that the collection is taken from may take long
					accepted[i] = c.hold(o, "example.com/0") == nil
				})
			}
			together(functions...)
			for i, o := range objects {
				outcomes.add(checkHeld(t, c, o, accepted[i:i+1], nil))
			}
		})
		outcomes.expected(t, "gone", "held by 1")
	})
}

// R21: what is created in a namespace is created before the mark, and seen by whoever
// empties the namespace after it, or not at all. Nothing is left behind in a namespace
// that is gone.
func TestR21_RaceOfCreationAndNamespaceDeletion(t *testing.T) {
	s := sharedServer(t)
	namespaces := s.namespaces(t)
	s.subject(t, subjects[1], metav1.NamespaceDefault).create(unique("warm")) // the first one takes the library 2 s
	var outcomes tally
	race(t, func(name string) {
		ns := namespaces.create(name)
		contents := []collection{s.configMaps(t, name), s.subject(t, subjects[1], name)}
		creators := func(c collection) {
			for i := 0; ; i++ {
				// Big ones take their time between admission and storage.
				o := c.named(unique("o"))
				o.SetAnnotations(map[string]string{"big": strings.Repeat("x", 200_000)})
				var err error
				if i%3 == 0 {
					_, err = c.apply(o.GetName())
				} else {
					_, err = c.tryPost(o)
				}
				switch {
				case err == nil:
					outcomes.add("created")
					continue
				case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
					outcomes.add("refused: terminating")
				case apierrors.IsNotFound(err):
					outcomes.add("refused: gone")
				default:
					t.Errorf("create: %v", err)
				}
				return
			}
		}
		together(
			func() { creators(contents[0]) },
			func() { creators(contents[0]) },
			func() { creators(contents[0]) },
			func() { creators(contents[1]) },
			func() { creators(contents[1]) },
			func() { removeNamespace(t, namespaces, ns, contents) },
		)
		for _, c := range contents {
			for range c.names() {
				outcomes.add("left behind")
			}
			if left := c.names(); len(left) > 0 {
				t.Errorf("left behind in %s, which is gone: %d %s", name, len(left), c.resource)
			}
		}
	})
	outcomes.expected(t, "created", "refused: terminating")
}

// removeNamespace deletes a namespace as the namespace controller does, and no more:
// once it is marked, one pass that finds nothing.
func removeNamespace(t *testing.T, namespaces collection, ns *object, contents []collection) {
	t.Helper()
	time.Sleep(rand.N(5 * time.Millisecond))
	marked := namespaces.mustRemove(ns.GetName(), nil)
	for found := true; found; {
		found = false
		for _, c := range contents {
			if len(c.names()) > 0 {
				found = true
				if _, err := c.removeAll(nil, nil); err != nil {
					t.Errorf("empty %s: %v", ns.GetName(), err)
					return
				}
			}
		}
	}
	if _, err := namespaces.finalize(marked); err != nil {
		t.Errorf("finalize %s: %v", ns.GetName(), err)
	}
}
