package namespaces

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/util/workqueue"

	"github.com/coppice-dev/coppice/internal/rules/protection"
	"github.com/coppice-dev/coppice/internal/rules/refusal"
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

// read lists the objects of each type. A Content has the error of its list. held reports the objects
// that must not be deleted yet; it is called concurrently.
func (c contents) read(ctx context.Context, namespace string, resources []Resource, held func(Object) (string, bool)) []Content {
	found := make([]Content, len(resources))
	c.each(ctx, len(resources), func(i int) {
		found[i] = c.list(ctx, namespace, resources[i], held)
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

// attempt is a DELETE of an object.
type attempt struct {
	resource Resource
	object   Object
	// refusal is set if the server has refused it (R31).
	refusal *refusal.Refusal
}

// isProtected reports whether the DELETE was refused because the object is protected (R28).
func (a *attempt) isProtected() bool { return a.refusal != nil && a.refusal.By == refusal.ByProtection }

// delete deletes the active objects of each type. It returns the first error of each type, without the refusals to
// delete protected objects, and the DELETEs of single objects that were answered.
func (c contents) delete(ctx context.Context, namespace string, contents []Content) (errs []error, attempts []attempt) {
	type target struct {
		content int
		object  Object
	}
	collected := make([]bool, len(contents))
	c.each(ctx, len(contents), func(i int) {
		collected[i] = collectable(contents[i]) && c.deleteCollection(ctx, namespace, contents[i]) == nil
	})
	var targets []target
	for i, content := range contents {
		for _, object := range content.Active {
			if object.Labelled || !collected[i] {
				targets = append(targets, target{i, object})
			}
		}
	}
	failures := make([]error, len(targets))
	c.each(ctx, len(targets), func(i int) {
		failures[i] = c.deleteObject(ctx, namespace, contents[targets[i].content].Resource, targets[i].object)
	})
	errs = make([]error, len(contents))
	for i, err := range failures {
		t := targets[i]
		a := attempt{resource: contents[t.content].Resource, object: t.object}
		if r, refused := refusal.Of(err); refused {
			a.refusal = &r
		}
		if err == nil || a.refusal != nil {
			attempts = append(attempts, a)
		}
		if err != nil && !a.isProtected() && errs[t.content] == nil {
			errs[t.content] = fmt.Errorf("delete %s %s: %w", a.resource.GroupResource(), t.object.Name, err)
		}
	}
	return errs, attempts
}

// collectable reports whether a DELETECOLLECTION may delete a type's first page. It carries no UIDs and
// would also affect terminating and parked objects, so it is for pages of active objects only. Objects
// that are labelled as protected are not counted: they are deleted one by one.
func collectable(content Content) bool {
	return content.Resource.DeleteCollection && content.Deleting == 0 && len(content.Parked) == 0 &&
		len(content.Active)-content.labelled() >= manyObjects
}

// deleteCollection deletes a page, except for objects that are labelled as protected. After an error
// the objects are deleted one by one. The error is not remembered: a transient 404 or 405 must not
// change how the next namespace is treated (NS-09).
func (c contents) deleteCollection(ctx context.Context, namespace string, content Content) error {
	ctx, cancel := context.WithTimeout(ctx, collectionTimeout)
	defer cancel()
	options := metav1.ListOptions{Limit: pageSize}
	if content.labelled() > 0 {
		options.LabelSelector = "!" + protection.Label
	}
	return c.client.Resource(content.Resource.GroupVersionResource).Namespace(namespace).
		DeleteCollection(ctx, background(nil), options)
}

// deleteObject deletes the object with the UID that was listed. It is not an error if the object is
// gone or another one has its name: the next list shows the current state.
func (c contents) deleteObject(ctx context.Context, namespace string, r Resource, object Object) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	err := c.client.Resource(r.GroupVersionResource).Namespace(namespace).
		Delete(ctx, object.Name, background(&metav1.Preconditions{UID: &object.UID}))
	if _, refused := refusal.Of(err); refused {
		return err // a webhook may answer with any code
	}
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// background returns options that leave the grace period to the object. Its dependents in the
// namespace are deleted anyway.
func background(preconditions *metav1.Preconditions) metav1.DeleteOptions {
	policy := metav1.DeletePropagationBackground
	return metav1.DeleteOptions{PropagationPolicy: &policy, Preconditions: preconditions}
}

func (c contents) each(ctx context.Context, n int, do func(i int)) {
	workqueue.ParallelizeUntil(ctx, c.concurrency, n, do)
}
