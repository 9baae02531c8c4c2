package faults

import (
	"context"
	"log/slog"
	"strconv"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	apistorage "k8s.io/apiserver/pkg/storage"
	"k8s.io/utils/clock"

	"github.com/coppice-dev/coppice/internal/rules/anomaly"
)

// witness feeds a detector of anomalies with the requests that reach the storages, while there is a plan. It is safe for
// concurrent use.
type witness struct {
	clock    clock.PassiveClock
	log      *slog.Logger
	mu       sync.Mutex
	detector *anomaly.Detector // guarded by mu
	logged   int               // guarded by mu; of the detector's findings
	total    int               // guarded by mu; findings of all detectors
	watches  uint64            // guarded by mu; the number of watches so far
}

func newWitness(c Config) *witness {
	return &witness{clock: c.Clock, log: c.Log, detector: anomaly.NewDetector()}
}

// with calls a function with the detector, and logs its findings.
func (w *witness) with(use func(d *anomaly.Detector)) {
	for _, a := range w.findings(use) {
		w.log.Warn("a client has acted on an old state", "kind", string(a.Kind), "client", a.Client.Program, "user", a.Client.User, "anomaly", a.Text)
	}
}

// findings calls a function with the detector, and returns the new findings.
func (w *witness) findings(use func(d *anomaly.Detector)) []anomaly.Anomaly {
	w.mu.Lock()
	defer w.mu.Unlock()
	use(w.detector)
	found, _ := w.detector.Found()
	latest := found[w.logged:]
	w.total += len(latest)
	w.logged = len(found)
	return latest
}

// clear begins anew, without findings.
func (w *witness) clear() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.detector, w.logged = anomaly.NewDetector(), 0
}

// Conclude logs how many faults and anomalies there were, if there were any.
func (i *Injector) Conclude() {
	happened := i.journal.count()
	i.witness.mu.Lock()
	total := i.witness.total
	i.witness.mu.Unlock()
	if happened > 0 || total > 0 {
		i.witness.log.Info("clients have met faults", "requests", happened, "anomalies", total)
	}
}

// witness returns the witness of the injector while there is a plan; nil without one.
func (f *faulty) witness() *witness {
	if f.injector.current.Load() == nil {
		return nil
	}
	return f.injector.witness
}

// requestIn returns the request of a client for the storage's resource; false for one of the control plane, or one that
// reads or writes this resource in passing.
func (f *faulty) requestIn(ctx context.Context) (Request, bool) {
	e := exchangeOf(ctx)
	if e == nil || e.request.Resource != f.resource {
		return Request{}, false
	}
	return e.request, true
}

// client returns the client of a request. The client chooses its name, so its length is bounded.
func (r Request) client() anomaly.Client {
	return anomaly.Client{User: clip(r.User), Program: clip(r.Client)}
}

func (r Request) object() anomaly.Name {
	return anomaly.Name{Resource: clip(r.Resource), Namespace: clip(r.Namespace), Name: clip(r.Name)}
}

// wrote reports a write after which an object is there.
func (f *faulty) wrote(ctx context.Context, written runtime.Object) {
	w := f.witness()
	if w == nil {
		return
	}
	write, ok := f.write(ctx, written)
	if !ok {
		return
	}
	write.Time, write.Content = w.clock.Now(), contentOf(written)
	w.with(func(d *anomaly.Detector) { d.Wrote(write) })
}

// removed reports a write after which an object is gone.
func (f *faulty) removed(ctx context.Context, last runtime.Object) {
	w := f.witness()
	if w == nil {
		return
	}
	write, ok := f.write(ctx, last)
	if !ok {
		return
	}
	write.Time, write.Gone = w.clock.Now(), true
	w.with(func(d *anomaly.Detector) { d.Wrote(write) })
}

// write describes a write of an object by the request of a context.
func (f *faulty) write(ctx context.Context, written runtime.Object) (anomaly.Write, bool) {
	o, err := meta.Accessor(written)
	if err != nil {
		return anomaly.Write{}, false
	}
	r, ofClient := f.requestIn(ctx)
	return anomaly.Write{
		Client: r.client(), Verb: r.Verb, UID: string(o.GetUID()), Version: versionOf(written),
		Object:   anomaly.Name{Resource: f.resource, Namespace: o.GetNamespace(), Name: o.GetName()},
		Answered: ofClient && exchangeOf(ctx).fate.Loss == "",
	}, true
}

// got reports that a client has read one object.
func (f *faulty) got(ctx context.Context, read runtime.Object) {
	w := f.witness()
	r, ok := f.requestIn(ctx)
	if o, err := meta.Accessor(read); w != nil && ok && r.Verb == "get" && err == nil {
		w.with(func(d *anomaly.Detector) { d.Read(r.client(), string(o.GetUID()), versionOf(read)) })
	}
}

// listed reports that a client has read a list: a whole scope, or a part of one.
func (f *faulty) listed(ctx context.Context, opts apistorage.ListOptions, list runtime.Object) {
	w := f.witness()
	r, ok := f.requestIn(ctx)
	l, err := meta.ListAccessor(list)
	if w == nil || !ok || r.Verb != "list" || err != nil {
		return
	}
	if isWhole(opts) && l.GetContinue() == "" && opts.Predicate.Continue == "" {
		version, err := strconv.ParseUint(l.GetResourceVersion(), 10, 64)
		if err == nil {
			w.with(func(d *anomaly.Detector) { d.Listed(r.client(), r.scope(), version) })
		}
		return
	}
	w.with(func(d *anomaly.Detector) {
		_ = meta.EachListItem(list, func(item runtime.Object) error {
			if o, err := meta.Accessor(item); err == nil {
				d.Read(r.client(), string(o.GetUID()), versionOf(item))
			}
			return nil
		})
	})
}

func (r Request) scope() anomaly.Scope {
	return anomaly.Scope{Resource: clip(r.Resource), Namespace: clip(r.Namespace)}
}

// isWhole reports whether options select all objects of a scope.
func isWhole(opts apistorage.ListOptions) bool {
	p := opts.Predicate
	return (p.Label == nil || p.Label.Empty()) && (p.Field == nil || p.Field.Empty())
}

// watching returns functions that report an event of a client's watch, before it is sent, and the end of the watch.
func (f *faulty) watching(ctx context.Context, opts apistorage.ListOptions) (shows func(event runtime.Object), ends func()) {
	w := f.witness()
	r, ok := f.requestIn(ctx)
	if w == nil || !ok {
		return func(runtime.Object) {}, func() {}
	}
	if !isWhole(opts) {
		return func(event runtime.Object) {
			if o, err := meta.Accessor(event); err == nil {
				w.with(func(d *anomaly.Detector) { d.Read(r.client(), string(o.GetUID()), versionOf(event)) })
			}
		}, func() {}
	}
	var number uint64
	w.with(func(d *anomaly.Detector) {
		w.watches++
		number = w.watches
		begin, _ := strconv.ParseUint(opts.ResourceVersion, 10, 64) // 0, the beginning, without one
		d.Watches(number, r.client(), r.scope(), begin)
	})
	shows = func(event runtime.Object) {
		version := versionOf(event)
		w.with(func(d *anomaly.Detector) { d.Shows(number, version) })
	}
	return shows, func() { w.with(func(d *anomaly.Detector) { d.Ends(number) }) }
}

// refused reports that a write was answered with an error.
func (i *Injector) refused(r Request, code int) {
	if i.current.Load() == nil || !r.isWrite() {
		return
	}
	i.witness.with(func(d *anomaly.Detector) {
		d.Refused(anomaly.Refusal{
			Time: i.clock.Now(), Client: r.client(), Verb: r.Verb, Object: r.object(), Subresource: r.Subresource, Code: code,
		})
	})
}

// versionOf returns the resourceVersion of an object; 0 if it has none.
func versionOf(o runtime.Object) uint64 {
	accessor, err := meta.Accessor(o)
	if err != nil {
		return 0
	}
	version, err := strconv.ParseUint(accessor.GetResourceVersion(), 10, 64)
	if err != nil {
		return 0
	}
	return version
}

// contentOf returns an object as in JSON. Of internal types, whose fields have no names there, only the metadata do.
func contentOf(o runtime.Object) map[string]any {
	if u, ok := o.(*unstructured.Unstructured); ok {
		return u.Object
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		content = map[string]any{}
	}
	if typed, ok := o.(metav1.ObjectMetaAccessor); ok && content["metadata"] == nil {
		if metadata, ok := typed.GetObjectMeta().(*metav1.ObjectMeta); ok {
			if converted, err := runtime.DefaultUnstructuredConverter.ToUnstructured(metadata); err == nil {
				content["metadata"] = converted
			}
		}
	}
	return content
}
