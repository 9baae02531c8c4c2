package faults

import (
	"context"
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apistorage "k8s.io/apiserver/pkg/storage"
)

// mostPast is the number of writes of a resource that are known.
const mostPast = 1024

// past has the latest writes of a resource. The zero value is empty. It is safe for concurrent use.
type past struct {
	mu     sync.Mutex
	writes []pastWrite // guarded by mu; the oldest first
}

type pastWrite struct {
	time    time.Time
	version uint64
}

// wrote keeps the resourceVersion of a write. Writes that end at the same time may come in any order.
func (p *past) wrote(version uint64, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.writes); n > 0 && p.writes[n-1].version >= version {
		return
	}
	if len(p.writes) == mostPast {
		p.writes = append(p.writes[:0], p.writes[mostPast/2:]...)
	}
	p.writes = append(p.writes, pastWrite{now, version})
}

// at returns the resourceVersion of the state at a time; false if that is the newest one.
func (p *past) at(t time.Time) (version uint64, former bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, w := range p.writes {
		if w.time.After(t) {
			return w.version - 1, true
		}
	}
	return 0, false
}

// remember keeps the resourceVersion of a written object, if there may be stale lists.
func (f *faulty) remember(written runtime.Object) {
	if t := f.injector.current.Load(); t == nil || !t.staleLists {
		return
	}
	o, err := meta.Accessor(written)
	if err != nil {
		return
	}
	if version, err := strconv.ParseUint(o.GetResourceVersion(), 10, 64); err == nil {
		f.past.wrote(version, f.injector.clock.Now())
	}
}

// Create implements apistorage.Interface.
func (f *faulty) Create(ctx context.Context, key string, obj, out runtime.Object, ttl uint64) error {
	err := f.Interface.Create(ctx, key, obj, out, ttl)
	if err == nil {
		f.remember(out)
		f.wrote(ctx, out)
	}
	return err
}

// GuaranteedUpdate implements apistorage.Interface.
func (f *faulty) GuaranteedUpdate(
	ctx context.Context, key string, destination runtime.Object, ignoreNotFound bool,
	preconditions *apistorage.Preconditions, tryUpdate apistorage.UpdateFunc, cached runtime.Object,
) error {
	err := f.Interface.GuaranteedUpdate(ctx, key, destination, ignoreNotFound, preconditions, tryUpdate, cached)
	if err == nil {
		f.remember(destination)
		f.wrote(ctx, destination)
	}
	return err
}

// Delete implements apistorage.Interface.
func (f *faulty) Delete(
	ctx context.Context, key string, out runtime.Object, preconditions *apistorage.Preconditions,
	validate apistorage.ValidateObjectFunc, cached runtime.Object, opts apistorage.DeleteOptions,
) error {
	err := f.Interface.Delete(ctx, key, out, preconditions, validate, cached, opts)
	if err == nil {
		f.remember(out)
		f.removed(ctx, out)
	}
	return err
}

// Get implements apistorage.Interface.
func (f *faulty) Get(ctx context.Context, key string, opts apistorage.GetOptions, out runtime.Object) error {
	err := f.Interface.Get(ctx, key, opts, out)
	if err == nil {
		f.got(ctx, out)
	}
	return err
}

// GetList implements apistorage.Interface. A list of a former state that etcd no longer has is answered from the newest.
func (f *faulty) GetList(ctx context.Context, key string, opts apistorage.ListOptions, list runtime.Object) error {
	err := f.list(ctx, key, opts, list)
	if err == nil {
		f.listed(ctx, opts, list)
	}
	return err
}

func (f *faulty) list(ctx context.Context, key string, opts apistorage.ListOptions, list runtime.Object) error {
	if version, former := f.formerOf(ctx); former && f.Interface.GetList(ctx, key, exactly(version, opts), list) == nil {
		return nil
	}
	return f.Interface.GetList(ctx, key, opts, list)
}

// formerOf returns the resourceVersion of the former state from which a request is answered; false: it is answered from
// the newest.
func (f *faulty) formerOf(ctx context.Context) (version string, former bool) {
	e := exchangeOf(ctx)
	if e == nil || e.fate.Age == 0 {
		return "", false
	}
	number, former := f.past.at(f.injector.clock.Now().Add(-e.fate.Age))
	return strconv.FormatUint(number, 10), former
}

// exactly returns the options of a list of the state at a resourceVersion. It is whole, as a list at resourceVersion 0.
func exactly(version string, opts apistorage.ListOptions) apistorage.ListOptions {
	opts.ResourceVersion, opts.ResourceVersionMatch, opts.SendInitialEvents = version, metav1.ResourceVersionMatchExact, nil
	opts.Predicate.Limit = 0
	return opts
}
