package apiserver_test

import (
	"fmt"
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

// raceVariable names the environment variable that makes the races longer: the number of
// rounds of each race on each subject ("50000"), or a duration ("60s").
const raceVariable = "COPPICE_TEST_RACES"

const (
	// minRounds is the minimum number of rounds of a race.
	minRounds = 60
	// concurrentRounds is the number of rounds of a race that run concurrently.
	concurrentRounds = 3
)

// race runs rounds of a race until there were enough, or a round fails. A round makes its requests by concurrently, in the
// order of its turn. The turns alone bring up each of the expected outcomes, whatever the machine does.
func race(t *testing.T, outcomes *tally, expected []string, round func(name string, turn int)) {
	t.Helper()
	enough := raceLength(t)
	var begun atomic.Int64
	var lanes sync.WaitGroup
	for range concurrentRounds {
		lanes.Go(func() {
			for !t.Failed() {
				n := begun.Add(1)
				if enough(n) {
					return
				}
				round(unique("race"), int(n))
			}
		})
	}
	lanes.Wait()
	t.Logf("%d rounds: %v", begun.Load()-concurrentRounds, outcomes.counts)
	if !t.Failed() && !outcomes.have(expected) {
		t.Errorf("not all of %q came up", expected)
	}
}

// raceLength returns a function that reports whether a race may end before the nth round.
func raceLength(t *testing.T) (enough func(n int64) bool) {
	t.Helper()
	value := os.Getenv(raceVariable)
	if value == "" {
		return func(n int64) bool { return n > minRounds }
	}
	if rounds, err := strconv.ParseInt(value, 10, 64); err == nil {
		return func(n int64) bool { return n > rounds }
	}
	lasts, err := time.ParseDuration(value)
	if err != nil {
		t.Fatalf("%s: %v", raceVariable, err)
	}
	end := time.Now().Add(lasts)
	return func(int64) bool { return time.Now().After(end) }
}

// concurrently runs all functions. In some turns they begin at the same time; in the others, one of them, by turns, ends
// before the rest begins.
func concurrently(turn int, functions ...func()) {
	if lead := turn % (len(functions) + 1); lead < len(functions) {
		functions[lead]()
		functions = slices.Delete(slices.Clone(functions), lead, lead+1)
	}
	atOnce(functions...)
}

// atOnce runs all functions at nearly the same time.
func atOnce(functions ...func()) {
	var all sync.WaitGroup
	start := make(chan struct{})
	for _, f := range functions {
		all.Go(func() {
			<-start
			f()
		})
	}
	close(start)
	all.Wait()
}

// tally counts the outcomes of a race.
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

// have reports whether each of the outcomes has occurred.
func (c *tally) have(outcomes []string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !slices.ContainsFunc(outcomes, func(outcome string) bool { return c.counts[outcome] == 0 })
}

// hold adds a finalizer to the object with that uid, and keeps the others. It reports whether the server
// accepted that. The only permitted refusals are: the object does not exist, another write came first, and
// the object is terminating.
func (c collection) hold(o *object, finalizer string) (accepted bool) {
	applied := &object{Object: map[string]any{}}
	applied.SetGroupVersionKind(c.kind)
	applied.SetName(o.GetName())
	applied.SetUID(o.GetUID())
	applied.SetFinalizers([]string{finalizer})
	_, err := c.send(http.MethodPatch, c.at(o.GetName())+"?fieldManager="+finalizer[len("example.com/"):], string(types.ApplyPatchType), applied)
	switch {
	case err == nil:
		return true
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
	case apierrors.IsInvalid(err) && strings.Contains(err.Error(), "no new finalizers can be added if the object is being deleted"):
	default:
		c.t.Errorf("add finalizer %s to %s: %v", finalizer, o.GetName(), err)
	}
	return false
}

// kubernetes#77988: a finalizer that was accepted holds the object, whatever DELETE runs
// concurrently.
func TestR18_RaceOfFinalizersAndDeletes(t *testing.T) {
	onSubjects(t, func(t *testing.T, c collection) {
		var outcomes tally
		race(t, &outcomes, []string{"gone", "held"}, func(name string, turn int) {
			o := c.create(name)
			var accepted [3]bool
			var functions []func()
			for i := range accepted {
				functions = append(functions, func() { accepted[i] = c.hold(o, fmt.Sprintf("example.com/%d", i)) })
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
			concurrently(turn, functions...)
			outcomes.add(checkHeld(t, c, o, accepted[:], answers[:]))
		})
	})
}

// The same for an object that is held at first, while an update removes that finalizer: that
// update, or the DELETE after it, removes the object if no other finalizer was accepted.
func TestR18_RaceOfFinalizersAndEmptyingUpdates(t *testing.T) {
	onSubjects(t, func(t *testing.T, c collection) {
		var outcomes tally
		release := []map[string]any{
			{"op": "test", "path": "/metadata/finalizers/0", "value": foreign},
			{"op": "remove", "path": "/metadata/finalizers/0"},
		}
		race(t, &outcomes, []string{"gone", "held"}, func(name string, turn int) {
			o := c.create(name, foreign)
			var accepted [2]bool
			var functions []func()
			for i := range accepted {
				functions = append(functions, func() { accepted[i] = c.hold(o, fmt.Sprintf("example.com/%d", i)) })
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
			concurrently(turn, functions...)
			outcomes.add(checkHeld(t, c, o, accepted[:], []*object{answer}))
		})
	})
}

// checkHeld checks an object to which finalizers were added while it was deleted.
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
	return "held"
}

// The update that removes the last finalizer removes the object that it updates, and no later object of the
// same name (S5).
func TestR1_RaceOfEmptyingUpdatesAndRecreation(t *testing.T) {
	onSubjects(t, func(t *testing.T, c collection) {
		var outcomes tally
		race(t, &outcomes, []string{"released", "refused"}, func(name string, turn int) {
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
			var recreation sync.WaitGroup
			recreation.Go(func() {
				// Like the first, it is marked and held, so that an update that confuses the
				// two would remove it.
				for second == nil {
					var err error
					if second, err = c.tryPost(c.named(name, foreign)); err != nil && !apierrors.IsAlreadyExists(err) {
						t.Errorf("create the second: %v", err)
						return
					}
				}
				if _, err := c.remove(name, nil); err != nil {
					t.Errorf("delete the second: %v", err)
				}
			})
			concurrently(turn,
				release(types.MergePatchType, byUID),
				release(types.MergePatchType, byUID),
				release(types.JSONPatchType, []map[string]any{
					{"op": "test", "path": "/metadata/uid", "value": string(first.GetUID())},
					{"op": "remove", "path": "/metadata/finalizers"},
				}),
				func() {
					emptied := marked.DeepCopy()
					emptied.SetFinalizers(nil)
					switch _, err := c.put(emptied); {
					case err == nil:
						outcomes.add("released")
					case apierrors.IsConflict(err), apierrors.IsNotFound(err):
						outcomes.add("refused")
					default:
						t.Errorf("release by an update: %v", err)
					}
				},
			)
			recreation.Wait()
			if second == nil {
				return // reported above
			}
			left := c.get(name)
			if left == nil || left.GetUID() != second.GetUID() || !slices.Equal(left.GetFinalizers(), []string{foreign}) {
				t.Errorf("the second %s was uid %s; now there is %v", name, second.GetUID(), left)
			}
		})
	})
}

// Concurrent DELETEs with different policies have one of the outcomes of sequential ones.
func TestR19_RaceOfPolicies(t *testing.T) {
	onSubjects(t, func(t *testing.T, c collection) {
		var outcomes tally
		race(t, &outcomes, []string{"orphan first", "foreground first"}, func(name string, turn int) {
			o := c.create(name, foreign)
			var foregroundErr, orphanErr error
			concurrently(turn,
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
	})
}

// The deletion of a collection removes no object whose finalizer was accepted.
func TestR18_RaceOfFinalizersAndDeleteCollection(t *testing.T) {
	onSubjects(t, func(t *testing.T, c collection) {
		var outcomes tally
		race(t, &outcomes, []string{"gone", "held"}, func(name string, turn int) {
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
					accepted[i] = c.hold(o, "example.com/0")
				})
			}
			concurrently(turn, functions...)
			for i, o := range objects {
				outcomes.add(checkHeld(t, c, o, accepted[i:i+1], nil))
			}
		})
	})
}

// R21: an object is created before its namespace is marked, and then observed by the namespace controller,
// or not at all. No object remains in a deleted namespace.
func TestR21_RaceOfCreationAndNamespaceDeletion(t *testing.T) {
	s := sharedServer(t)
	namespaces := s.namespaces(t)
	s.subject(t, subjects[1], metav1.NamespaceDefault).create(unique("warm")) // the first instance takes 2 s
	var outcomes tally
	race(t, &outcomes, []string{"created", "refused: terminating"}, func(name string, turn int) {
		namespaces.create(name)
		contents := []collection{s.configMaps(t, name), s.subject(t, subjects[1], name)}
		made, refused := make(chan struct{}, 100), make(chan struct{}, 5)
		creators := func(c collection) {
			defer func() { refused <- struct{}{} }()
			for i := 0; ; i++ {
				// Large objects take longer between admission and storage.
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
					select {
					case made <- struct{}{}:
					default:
					}
					continue
				case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
					outcomes.add("refused: terminating")
				case apierrors.IsNotFound(err), strings.Contains(err.Error(), `namespaces "`+name+`" not found`):
					// Policies of other tests select by namespace, and return this error if it no longer
					// exists.
					outcomes.add("refused: gone")
				default:
					t.Errorf("create: %v", err)
				}
				return
			}
		}
		atOnce(
			func() { creators(contents[0]) },
			func() { creators(contents[0]) },
			func() { creators(contents[0]) },
			func() { creators(contents[1]) },
			func() { creators(contents[1]) },
			func() {
				for range turn % 8 { // so many are created before; others are on their way
					select {
					case <-made:
					case <-refused:
					}
				}
				marked := namespaces.mustRemove(name, nil)
				if turn%2 == 0 { // a creation meets the marked namespace before that is removed
					<-refused
				}
				emptyNamespace(t, namespaces, marked, contents)
			},
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
}

// emptyNamespace removes a marked namespace as the namespace controller does: it deletes the contents until a sync finds
// none.
func emptyNamespace(t *testing.T, namespaces collection, marked *object, contents []collection) {
	t.Helper()
	for found := true; found; {
		found = false
		for _, c := range contents {
			if len(c.names()) > 0 {
				found = true
				if _, err := c.removeAll(nil, nil); err != nil {
					t.Errorf("empty %s: %v", marked.GetName(), err)
					return
				}
			}
		}
	}
	if _, err := namespaces.finalize(marked); err != nil {
		t.Errorf("finalize %s: %v", marked.GetName(), err)
	}
}
