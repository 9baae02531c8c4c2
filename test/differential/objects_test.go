package differential

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

const (
	// objectsVariable is the number of experiments of each verb group and kind, or "all".
	objectsVariable = "COPPICE_TEST_OBJECTS"
	// kindsVariable is a pattern for the kinds to compare.
	kindsVariable = "COPPICE_TEST_OBJECTS_KINDS"

	// recordedSeed is the seed of the recorded differences.
	recordedSeed = 1

	defaultExperiments = 60
	objectLanes        = 6
)

var rewrite = flag.Bool("rewrite", false, "record the differences of whole objects that are found")

// TestObjectsAreStoredAsUpstream compares how our server and kube-apiserver handle whole objects. The experiments are generated
// from the OpenAPI documents of both: a valid object of each kind with one field changed, right and wrong,
// two fields changed, or all of them; created, replaced, patched in three ways and applied. Objects that are
// stored, valid ones and those of testdata/states.yaml in states in which other updates are allowed, are
// changed in what they have, alone and in pairs, and by every subresource. Compared are the codes, reasons
// and causes of refusals with their field paths and messages, the objects with their defaults, and the
// warnings.
//
// A sample of them is played, another one with COPPICE_TEST_SEED; all of them with
// COPPICE_TEST_OBJECTS=all, which takes half an hour. Differences on purpose are declared (objects_declared_test.go); those that are to be mended are
// recorded in testdata/objects.txt, which must not get longer.
func TestObjectsAreStoredAsUpstream(t *testing.T) {
	pair := servers(t)
	seed := number(t, seedVariable, recordedSeed)
	if *rewrite && seed != recordedSeed {
		t.Fatalf("the differences are recorded with %s=%d, so that those of two runs can be compared", seedVariable, recordedSeed)
	}
	known, err := knownDifferences()
	if err != nil {
		t.Fatal(err)
	}
	c := &objectComparison{seed: seed, known: known, found: map[string]*finding{}, used: map[string]int{}}
	if os.Getenv(objectsVariable) == "all" {
		c.all = true
	} else {
		c.limit = int(number(t, objectsVariable, defaultExperiments))
	}
	c.pair = pair
	c.run(t)
}

// finding is a difference, and where it was seen.
type finding struct {
	count    int
	examples []string
}

// objectComparison plays experiments on both servers.
type objectComparison struct {
	pair  [2]*apiServer
	seed  int64
	all   bool
	limit int             // of experiments of each kind
	known map[string]bool // differences that are recorded

	mu     sync.Mutex
	played int                 // guarded by mu
	agreed [2]int              // guarded by mu: on accepting, on refusing
	found  map[string]*finding // guarded by mu: by the difference in general
	used   map[string]int      // guarded by mu: declarations, by reason
}

func (c *objectComparison) run(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	namespace := fmt.Sprintf("objects-%d", os.Getpid())
	for _, s := range c.pair {
		if err := s.prepare(ctx, namespace); err != nil {
			t.Fatal(err)
		}
	}
	kinds, missing, err := objectKinds(ctx, c.pair, namespace)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("seed %d; not served by both: %v", c.seed, missing)
	states, err := readStates()
	if err != nil {
		t.Fatal(err)
	}
	wanted := regexp.MustCompile("^(" + os.Getenv(kindsVariable) + ")$")
	for _, k := range kinds {
		if os.Getenv(kindsVariable) != "" && !wanted.MatchString(k.gvk.Kind) {
			continue
		}
		if err := c.compareKind(ctx, k); err != nil {
			t.Error(err)
		}
		for _, state := range states[k.gvk.String()] {
			if err := c.compareState(ctx, k.in(state, namespace)); err != nil {
				t.Error(err)
			}
		}
	}
	c.report(t)
}

// compareKind plays the experiments with one kind.
func (c *objectComparison) compareKind(ctx context.Context, k *objectKind) error {
	random := rand.New(rand.NewPCG(uint64(c.seed), 2))
	pairs := c.limit
	if c.all {
		pairs = len(k.spec())
	}
	if err := c.playAll(ctx, c.chosen(random, k.creations(random, pairs)), [2]map[string]any{}); err != nil {
		return err
	}
	stored, err := c.store(ctx, k)
	if err != nil {
		return fmt.Errorf("%s: %w", k.gvk.Kind, err)
	}
	err = errors.Join(
		c.playAll(ctx, c.chosen(random, k.alterations(random)), stored),
		c.playAll(ctx, c.chosen(random, k.combinations(random, stored[1])), stored))
	return errors.Join(err, c.remove(ctx, k))
}

// compareState plays the experiments with an object in a state.
func (c *objectComparison) compareState(ctx context.Context, k *objectKind) error {
	random := rand.New(rand.NewPCG(uint64(c.seed), 3))
	stored, err := c.store(ctx, k)
	if err == nil {
		err = errors.Join(
			c.playAll(ctx, c.chosen(random, k.combinations(random, stored[1])), stored),
			c.playAll(ctx, c.chosen(random, k.alterations(random)), stored))
	}
	if err != nil {
		err = fmt.Errorf("%s (%s): %w", k.gvk.Kind, k.state.Name, err)
	}
	return errors.Join(err, c.remove(ctx, k))
}

// chosen returns the experiments to play.
func (c *objectComparison) chosen(random *rand.Rand, all []experiment) []experiment {
	random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	if !c.all && len(all) > c.limit {
		all = all[:c.limit]
	}
	return all
}

// store creates the valid object on both servers, and compares the stored objects.
func (c *objectComparison) store(ctx context.Context, k *objectKind) (stored [2]map[string]any, err error) {
	if err := c.play(ctx, experiment{kind: k, verb: "store"}, stored); err != nil {
		return stored, err
	}
	for _, s := range c.pair {
		if err := s.settled(ctx, k); err != nil {
			return stored, err
		}
	}
	if err := c.reach(ctx, k); err != nil {
		return stored, err
	}
	if err := c.play(ctx, experiment{kind: k, verb: "get"}, stored); err != nil {
		return stored, err
	}
	for i, s := range c.pair {
		code, answer, err := s.send(ctx, http.MethodGet, k.collection+"/"+k.name(), "", nil)
		if err != nil || code != http.StatusOK {
			return stored, fmt.Errorf("%s: get the valid object: %d %v %w", s.name, code, answer, err)
		}
		stored[i] = answer.Object
	}
	return stored, nil
}

// settled waits until the server itself does not change the object any more: a definition is
// established, and whoever checks a group or a flow schema has said what it found.
func (s *apiServer) settled(ctx context.Context, k *objectKind) error {
	awaited := map[string]string{"CustomResourceDefinition": "Established", "APIService": "Available", "FlowSchema": "Dangling"}[k.gvk.Kind]
	if awaited == "" {
		return nil
	}
	for ctx.Err() == nil {
		answer, err := s.get(ctx, k.collection+"/"+k.name())
		if err != nil || answer == nil {
			return err
		}
		conditions, _, _ := unstructured.NestedSlice(answer.Object, "status", "conditions")
		if slices.ContainsFunc(conditions, func(c any) bool {
			condition, _ := c.(map[string]any)
			return condition["type"] == awaited && (awaited != "Established" || condition["status"] == "True")
		}) {
			return nil
		}
	}
	return ctx.Err()
}

// remove deletes the object, and removes its finalizers.
func (c *objectComparison) remove(ctx context.Context, k *objectKind) error {
	object := k.collection + "/" + k.name()
	for _, s := range c.pair {
		if code, answer, err := s.send(ctx, http.MethodDelete, object+"?gracePeriodSeconds=0", "", nil); err != nil || code >= http.StatusBadRequest {
			return fmt.Errorf("%s: delete %s: %d %v %w", s.name, object, code, answer, err)
		}
		if k.gvk.Kind == "Namespace" {
			empty := map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": k.name()}, "spec": map[string]any{}}
			if _, _, err := s.send(ctx, http.MethodPut, object+"/finalize", "application/json", empty); err != nil {
				return fmt.Errorf("%s: finalize %s: %w", s.name, object, err)
			}
		}
		release := map[string]any{"metadata": map[string]any{"finalizers": nil}}
		if code, answer, err := s.send(ctx, http.MethodPatch, object, "application/merge-patch+json", release); err != nil || code != http.StatusOK && code != http.StatusNotFound {
			return fmt.Errorf("%s: release %s: %d %v %w", s.name, object, code, answer, err)
		}
	}
	return nil
}

// playAll plays experiments concurrently: none of them changes a stored object.
func (c *objectComparison) playAll(ctx context.Context, all []experiment, stored [2]map[string]any) error {
	queue := make(chan experiment)
	failures := make([]error, objectLanes)
	var running sync.WaitGroup
	for i := range objectLanes {
		running.Go(func() {
			for e := range queue {
				if err := c.play(ctx, e, stored); err != nil {
					failures[i] = errors.Join(failures[i], fmt.Errorf("%s: %w", e, err))
				}
			}
		})
	}
	for _, e := range all {
		queue <- e
	}
	close(queue)
	running.Wait()
	return errors.Join(failures...)
}

// play sends one experiment to both servers and notes the differences.
func (c *objectComparison) play(ctx context.Context, e experiment, stored [2]map[string]any) error {
	var outcomes [2]objectOutcome
	for i, s := range c.pair {
		var err error
		if outcomes[i], err = s.carry(ctx, e, runtime.DeepCopyJSON(stored[i])); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	ours, theirs := outcomes[0], outcomes[1]
	reconcileObjects(e, ours.object, theirs.object)
	lines := differences(ours, theirs)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.played++
	alike := !slices.ContainsFunc(lines, func(line string) bool { return declaredOfObjects(e, general(e.kind.gvk.Kind, line)) == "" })
	if alike {
		if refused := ours.code >= http.StatusBadRequest; refused {
			c.agreed[1]++
		} else {
			c.agreed[0]++
		}
	}
	for _, line := range lines {
		if reason := declaredOfObjects(e, general(e.kind.gvk.Kind, line)); reason != "" {
			c.used[reason]++
			continue
		}
		where := key(e.kind.gvk.Kind, line)
		f := c.found[where]
		if f == nil {
			f = &finding{}
			c.found[where] = f
		}
		if f.count++; f.count <= 2 {
			f.examples = append(f.examples, line+"\n    in "+e.String())
		}
	}
	return nil
}

// report fails the test if there are differences that are neither declared nor recorded; and, if
// everything was played, if recorded ones are no more.
func (c *objectComparison) report(t *testing.T) {
	t.Helper()
	lines := slices.SortedFunc(maps.Keys(c.found), func(a, b string) int {
		return cmp.Or(c.found[b].count-c.found[a].count, strings.Compare(a, b))
	})
	recorded := 0
	for _, line := range lines {
		if c.known[line] && !*rewrite {
			recorded += c.found[line].count
			continue
		}
		t.Errorf("%d times: %s\n  %s", c.found[line].count, line, strings.Join(c.found[line].examples, "\n  "))
	}
	t.Logf("seed %d: %d experiments; accepted alike %d, refused alike %d; recorded differences %d times; declared: %v",
		c.seed, c.played, c.agreed[0], c.agreed[1], recorded, c.used)
	if c.agreed[0] == 0 || c.agreed[1] == 0 {
		t.Error("of experiments like these some are accepted and some are not")
	}
	switch {
	case *rewrite:
		c.record(t)
	case c.all && os.Getenv(kindsVariable) == "":
		for _, line := range slices.Sorted(maps.Keys(c.known)) {
			if c.found[line] == nil {
				t.Errorf("a recorded difference is no more: %s", line)
			}
		}
	}
}

// record writes the found differences. Differences that a sample did not play stay recorded.
func (c *objectComparison) record(t *testing.T) {
	t.Helper()
	all := map[string]bool{}
	for line := range c.found {
		all[line] = true
	}
	if !c.all {
		maps.Copy(all, c.known)
	}
	text := recordedHeader + strings.Join(slices.Sorted(maps.Keys(all)), "\n") + "\n"
	if err := os.WriteFile(recordedFile, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
