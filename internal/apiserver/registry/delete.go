package registry

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/util/dryrun"
	"k8s.io/apiserver/pkg/warning"

	"github.com/coppice-dev/coppice/internal/rules/builtin"
	"github.com/coppice-dev/coppice/internal/rules/deletion"
)

// Deleter carries out one deletion: in one transaction it decides what to do with the
// object, and marks or removes it. It is safe for concurrent use.
type Deleter interface {
	// Delete returns the object as the deletion left it, and whether it was removed. Errors are API errors.
	Delete(ctx context.Context, d Deletion) (obj runtime.Object, removed bool, err error)
}

// Deletion is the deletion of one object.
type Deletion struct {
	Resource schema.GroupResource
	Name     string
	// Storage holds the object under Key. New returns an empty object.
	Storage genericregistry.DryRunnableStorage
	Key     string
	New     func() runtime.Object
	// Options are never nil, and are not shared with other deletions.
	Options *metav1.DeleteOptions
	// Validate is admission. It may be nil.
	Validate rest.ValidateObjectFunc
	Strategy deletion.Strategy
}

// Delete deletes one object. It replaces the method of genericregistry.Store.
func (r *REST) Delete(ctx context.Context, name string, validate rest.ValidateObjectFunc, options *metav1.DeleteOptions) (runtime.Object, bool, error) {
	key, err := r.KeyFunc(ctx, name)
	if err != nil {
		return nil, false, err
	}
	if why := builtin.KeptAlways(r.Resource.GroupResource(), name); why != "" {
		return nil, false, apierrors.NewForbidden(r.Resource.GroupResource(), name, errors.New(why))
	}
	if options == nil {
		// Server code that deletes without options expects immediate deletion.
		options = metav1.NewDeleteOptions(0)
	}
	r.warnOfOrphans(ctx, options)
	obj, removed, err := r.deleter.Delete(ctx, Deletion{
		Resource: r.Resource.GroupResource(),
		Name:     name,
		Storage:  r.Storage,
		Key:      key,
		New:      r.Resource.New,
		Options:  options,
		Validate: validate,
		Strategy: r.Resource.Deletion,
	})
	if err != nil {
		return nil, false, err
	}
	if removed && r.AfterDelete != nil && !dryrun.IsDryRun(options.DryRun) {
		r.AfterDelete(obj, options)
	}
	answer, err := r.answer(obj, removed)
	return answer, removed, err
}

// warnOfOrphans warns a client that has not chosen a propagation policy that dependents are kept. For a collection it
// sends the warning once, even if the collection is empty.
func (r *REST) warnOfOrphans(ctx context.Context, options *metav1.DeleteOptions) {
	if r.Resource.OrphansWarning != "" && options.PropagationPolicy == nil && options.OrphanDependents == nil {
		warning.AddWarning(ctx, "", r.Resource.OrphansWarning)
	}
}

// answer returns the response to the client (R20): the object while its deletion is pending, and
// a Status that identifies the object when it is gone.
func (r *REST) answer(obj runtime.Object, removed bool) (runtime.Object, error) { //nolint:revive // flag-parameter: it determines the response
	if !removed || r.ReturnDeletedObject {
		if r.Decorator != nil {
			r.Decorator(obj)
		}
		return obj, nil
	}
	return deletion.Removed(obj, r.Resource.Deletion.Resource)
}
