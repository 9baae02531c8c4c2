package feed

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

// A feed at rest can end: Run returns, the watches are closed, and the feed keeps their revisions. Probe shows
// whether anything has been written since, and the next Run resumes the watches, without lists. A probe reads one
// resource. That is enough if one revision counts the writes to all resources, as in one etcd; RevisionsAreShared
// checks that.

// idle is the state for probes of a feed at rest.
type idle struct {
	shared     map[ownership.Kind]bool // whether the lists of a kind have the revision of the probes
	system     types.UID               // of the namespace kube-system, as probes show it
	distrusted atomic.Bool             // the history is not the watched one
}

// Obstacle returns the reason why the feed could not continue after an end, "" if it could: a kind is not listed,
// cannot be read, or has no numeric revision. It may be called while Run runs, or after it.
func (f *Feed) Obstacle() string {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if !f.Synced() || len(f.monitors) == 0 {
		return "not everything is listed yet"
	}
	for gv := range f.served.failed {
		return gv.String() + " cannot be discovered"
	}
	for _, kind := range sortedKinds(f.monitors) {
		if !f.monitors[kind].canResume() {
			return kind.String() + " cannot be resumed"
		}
	}
	if f.Distrusts() {
		return "the history of the server is another one"
	}
	if len(f.epochs.relist) > 0 || len(f.changed) > 0 {
		return "the served resources may have changed"
	}
	return ""
}

// Probe asks the server for its revision, with one small request. If the server's history is not the watched one
// (R4), its revision cannot be used, and the next Run begins with lists.
func (f *Feed) Probe(ctx context.Context) (revision uint64, err error) {
	r, options, err := f.probed()
	if err != nil {
		return 0, err
	}
	list, err := f.client.Resource(r.gvr).List(ctx, options)
	if err != nil {
		return 0, fmt.Errorf("ask for the revision of the server: %w", err)
	}
	revision, err = strconv.ParseUint(list.ResourceVersion, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("the revision of the server is no number: %w", err)
	}
	for i := range list.Items {
		f.recognize(r.kind, &list.Items[i])
	}
	return revision, nil
}

// recognize compares the namespace kube-system, which cannot be deleted, with the one seen before.
func (f *Feed) recognize(kind ownership.Kind, object *metav1.PartialObjectMetadata) {
	if kind != namespaceKind || object.Name != metav1.NamespaceSystem {
		return
	}
	if f.idle.system != "" && f.idle.system != object.UID {
		f.Distrust()
	}
	f.idle.system = object.UID
}

// namespaceKind is the kind that probes list, where it is served.
var namespaceKind = ownership.Kind{Kind: "Namespace"} //nolint:gochecknoglobals // never changed

// probed returns the resource that probes list, and the list options.
func (f *Feed) probed() (resource, metav1.ListOptions, error) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if m := f.monitors[namespaceKind]; m != nil {
		one := fields.OneTermEqualSelector(metav1.ObjectNameField, metav1.NamespaceSystem).String()
		return m.resource, metav1.ListOptions{Limit: 1, FieldSelector: one}, nil
	}
	for _, kind := range sortedKinds(f.monitors) {
		return f.monitors[kind].resource, metav1.ListOptions{Limit: 1}, nil
	}
	return resource{}, metav1.ListOptions{}, errors.New("read the revision of the server: its resources are unknown")
}

// RevisionsAreShared reports whether the revision that probes show counts the writes to all kinds. Each kind is
// read once, while the server stays at one revision; it is an error if that revision changes, or if a kind cannot
// be read.
func (f *Feed) RevisionsAreShared(ctx context.Context, now uint64) (bool, error) {
	if f.idle.shared == nil {
		f.idle.shared = make(map[ownership.Kind]bool)
	}
	found := make(map[ownership.Kind]bool)
	for kind, r := range f.resources() {
		if isShared, known := f.idle.shared[kind]; known {
			if !isShared {
				return false, nil
			}
			continue
		}
		list, err := f.client.Resource(r.gvr).List(ctx, metav1.ListOptions{Limit: 1})
		if err != nil {
			return false, fmt.Errorf("ask for the revision of %s: %w", kind, err)
		}
		found[kind] = list.ResourceVersion == strconv.FormatUint(now, 10)
	}
	if len(found) == 0 {
		return true, nil
	}
	switch after, err := f.Probe(ctx); {
	case err != nil:
		return false, err
	case after != now:
		return false, errors.New("the server is being written to")
	}
	all := true
	for kind, isShared := range found {
		f.idle.shared[kind] = isShared
		all = all && isShared
	}
	return all, nil
}

// resources returns the resources that have a monitor.
func (f *Feed) resources() map[ownership.Kind]resource {
	f.mu.RLock()
	defer f.mu.RUnlock()
	all := make(map[ownership.Kind]resource, len(f.monitors))
	for kind, m := range f.monitors {
		all[kind] = m.resource
	}
	return all
}

// Distrust makes the next Run begin another epoch, and list everything: the server's history is not the watched
// one (R4). It may be called while Run does not run, and so may Probe and RevisionsAreShared, which are otherwise
// called by one goroutine at a time.
func (f *Feed) Distrust() { f.idle.distrusted.Store(true) }

// Distrusts reports whether the next Run begins another epoch.
func (f *Feed) Distrusts() bool { return f.idle.distrusted.Load() }

// resumeAll continues the monitors of an earlier Run.
func (f *Feed) resumeAll(ctx context.Context, sink Sink, goroutines *sync.WaitGroup) {
	if f.idle.distrusted.Swap(false) {
		f.log.WarnContext(ctx, "the history of the server is another one")
		sink.NewEpoch()
		f.restartAll(ctx, sink, goroutines)
		return
	}
	for _, kind := range sortedKinds(f.monitors) {
		m := f.monitors[kind]
		m.resume()
		m.start(ctx, sink, f.epochs, goroutines)
	}
}
