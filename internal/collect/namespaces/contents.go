package namespaces

import (
	"cmp"
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/util/workqueue"
)

const (
	// pageSize bounds one list, and the number of objects of one type that a sync deletes, so that
	// a namespace with very many objects does not delay the others.
	pageSize = 500
	// manyObjects is the number from which on a DELETECOLLECTION is cheaper than one DELETE per
	// object.
	manyObjects = 100
	// maxText bounds the part of a server's text that is kept and reported, in bytes: users choose names
	// in it.
	maxText = 1024
	// collectionTimeout bounds a DELETECOLLECTION: some servers delete its objects one after the other.
	collectionTimeout = 60 * time.Second
)

// contents lists and deletes objects by their metadata.
type contents struct {
	client      metadata.Interface
	concurrency int           // concurrent requests of one sync
	timeout     time.Duration // of one request
}

// read lists the objects of each type in the namespace of trust. A Content has the error of its list. held reports the
// objects that must not be deleted yet; it is called concurrently.
func (c contents) read(ctx context.Context, trust *trust, resources []Resource, held func(Object) (string, bool)) []Content {
	found := make([]Content, len(resources))
	c.each(ctx, len(resources), func(i int) {
		ctx := trust.reading(ctx)
		found[i] = c.list(ctx, trust.name, resources[i], held)
		found[i].Err = cmp.Or(trust.note(ctx, found[i].Err), found[i].Err)
	})
	return found
}

// list reads pages until it knows enough objects to delete: terminating and parked objects may fill
// whole pages, and must not hide the active ones behind them.
func (c contents) list(ctx context.Context, namespace string, r Resource, held func(Object) (string, bool)) Content {
	content := Content{Resource: r}
	options := metav1.ListOptions{Limit: pageSize}
	for {
		page, err := c.page(ctx, namespace, r, options)
		if err != nil {
			content.Err = fmt.Errorf("list %s: %w", r.GroupResource(), err)
			return content
		}
		for i := range page.Items {
			content.add(&page.Items[i], held)
		}
		options.Continue = page.Continue
		if options.Continue == "" {
			return content
		}
		if len(page.Items) == 0 {
			content.Err = fmt.Errorf("list %s: an empty page with a continue token", r.GroupResource())
			return content
		}
		if len(content.Active) >= pageSize {
			if page.RemainingItemCount != nil {
				content.Remaining += int(*page.RemainingItemCount)
			}
			return content
		}
	}
}

// page reads the newest state, never a cached one: an empty list is the proof that the namespace
// may be finalized.
func (c contents) page(ctx context.Context, namespace string, r Resource, options metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	return c.client.Resource(r.GroupVersionResource).Namespace(namespace).List(ctx, options)
}

func (c contents) each(ctx context.Context, n int, do func(i int)) {
	workqueue.ParallelizeUntil(ctx, c.concurrency, n, do)
}
