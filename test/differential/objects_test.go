package differential

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"regexp"
	"slices"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/coppice-dev/coppice/internal/testing/difference"
	"github.com/coppice-dev/coppice/internal/testing/variation"
)

const (
	// objectsVariable is the number of experiments of each verb group and kind, or "all".
	objectsVariable = "COPPICE_TEST_OBJECTS"
	// kindsVariable is a pattern for the kinds to compare.
	kindsVariable = "COPPICE_TEST_OBJECTS_KINDS"

	// recordedSeed is the seed of the recorded differences.
	recordedSeed = 1

	// declaredFile has the differences of whole objects that docs/semantics.md declares, and recordedFile those that
	// are to be mended.
	declaredFile = "testdata/declared.yaml"
	recordedFile = "testdata/objects.txt"

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
// COPPICE_TEST_OBJECTS=all, which takes three quarters of an hour. Differences on purpose are declared
// (testdata/declared.yaml), in words of docs/semantics.md; those that are to be mended are recorded in
// testdata/objects.txt, which must not get longer.
func TestObjectsAreStoredAsUpstream(t *testing.T) {
	pair := servers(t)
	seed := number(t, seedVariable, recordedSeed)
	if *rewrite && seed != recordedSeed {
		t.Fatalf("the differences are recorded with %s=%d, so that those of two runs can be compared", seedVariable, recordedSeed)
	}
	record, err := difference.ReadRecord(recordedFile)
	if err != nil {
		t.Fatal(err)
	}
	declarations, err := difference.ReadDeclarations(declaredFile, difference.Server)
	if err != nil {
		t.Fatal(err)
	}
	c := &objectComparison{seed: seed, declarations: declarations, chosen: map[string]bool{}}
	c.findings = difference.NewFindings(declarations.Reason, record)
	if os.Getenv(objectsVariable) == "all" {
		c.all = true
	} else {
		c.limit = int(number(t, objectsVariable, defaultExperiments))
	}
	c.pair = pair
	c.run(t)
}

// objectComparison plays experiments on both servers.
type objectComparison struct {
	pair         [2]*apiServer
	seed         int64
	all          bool
	limit        int // of experiments of each kind
	declarations *difference.Declarations
	findings     *difference.Findings
	kinds        []string        // all that both servers serve
	chosen       map[string]bool // by kind: it is compared
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
	states, err := variation.ReadStates(statesFile)
	if err != nil {
		t.Fatal(err)
	}
	wanted := regexp.MustCompile("^(" + cmp.Or(os.Getenv(kindsVariable), ".*") + ")$")
	for _, k := range kinds {
		c.kinds = append(c.kinds, k.GVK.Kind)
		if c.chosen[k.GVK.Kind] = wanted.MatchString(k.GVK.Kind); !c.chosen[k.GVK.Kind] {
			continue
		}
		if err := c.compareKind(ctx, k); err != nil {
			t.Error(err)
		}
		if c.all {
			experiments, sorts := c.findings.Progress()
			t.Logf("%s is compared; %d experiments so far, %d sorts of differences", k.GVK.Kind, experiments, sorts)
		}
		for _, state := range states[k.GVK] {
			if err := c.compareState(ctx, k.In(state)); err != nil {
				t.Error(err)
			}
		}
	}
	c.report(t)
}

// compareKind plays the experiments with one kind.
func (c *objectComparison) compareKind(ctx context.Context, k *variation.Kind) error {
	random := rand.New(rand.NewPCG(uint64(c.seed), 2))
	pairs := c.limit
	if c.all {
		pairs = k.Places()
	}
	if err := c.playAll(ctx, c.sample(random, k.Creations(random, pairs)), [2]map[string]any{}); err != nil {
		return err
	}
	stored, err := c.store(ctx, k)
	if err != nil {
		return fmt.Errorf("%s: %w", k.GVK.Kind, err)
	}
	err = errors.Join(
		c.playAll(ctx, c.sample(random, k.Alterations(random)), stored),
		c.playAll(ctx, c.sample(random, k.Combinations(random, stored[1])), stored))
	return errors.Join(err, c.remove(ctx, k))
}

// compareState plays the experiments with an object in a state.
func (c *objectComparison) compareState(ctx context.Context, k *variation.Kind) error {
	random := rand.New(rand.NewPCG(uint64(c.seed), 3))
	stored, err := c.store(ctx, k)
	if err == nil {
		err = errors.Join(
			c.playAll(ctx, c.sample(random, k.Combinations(random, stored[1])), stored),
			c.playAll(ctx, c.sample(random, k.Alterations(random)), stored))
	}
	if err != nil {
		err = fmt.Errorf("%s (%s): %w", k.GVK.Kind, k.State.Name, err)
	}
	return errors.Join(err, c.remove(ctx, k))
}

// ofRequester are the fields of a CertificateSigningRequest about its requester.
var ofRequester = regexp.MustCompile(`^spec\.(extra|groups|uid|username)\b`)

// sample returns the experiments to play. None changes what a CertificateSigningRequest says of its requester, who is
// another one on each server.
func (c *objectComparison) sample(random *rand.Rand, all []variation.Experiment) []variation.Experiment {
	all = slices.DeleteFunc(all, func(e variation.Experiment) bool {
		return e.Kind.GVK.Kind == "CertificateSigningRequest" && slices.ContainsFunc(e.Changes, func(c variation.Change) bool { return ofRequester.MatchString(c.Place()) })
	})
	random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	if !c.all && len(all) > c.limit {
		all = all[:c.limit]
	}
	return all
}

// store creates the valid object on both servers, and compares the stored objects.
func (c *objectComparison) store(ctx context.Context, k *variation.Kind) (stored [2]map[string]any, err error) {
	if err := c.play(ctx, variation.Experiment{Kind: k, Verb: "store"}, stored); err != nil {
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
	if err := c.play(ctx, variation.Experiment{Kind: k, Verb: "get"}, stored); err != nil {
		return stored, err
	}
	for i, s := range c.pair {
		code, answer, err := s.send(ctx, http.MethodGet, pathOf(k), "", nil)
		if err != nil || code != http.StatusOK {
			return stored, fmt.Errorf("%s: get the valid object: %d %v %w", s.name, code, answer, err)
		}
		stored[i] = answer.Object
	}
	return stored, nil
}

// settled waits until the server itself does not change the object any more: a definition is
// established, and whoever checks a group or a flow schema has said what it found.
func (s *apiServer) settled(ctx context.Context, k *variation.Kind) error {
	awaited := map[string]string{"CustomResourceDefinition": "Established", "APIService": "Available", "FlowSchema": "Dangling"}[k.GVK.Kind]
	if awaited == "" {
		return nil
	}
	for ctx.Err() == nil {
		answer, err := s.get(ctx, pathOf(k))
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
func (c *objectComparison) remove(ctx context.Context, k *variation.Kind) error {
	object := pathOf(k)
	for _, s := range c.pair {
		if code, answer, err := s.send(ctx, http.MethodDelete, object+"?gracePeriodSeconds=0", "", nil); err != nil || code >= http.StatusBadRequest {
			return fmt.Errorf("%s: delete %s: %d %v %w", s.name, object, code, answer, err)
		}
		if k.GVK.Kind == "Namespace" {
			empty := map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": k.Name()}, "spec": map[string]any{}}
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
func (c *objectComparison) playAll(ctx context.Context, all []variation.Experiment, stored [2]map[string]any) error {
	queue := make(chan variation.Experiment)
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
func (c *objectComparison) play(ctx context.Context, e variation.Experiment, stored [2]map[string]any) error {
	var outcomes [2]difference.Outcome
	for i, s := range c.pair {
		var err error
		if outcomes[i], err = s.carry(ctx, e, runtime.DeepCopyJSON(stored[i])); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	c.findings.Note(e, outcomes[0], outcomes[1])
	return nil
}

// report fails the test if there are differences that are neither declared nor recorded; and, if
// everything was played, if recorded ones are no more.
func (c *objectComparison) report(t *testing.T) {
	t.Helper()
	c.findings.Whole = c.all && os.Getenv(kindsVariable) == ""
	if *rewrite {
		if err := c.findings.Rewrite(); err != nil {
			t.Error(err)
		}
	}
	t.Logf("seed %d", c.seed)
	c.findings.Report(t)
	c.reportUnused(t)
}

// reportUnused fails the test if a declaration is about no kind, or has permitted nothing although everything was played
// with each kind that it is about.
func (c *objectComparison) reportUnused(t *testing.T) {
	t.Helper()
	for _, d := range c.declarations.Unused() {
		objects := d.Objects(c.kinds)
		switch isLeft := func(kind string) bool { return !c.chosen[kind] }; {
		case len(objects) == 0:
			t.Errorf("a declaration is about no kind: %s", d)
		case c.all && !slices.ContainsFunc(objects, isLeft):
			t.Errorf("nothing uses a declaration any more: %s", d)
		}
	}
}

// TestDeclaredDifferencesAreInTheDocument checks that docs/semantics.md has the words of each declaration.
func TestDeclaredDifferencesAreInTheDocument(t *testing.T) {
	document, err := os.ReadFile("../../docs/semantics.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, comparison := range []string{difference.Server, difference.Process} {
		declarations, err := difference.ReadDeclarations(declaredFile, comparison)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range declarations.Undocumented(string(document)) {
			t.Errorf("docs/semantics.md, section %q, does not have the words %q of the declared difference %s", d.Section, d.Words, d)
		}
	}
}
