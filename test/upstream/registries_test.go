// Package upstream compares our registries with upstream's, both in this process: defaults, conversions, validation
// and strategies of k8s.io/kubernetes, called as its API server calls them, without a server, a store or admission.
//
// TestRegistriesAnswerAsUpstream plays what test/differential plays by requests (package variation), and the mutations
// of registry/builtin: every place of every kind with every value; of templates and states, a sample (sample_test.go).
package upstream

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/coppice-dev/coppice/internal/apiserver/registry"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/builtin"
	"github.com/coppice-dev/coppice/internal/testing/difference"
	"github.com/coppice-dev/coppice/internal/testing/variation"
	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/capabilities"
)

const (
	mutations = "../../internal/apiserver/registry/builtin/testdata/mutations"
	shared    = "../differential/testdata/"
	recorded  = "testdata/recorded.txt"

	namespace = "default"
)

// recordedSeed is the seed of the recorded differences. Another one need not find all of them.
const recordedSeed = 1

var (
	seed    = flag.Uint64("seed", recordedSeed, "the seed of the pairs of changes, and of the samples")
	only    = flag.String("kinds", "", "a pattern for the kinds to compare; empty: all")
	rewrite = flag.Bool("rewrite", false, "record the differences that are found")
)

// TestMain silences the log: k8s.io/apiserver logs a line where a check of upstream finds the same mistake twice. Nearly
// everything that is allocated is garbage at once. Containers may be privileged, as with --allow-privileged.
func TestMain(m *testing.M) {
	debug.SetGCPercent(400)
	capabilities.Setup(true, 0)
	klog.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// TestRegistriesAnswerAsUpstream compares, for every kind, what is accepted, the causes of refusals with their types,
// paths and messages, the objects with their defaults, and the warnings: on create, on update, and by the subresources.
// Differences by design are in test/differential/testdata/declared.yaml; those that are to be mended are in
// testdata/recorded.txt, which must not get longer.
func TestRegistriesAnswerAsUpstream(t *testing.T) {
	record, err := difference.ReadRecord(recorded)
	if err != nil {
		t.Fatal(err)
	}
	declarations, err := difference.ReadDeclarations(shared+"declared.yaml", difference.Process)
	if err != nil {
		t.Fatal(err)
	}
	c := &comparison{schemes: builtin.NewSchemes(), findings: difference.NewFindings(declarations.Reason, record)}
	subjects := c.subjects(t)
	c.compareAll(t, subjects)
	c.findings.Whole = *only == "" && *seed == recordedSeed
	if *rewrite {
		if err := c.findings.Rewrite(); err != nil {
			t.Error(err)
		}
	}
	t.Log(counts(c.findings.Played()))
	t.Logf("seed %d", *seed)
	c.findings.Report(t)
	if c.findings.Whole {
		for _, d := range declarations.Unused() {
			t.Errorf("nothing uses a declaration any more: %s", d)
		}
	}
}

// counts returns the numbers of experiments of all kinds as a text.
func counts(played map[string]int) string {
	text := fmt.Sprintf("%d kinds, with their numbers of experiments:", len(played))
	for _, kind := range slices.Sorted(maps.Keys(played)) {
		text += fmt.Sprintf(" %s %d", kind, played[kind])
	}
	return text
}

// TestEverythingStableIsServed checks that we have each endpoint of upstream's stable versions.
func TestEverythingStableIsServed(t *testing.T) {
	we, they := ours(t, builtin.NewSchemes()), theirs(t)
	for version, served := range they.versions {
		for path := range served.endpoints {
			if we.versions[version].endpoints[path] == nil {
				t.Errorf("%s %s is not served", version, path)
			}
		}
	}
}

// comparison plays experiments on both sides.
type comparison struct {
	schemes  registry.Schemes
	findings *difference.Findings
}

// subject is a valid object, or one in a state, and the changes to it.
type subject struct {
	kind    *variation.Kind
	mutated *variation.Mutated // nil: every value in every place
}

// size orders subjects: the largest ones come first, so that no processor is idle at the end.
func (s subject) size() int {
	if s.mutated != nil {
		return 0
	}
	return s.kind.Places()
}

// subjects returns everything that is compared. A kind that only one side serves is in no comparison.
func (c *comparison) subjects(t *testing.T) []subject {
	t.Helper()
	bases, err := variation.ReadBases(mutations)
	if err != nil {
		t.Fatal(err)
	}
	states, err := variation.ReadStates(shared + "states.yaml")
	if err != nil {
		t.Fatal(err)
	}
	mutated, err := variation.ReadMutations(mutations)
	if err != nil {
		t.Fatal(err)
	}
	finder := c.newFinder(t)
	var all []subject
	for _, base := range bases {
		k := finder.kind(t, base)
		if k == nil {
			continue
		}
		all = append(all, subject{kind: k})
		for _, s := range states[k.GVK] {
			all = append(all, subject{kind: k.In(s)})
		}
	}
	for i := range mutated {
		if k := finder.kind(t, mutated[i].Base); k != nil {
			all = append(all, subject{kind: k, mutated: &mutated[i]})
		}
	}
	slices.SortStableFunc(all, func(a, b subject) int { return cmp.Compare(b.size(), a.size()) })
	return all
}

// finder makes the kinds that both sides serve.
type finder struct {
	pair     [2]*side
	document variation.Document
	shapes   map[schema.GroupVersionKind]*variation.Shape
	wanted   *regexp.Regexp
}

func (c *comparison) newFinder(t *testing.T) *finder {
	t.Helper()
	return &finder{
		pair: c.sides(t), document: describe(t, c.schemes), shapes: map[schema.GroupVersionKind]*variation.Shape{},
		wanted: regexp.MustCompile("^(?:" + *only + ")$"),
	}
}

// kind returns the kind of a valid object; nil if it is not compared.
func (f *finder) kind(t *testing.T, base *unstructured.Unstructured) *variation.Kind {
	t.Helper()
	k := &variation.Kind{GVK: base.GroupVersionKind()}
	if *only != "" && !f.wanted.MatchString(k.GVK.Kind) {
		return nil
	}
	for _, s := range f.pair {
		if !s.discover(k, namespace) {
			t.Logf("%s is not served: %s", k.GVK, s.name)
			return nil
		}
	}
	k.Put(base)
	if f.shapes[k.GVK] == nil {
		shape, err := variation.ShapeOf(k.GVK, f.document, f.document)
		if err != nil {
			t.Fatal(err)
		}
		f.shapes[k.GVK] = shape
	}
	k.Shape = f.shapes[k.GVK]
	return k
}

func (c *comparison) sides(t *testing.T) [2]*side {
	t.Helper()
	return [2]*side{ours(t, c.schemes), theirs(t)}
}

// compareAll compares all subjects, each on registries of its own.
func (c *comparison) compareAll(t *testing.T, subjects []subject) {
	t.Helper()
	queue := make(chan subject)
	var running sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		running.Go(func() {
			for s := range queue {
				p := &player{comparison: c, pair: c.sides(t), kind: s.kind}
				if err := p.compare(t.Context(), s); err != nil {
					name := s.kind.GVK.Kind
					if s.kind.State != nil {
						name += " (" + s.kind.State.Name + ")"
					}
					t.Errorf("%s: %v", name, err)
				}
			}
		})
	}
	for _, s := range subjects {
		queue <- s
	}
	close(queue)
	running.Wait()
}

// random returns the source of the random choices about a subject.
func random(s subject) *rand.Rand {
	kind := s.kind.GVK.String()
	return rand.New(rand.NewPCG(*seed, uint64(len(kind))+uint64(strings.Count(kind, "e"))))
}
