package ask

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/coppice-dev/coppice/internal/collect/story"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/cascade"
	"github.com/coppice-dev/coppice/internal/tools/explain"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
	"github.com/coppice-dev/coppice/internal/tools/preview"
	"github.com/coppice-dev/coppice/internal/tools/reader"
)

const (
	// soon is the shortest pause between two readings. Without a watch that asks for a reading, the pauses grow from
	// unasked to patient, and take share times as long as a reading.
	soon, unasked, patient = 200 * time.Millisecond, time.Second, 10 * time.Second

	share = 4

	// mostUnauthorized is the number of readings in a row after which a wait ends, if the server does not accept the
	// credentials: one such answer may come from a server that has just started.
	mostUnauthorized = 3
)

// Ending asks for the end of a deletion.
type Ending struct {
	// Args name requested objects: TYPE/NAME …, or TYPE NAME ….
	Args []string
	// Story is the ID of a deletion that a collector has recorded.
	Story string
	// Predicted is the preview of a deletion that was made as previewed.
	Predicted *preview.Report
}

// NotDeletedError is the error for an object that is not being deleted.
type NotDeletedError struct{ Object cascade.Stay }

func (e *NotDeletedError) Error() string {
	return fmt.Sprintf("%s is not being deleted (%s): delete it first, as with \"kubectl delete --wait=false\"; \"coppice delete --wait\" does both", e.Object.Ref, e.Object.Why)
}

// Wait waits until a deletion is over, and returns the last report. It calls visit with each report before. If ctx ends
// first, the state of the last report is Waiting, or TimedOut if that was its deadline.
func (s *Sources) Wait(ctx context.Context, q Ending, visit func(cascade.Report) error) (cascade.Report, error) {
	w, err := s.newWaiting(ctx, q)
	if err != nil {
		return w.unfinished(ctx, err)
	}
	defer w.follower.Stop()
	unauthorized := 0
	for interval := unasked; ; interval = min(2*interval, patient) {
		began := s.Now()
		outline := w.report.Outline()
		if err := w.observe(ctx); err != nil {
			if unauthorized++; !apierrors.IsUnauthorized(err) {
				unauthorized = 0
			}
			switch {
			case ctx.Err() != nil || w.observed == 0:
				return w.unfinished(ctx, err)
			case unauthorized == mostUnauthorized:
				return w.report, fmt.Errorf("the server does not accept the credentials any more, objects left: %d; the deletion goes on: %w", w.report.Left, err)
			}
			w.report.Unread = []string{err.Error()}
		} else if unauthorized = 0; w.report.IsFinal() {
			return w.report, nil
		}
		if err := visit(w.report); err != nil {
			return w.report, err
		}
		if w.report.Outline() != outline {
			interval = unasked
		}
		reading := s.Now().Sub(began)
		if !w.pause(ctx, max(soon, reading), max(interval, share*reading)) {
			return w.unfinished(ctx, ctx.Err())
		}
	}
}

// waiting is one wait.
type waiting struct {
	*Sources

	question Ending
	cascade  *cascade.Cascade
	follower *reader.Follower
	args     []string // of the objects whose namespaces are read; none for the whole cluster
	before   *inventory.Inventory
	report   cascade.Report
	observed int
}

// newWaiting returns a wait. A recorded deletion, or a predicted one, names its objects.
func (s *Sources) newWaiting(ctx context.Context, q Ending) (*waiting, error) {
	w := &waiting{Sources: s, question: q, cascade: cascade.New(), args: q.Args, report: cascade.Report{State: cascade.Waiting}}
	var err error
	if w.follower, err = reader.NewFollower(s.Config); err != nil {
		return w, err
	}
	var roots []explain.Ref
	switch {
	case q.Story != "":
		roots, err = w.addStory(ctx, q.Story)
	case q.Predicted != nil:
		roots = w.addPredicted(q.Predicted)
	default:
		return w, nil
	}
	w.scope(roots)
	return w, err
}

// scope limits the readings to the namespace of the roots, if all are in one.
func (w *waiting) scope(roots []explain.Ref) {
	w.args = nil
	for _, r := range roots {
		if r.Namespace != roots[0].Namespace {
			w.args = nil
			return
		}
		w.args = append(w.args, strings.ToLower(r.Kind)+"/"+r.Name)
	}
	if len(roots) > 0 && roots[0].Namespace != "" {
		scoped := *w.Sources
		scoped.Namespace = roots[0].Namespace
		w.Sources = &scoped
	}
}

// addPredicted adds the objects of a preview.
func (w *waiting) addPredicted(r *preview.Report) (roots []explain.Ref) {
	for n := range r.Objects {
		o := &r.Objects[n]
		ref := explain.Ref{Kind: o.Kind, Namespace: o.Namespace, Name: o.Name, UID: ownership.UID(o.UID)}
		switch {
		case o.Requested:
			roots = append(roots, ref)
			w.cascade.AddRoot(ref)
		case o.Fate == preview.Deleted || o.Fate == preview.Waiting:
			w.cascade.Add(ref.UID)
		}
	}
	for _, stay := range cascade.StaysOf(*r) {
		w.cascade.AddStay(stay)
	}
	return roots
}

// addStory adds the objects of a deletion that a collector has recorded.
func (w *waiting) addStory(ctx context.Context, id string) (roots []explain.Ref, err error) {
	c, err := w.findCollector(ctx)
	if err == nil && c == nil {
		err = errors.New("no collector records deletions here: name the objects as TYPE/NAME, or a collector with --address")
	}
	if err != nil {
		return nil, err
	}
	one, err := c.Story(ctx, id)
	if err != nil {
		return nil, err
	}
	for _, r := range rootsIn(&one.Summary) {
		ref := explain.Ref{Kind: r.Kind, Namespace: r.Namespace, Name: r.Name, UID: r.UID}
		roots = append(roots, ref)
		w.cascade.AddRoot(ref)
	}
	w.addRecorded(one.Objects)
	return roots, nil
}

func (w *waiting) addRecorded(objects []story.Object) {
	for n := range objects {
		if o := &objects[n]; o.Fate != story.FateKept {
			w.cascade.Add(o.UID)
		} else {
			w.cascade.AddStay(stayIn(o))
		}
	}
}

func stayIn(o *story.Object) cascade.Stay {
	s := cascade.Stay{Ref: explain.Ref{Kind: o.Kind, Namespace: o.Namespace, Name: o.Name, UID: o.UID}, Why: "orphaned"}
	switch {
	case o.Protected:
		s.Why = "protected"
	case len(o.KeptBy) > 0:
		s.Why = "owned by " + o.KeptBy[0].String()
	}
	return s
}

// rootsIn returns the requested objects of a recorded deletion.
func rootsIn(s *story.Summary) []story.Ref {
	if len(s.Roots) > 0 {
		return s.Roots
	}
	return []story.Ref{s.Root}
}

// observe reads the cluster, and updates the report.
func (w *waiting) observe(ctx context.Context) error {
	n, err := w.neighborhood(ctx, w.args, w.find)
	if err != nil {
		return err
	}
	if n.Inventory.Within == nil {
		w.args = nil // a member may be anywhere
	}
	if w.observed == 0 {
		w.askCollector(ctx, n.Inventory)
	}
	collector, err := w.diagnostics(ctx)
	if err != nil {
		return err
	}
	if n.Collector, err = collector.state(ctx); err != nil {
		return err
	}
	if n.Order, err = w.deletionOrder(ctx, nil); err != nil {
		return err
	}
	n.Before = w.before
	report, part := n.Cascade(ctx, w.cascade)
	if err := ctx.Err(); err != nil {
		return err // facts may be missing
	}
	if kept := slices.Concat(part.Kept, w.untouched(n.Inventory, part.Going)); len(kept) > 0 {
		return &NotDeletedError{kept[0]}
	}
	w.report, w.before = report, n.Inventory
	w.observed++
	var going []*inventory.Object
	for _, uid := range part.Going {
		going = append(going, n.Inventory.Object(uid))
	}
	w.follower.Follow(ctx, going)
	return nil
}

// untouched returns the requested objects of a preview that are not being deleted, although each DELETE was answered: the
// answer was wrong.
func (w *waiting) untouched(inv *inventory.Inventory, going []ownership.UID) (kept []cascade.Stay) {
	if w.question.Predicted == nil {
		return nil
	}
	for n := range w.question.Predicted.Objects {
		root := &w.question.Predicted.Objects[n]
		o := inv.Object(ownership.UID(root.UID))
		if root.Requested && o != nil && o.Phase == ownership.Active && !slices.Contains(going, o.UID) {
			ref := explain.Ref{Kind: root.Kind, Namespace: root.Namespace, Name: root.Name, UID: o.UID}
			kept = append(kept, cascade.Stay{Ref: ref, Why: "its DELETE has had no effect"})
		}
	}
	return kept
}

// find returns the objects of the cascade in an inventory.
func (w *waiting) find(inv *inventory.Inventory, _ io.Writer) ([]ownership.UID, error) {
	if w.observed == 0 { // later, a kind may be gone
		selectors, err := inv.ParseSelectors(w.question.Args, w.Namespace)
		if err != nil {
			return nil, InvalidError{err}
		}
		if err := w.cascade.Find(inv, selectors); err != nil {
			return nil, err
		}
	}
	return w.cascade.Underway(inv), nil
}

// askCollector adds what a collector has recorded about named objects that are gone, or have been created again. A
// completed deletion counts only if no object has the name now. Without a collector, or with an error, nothing is added.
func (w *waiting) askCollector(ctx context.Context, inv *inventory.Inventory) {
	untraced := w.cascade.Untraced(inv)
	if len(untraced) == 0 {
		return
	}
	c, err := w.findCollector(ctx)
	if err != nil || c == nil {
		return
	}
	list, err := c.Stories(ctx)
	if err != nil {
		return
	}
	for _, name := range untraced {
		for n := range list.Items { // the latest first
			one := &list.Items[n]
			root, isIn := rootNamed(one, name)
			if !isIn || one.Done && name.UID != "" {
				continue
			}
			w.cascade.AddEarlier(name, root.UID)
			if full, err := c.Story(ctx, string(one.ID)); err == nil {
				w.addRecorded(full.Objects)
			}
			break
		}
	}
}

// rootNamed returns the requested object of a recorded deletion that had a name.
func rootNamed(one *story.Summary, name explain.Ref) (story.Ref, bool) {
	for _, r := range rootsIn(one) {
		if r.Kind == name.Kind && r.Namespace == name.Namespace && r.Name == name.Name && r.UID != name.UID {
			return r, true
		}
	}
	return story.Ref{}, false
}

// pause waits until the cluster has to be read again: at the latest after the longest time, and after the shortest one
// if a watch asks for it. It returns false if ctx ends.
func (w *waiting) pause(ctx context.Context, shortest, longest time.Duration) bool {
	if w.report.Left == 0 {
		longest = shortest // to confirm it
	}
	late, early := time.NewTimer(longest), time.NewTimer(shortest)
	defer late.Stop()
	defer early.Stop()
	isAsked, isEarly := false, true
	for {
		select {
		case <-ctx.Done():
			return false
		case <-late.C:
			return true
		case <-w.follower.Changed():
			isAsked = true
		case <-early.C:
			isEarly = false
		}
		if isAsked && (!isEarly || w.follower.Left() == 0) {
			return true
		}
	}
}

// unfinished returns the last report of a wait that ended with an error, or at its deadline.
func (w *waiting) unfinished(ctx context.Context, err error) (cascade.Report, error) {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		w.report.State = cascade.TimedOut
		return w.report, nil
	}
	return w.report, err
}
