package conformance

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/internal/cli/conformance/probe"
	"github.com/coppice-dev/coppice/internal/tools/version"
)

// The defaults of coppice conformance. Upstream's collector reads discovery twice a minute, and may
// need longer than that to watch a new kind.
const (
	DefaultTimeout  = 2 * time.Minute
	DefaultParallel = 16
)

// Options are the options of Run.
type Options struct {
	Selection
	// Has are the controllers that run, of Collector and NamespaceController.
	Has Needs
	// Parallel is the number of concurrent checks of one turn; at least 1.
	Parallel int
	// Now is the clock.
	Now func() time.Time
	// Progress, if not nil, is called after each check, by one goroutine at a time.
	Progress func(done, total int, last Result)
}

// Selection selects checks. The zero value selects all.
type Selection struct {
	// Run and Skip match names. A nil Run matches all, a nil Skip none.
	Run, Skip *regexp.Regexp
	// Rules are codes of rules, of invariants, or of the matrix; empty for all.
	Rules []string
}

// has reports whether a check is selected.
func (s Selection) has(c Check) bool {
	return (s.Run == nil || s.Run.MatchString(c.Name)) &&
		(s.Skip == nil || !s.Skip.MatchString(c.Name)) &&
		(len(s.Rules) == 0 || slices.ContainsFunc(s.Rules, c.IsFor))
}

// Select returns the selected checks, in their turns.
func (s Selection) Select(turns []Turn) []Turn {
	var selected []Turn
	for _, turn := range turns {
		turn.Checks = slices.DeleteFunc(slices.Clone(turn.Checks), func(c Check) bool { return !s.has(c) })
		if len(turn.Checks) > 0 {
			selected = append(selected, turn)
		}
	}
	return selected
}

// UnreachableError is the error for checks that could not begin: the server does not answer or
// does not let them create a namespace, or a controller in Options.Has does nothing.
type UnreachableError struct{ error }

// Unwrap returns the cause.
func (e UnreachableError) Unwrap() error { return e.error }

// Run runs checks against a server. Failed checks are in the report. With an error there is no
// report, or an incomplete one if ctx has ended.
func Run(ctx context.Context, s *probe.Server, options Options) (Report, error) {
	r := &runner{server: s, options: options, turns: options.Select(Checks())}
	for _, turn := range r.turns {
		r.total += len(turn.Checks)
	}
	served, err := s.Kube.Discovery().ServerVersion()
	if err != nil {
		return Report{}, UnreachableError{fmt.Errorf("ask %s for its version: %w", s.Config.Host, err)}
	}
	if version.IsOurs(served.GitVersion) {
		r.has = Ours
	}
	began := options.Now()
	if err := r.lookAround(ctx); err != nil {
		return Report{}, err
	}
	for _, turn := range r.turns {
		parallel := max(options.Parallel, 1)
		if turn.Alone {
			parallel = 1
		}
		r.run(ctx, turn.Checks, parallel)
	}
	remaining := r.sweep(ctx)
	report := Report{Server: s.Config.Host, Version: served.GitVersion, Checks: r.inOrder(), Left: remaining}
	report.Seconds = options.Now().Sub(began).Seconds()
	report.sum()
	if err := ctx.Err(); err != nil {
		return report, fmt.Errorf("interrupted after %d of %d checks", len(r.results), r.total)
	}
	return report, nil
}

// runner is one run.
type runner struct {
	server  *probe.Server
	options Options
	turns   []Turn
	total   int
	has     Needs

	mu      sync.Mutex
	results map[string]Result // guarded; by the name of the check
}

// lookAround finds out which needs the server meets, and whether the controllers work: otherwise
// every check would wait for them until its deadline.
func (r *runner) lookAround(ctx context.Context) error {
	r.results = map[string]Result{}
	r.has |= r.options.Has
	needs := Needs(0)
	for _, turn := range r.turns {
		for _, c := range turn.Checks {
			needs |= c.Needs
		}
	}
	check := func(what string, do func(w *probe.Space)) error {
		t := try(ctx, what, func(t probe.T) { do(probe.NewSpace(t, r.server)) })
		if t.Failed() {
			return UnreachableError{errors.New(what + ": " + strings.Join(t.failures, "; "))}
		}
		return nil
	}
	err := check("see what the server has", func(w *probe.Space) {
		if w.HasDefinitions() {
			r.has |= CustomResources
		}
		if w.DryCreate(probe.ConfigMaps, "owned", probe.OwnedBy(probe.Nobody(probe.UnknownKind))) == nil {
			r.has |= AnyOwners
		}
	})
	if err == nil && needs&r.has&Collector != 0 {
		err = check("no collector seems to run on this server (--controllers says which do)", func(w *probe.Space) { w.Settle(probe.ConfigMaps) })
	}
	if err == nil && needs&r.has&NamespaceController != 0 {
		err = check("no namespace controller seems to run on this server (--controllers says which do)", func(w *probe.Space) { w.EventuallyGone(w.End()) })
	}
	return err
}

// run runs the checks of one turn.
func (r *runner) run(ctx context.Context, checks []Check, parallel int) {
	next := make(chan Check)
	var workers sync.WaitGroup
	for range parallel {
		workers.Go(func() {
			for check := range next {
				r.done(r.one(ctx, check))
			}
		})
	}
	for _, check := range checks {
		if ctx.Err() != nil {
			break
		}
		next <- check
	}
	close(next)
	workers.Wait()
}

// one runs one check.
func (r *runner) one(ctx context.Context, check Check) Result {
	if lacks := check.Needs &^ r.has; lacks != 0 {
		return Result{Name: check.Name, Rules: check.RuleCodes(), Outcome: Skipped, Reason: lacks.reason()}
	}
	began := r.options.Now()
	t := try(ctx, check.Name, func(t probe.T) { check.Run(probe.NewSpace(t, r.server)) })
	result := t.result(check)
	if ctx.Err() != nil {
		result = Result{Name: check.Name, Rules: check.RuleCodes(), Outcome: Skipped, Reason: "interrupted"}
	}
	result.Seconds = r.options.Now().Sub(began).Seconds()
	return result
}

func (r *runner) done(result Result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.results[result.Name] = result
	if r.options.Progress != nil {
		r.options.Progress(len(r.results), r.total, result)
	}
}

// inOrder returns the results in the order of the checks.
func (r *runner) inOrder() []Result {
	var all []Result
	for _, turn := range r.turns {
		for _, check := range turn.Checks {
			if result, ok := r.results[check.Name]; ok {
				all = append(all, result)
			}
		}
	}
	return all
}

// sweep deletes the remaining namespaces of this run, and waits until they are gone if there
// is a namespace controller. It returns the namespaces that still exist.
func (r *runner) sweep(ctx context.Context) (remaining []string) {
	ctx = context.WithoutCancel(ctx)
	try(ctx, "clean up", func(t probe.T) {
		w := probe.At(t, r.server, "")
		w.Until("the namespaces of the checks to go", func() string {
			remaining = nil
			of := r.server.Kube.CoreV1().Namespaces()
			list, err := of.List(ctx, metav1.ListOptions{LabelSelector: probe.RunLabel + "=" + probe.Run()})
			if err != nil {
				return err.Error()
			}
			for i := range list.Items {
				ns := &list.Items[i]
				remaining = append(remaining, ns.Name)
				if ns.DeletionTimestamp == nil {
					_ = of.Delete(ctx, ns.Name, metav1.DeleteOptions{}) // tried again if it fails
				}
			}
			if r.options.Has&NamespaceController == 0 || len(remaining) == 0 {
				return ""
			}
			return fmt.Sprintf("there are still %v", remaining)
		})
	})
	return remaining
}

// reason returns the reason why a check with unmet needs is skipped.
func (n Needs) reason() string {
	switch {
	case n&Ours != 0:
		return "the rule exists only on a server of coppice up"
	case n&Collector != 0:
		return "no collector runs (--controllers)"
	case n&NamespaceController != 0:
		return "no namespace controller runs (--controllers)"
	case n&CustomResources != 0:
		return "the server has no CustomResourceDefinitions"
	}
	return "the server refuses owner references to kinds that are not served, and the like, as ours does by default"
}

// String lists the needs.
func (n Needs) String() string {
	var all []string
	for _, one := range []struct {
		need Needs
		name string
	}{{Collector, "collector"}, {NamespaceController, "namespace controller"}, {CustomResources, "custom resources"}, {AnyOwners, "any owners"}, {Ours, "coppice up"}} {
		if n&one.need != 0 {
			all = append(all, one.name)
		}
	}
	return strings.Join(all, ", ")
}
