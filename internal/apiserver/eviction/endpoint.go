package eviction

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/utils/ptr"

	"github.com/coppice-dev/coppice/internal/rules/deletion"
	"github.com/coppice-dev/coppice/internal/rules/protection"
)

// Registries are the registries that an eviction reads and writes.
type Registries struct {
	Pods interface {
		rest.Getter
		rest.GracefulDeleter
	}
	PodStatus    rest.Updater
	Budgets      rest.Lister
	BudgetStatus rest.Updater
	// Protect are the modes of protection of objects without a label (R28).
	Protect protection.Defaults
	// Confirm are the limits of deletions without a confirmation (R32).
	Confirm protection.Limits
}

// FromStorages returns the registries among the storages of the core group and of group policy.
func FromStorages(core, policy map[string]rest.Storage) (r Registries, err error) {
	var ok [4]bool
	r.Pods, ok[0] = core["pods"].(interface {
		rest.Getter
		rest.GracefulDeleter
	})
	r.PodStatus, ok[1] = core["pods/status"].(rest.Updater)
	r.Budgets, ok[2] = policy["poddisruptionbudgets"].(rest.Lister)
	r.BudgetStatus, ok[3] = policy["poddisruptionbudgets/status"].(rest.Updater)
	if slices.Contains(ok[:], false) {
		return r, errors.New("pods cannot be evicted: a registry of pods or of their budgets is missing")
	}
	return r, nil
}

// Endpoint is pods/NAME/eviction.
type Endpoint struct {
	registries Registries
	now        func() time.Time
}

var (
	_ rest.NamedCreater             = (*Endpoint)(nil)
	_ rest.GroupVersionKindProvider = (*Endpoint)(nil)
)

// NewEndpoint returns an endpoint for the pods of the registries. now returns the time for
// conditions and for disruptions in budgets.
func NewEndpoint(registries Registries, now func() time.Time) *Endpoint {
	return &Endpoint{registries, now}
}

// New implements rest.Storage.
func (e *Endpoint) New() runtime.Object { return &policyv1.Eviction{} }

// Destroy implements rest.Storage. The storages belong to other endpoints.
func (e *Endpoint) Destroy() {}

// GroupVersionKind implements rest.GroupVersionKindProvider.
func (e *Endpoint) GroupVersionKind(schema.GroupVersion) schema.GroupVersionKind { return kind() }

func kind() schema.GroupVersionKind { return policyv1.SchemeGroupVersion.WithKind("Eviction") }

// Create implements rest.NamedCreater: it evicts the pod of that name.
func (e *Endpoint) Create(
	ctx context.Context, name string, obj runtime.Object, validate rest.ValidateObjectFunc, options *metav1.CreateOptions,
) (runtime.Object, error) {
	eviction, ok := obj.(*policyv1.Eviction)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("not a Eviction object: %T", obj))
	}
	if name != eviction.Name {
		return nil, apierrors.NewBadRequest("name in URL does not match name in Eviction object")
	}
	deletes, err := deleteOptions(eviction, options.DryRun)
	if err != nil {
		return nil, err
	}
	if validate != nil {
		if err := validate(ctx, eviction.DeepCopy()); err != nil {
			return nil, err
		}
	}
	attempt := &attempt{registries: e.registries, now: e.now, name: name, options: deletes}
	if err := attempt.evict(ctx); err != nil {
		return nil, err
	}
	return &metav1.Status{Status: metav1.StatusSuccess}, nil
}

// deleteOptions returns the delete options in the eviction, with a dry run if the request is one.
func deleteOptions(eviction *policyv1.Eviction, dryRun []string) (*metav1.DeleteOptions, error) {
	options := &metav1.DeleteOptions{}
	if eviction.DeleteOptions != nil {
		options = eviction.DeleteOptions.DeepCopy()
	}
	if ptr.Deref(options.IgnoreStoreReadErrorWithClusterBreakingPotential, false) {
		return nil, apierrors.NewInvalid(kind().GroupKind(), eviction.Name, field.ErrorList{field.Invalid(
			field.NewPath("deleteOptions", "ignoreStoreReadErrorWithClusterBreakingPotential"), true,
			"can not be set for pod eviction, try after removing the option")})
	}
	switch {
	case len(options.DryRun) == 0:
		options.DryRun = dryRun
	case len(dryRun) > 0 && !slices.Equal(dryRun, options.DryRun):
		return nil, apierrors.NewBadRequest(fmt.Sprintf("Non-matching dry-run options in request and content: %v and %v", dryRun, options.DryRun))
	}
	return options, deletion.Validate(options)
}
