package backup

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/coppice-dev/coppice/internal/tools/undo"
)

const (
	// fewGets is the most objects of one resource and namespace that Read gets one by one. It lists more.
	fewGets = 20
	// pageSize is the number of objects per page of a list.
	pageSize = 500
	// parallel is the number of concurrent requests.
	parallel = 8
)

// reading is one call of Read.
type reading struct {
	client dynamic.Interface

	mu     sync.Mutex
	kept   []undo.Kept // guarded by mu
	missed []string    // guarded by mu
}

// Read reads the wanted objects. missed names each object that cannot be read or has changed, with the reason.
func Read(ctx context.Context, client dynamic.Interface, wanted []Wanted) (kept []undo.Kept, missed []string, err error) {
	type scope struct {
		resource  schema.GroupVersionResource
		namespace string
	}
	scopes := map[scope][]*Wanted{}
	for n := range wanted {
		in := scope{wanted[n].Resource, wanted[n].Namespace}
		scopes[in] = append(scopes[in], &wanted[n])
	}
	r := &reading{client: client}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for in, all := range scopes {
		objects := client.Resource(in.resource).Namespace(in.namespace)
		if len(all) > fewGets {
			group.Go(func() error { return r.list(ctx, objects, all) })
			continue
		}
		for _, w := range all {
			group.Go(func() error { return r.get(ctx, objects, w) })
		}
	}
	if err := group.Wait(); err != nil {
		return nil, nil, fmt.Errorf("read the objects of the backup: %w", err)
	}
	slices.Sort(r.missed)
	slices.SortFunc(r.kept, func(a, b undo.Kept) int { return slices.Compare(key(&a), key(&b)) })
	return r.kept, r.missed, nil
}

func key(k *undo.Kept) []string {
	return []string{k.Resource.Group, k.Resource.Resource, k.Object.GetNamespace(), k.Object.GetName()}
}

func (r *reading) get(ctx context.Context, objects dynamic.ResourceInterface, w *Wanted) error {
	o, err := objects.Get(ctx, w.Name, metav1.GetOptions{})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	r.keep(w, o, err)
	return nil
}

// list reads the objects of a scope page by page. A wanted object that no page has was deleted.
func (r *reading) list(ctx context.Context, objects dynamic.ResourceInterface, all []*Wanted) error {
	left := make(map[types.UID]*Wanted, len(all))
	for _, w := range all {
		left[w.UID] = w
	}
	options := metav1.ListOptions{Limit: pageSize}
	for {
		page, err := objects.List(ctx, options)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			for _, w := range left {
				r.keep(w, nil, err)
			}
			return nil
		}
		for n := range page.Items {
			o := &page.Items[n]
			if w := left[o.GetUID()]; w != nil {
				delete(left, w.UID)
				r.keep(w, o, nil)
			}
		}
		if options.Continue = page.GetContinue(); options.Continue == "" {
			break
		}
	}
	for _, w := range left {
		r.keep(w, nil, apierrors.NewNotFound(w.Resource.GroupResource(), w.Name))
	}
	return nil
}

// keep records an object that has not changed since the preview, or why it cannot be kept.
func (r *reading) keep(w *Wanted, o *unstructured.Unstructured, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case apierrors.IsNotFound(err), err == nil && o.GetUID() != w.UID:
		r.missed = append(r.missed, w.String()+": it is gone since it was previewed")
	case err != nil:
		r.missed = append(r.missed, w.String()+": "+err.Error())
	case o.GetResourceVersion() != w.Version:
		r.missed = append(r.missed, w.String()+": it has changed since it was previewed")
	default:
		r.kept = append(r.kept, undo.Kept{Resource: w.Resource, Object: o, Requested: w.Requested, Stays: w.Stays})
	}
}
