package systemobjects

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap"
	"k8s.io/client-go/informers"
	flowcontrolclient "k8s.io/client-go/kubernetes/typed/flowcontrol/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/coppice-dev/coppice/internal/collect/pace"
)

// keepFlowSchemasEvery is the interval at which the default objects are reconciled, as upstream.
const keepFlowSchemasEvery = time.Minute

// KeepFlowSchemas reconciles the default priority levels and flow schemas every minute, and recreates deleted ones, in
// the background until ctx ends. It always resets the specs of mandatory ones. It resets the specs of
// others if they have the annotation apf.kubernetes.io/autoupdate-spec "true", or if they lack it and only
// the server has written their spec. defaults sets the defaults of an object.
func KeepFlowSchemas(ctx context.Context, log *slog.Logger, client flowcontrolclient.FlowcontrolV1Interface, shared informers.SharedInformerFactory, defaults func(runtime.Object)) error {
	levels, schemas := shared.Flowcontrol().V1().PriorityLevelConfigurations(), shared.Flowcontrol().V1().FlowSchemas()
	k := flowKeeper{
		levels: flowKind[*flowcontrolv1.PriorityLevelConfiguration]{
			client: client.PriorityLevelConfigurations(), get: levels.Lister().Get, defaults: defaults,
			clone: (*flowcontrolv1.PriorityLevelConfiguration).DeepCopy,
			same: func(a, b *flowcontrolv1.PriorityLevelConfiguration) bool {
				return equality.Semantic.DeepEqual(a.Spec, b.Spec)
			},
			replace: func(to, from *flowcontrolv1.PriorityLevelConfiguration) { to.Spec = from.Spec },
		},
		schemas: flowKind[*flowcontrolv1.FlowSchema]{
			client: client.FlowSchemas(), get: schemas.Lister().Get, defaults: defaults,
			clone:   (*flowcontrolv1.FlowSchema).DeepCopy,
			same:    func(a, b *flowcontrolv1.FlowSchema) bool { return equality.Semantic.DeepEqual(a.Spec, b.Spec) },
			replace: func(to, from *flowcontrolv1.FlowSchema) { to.Spec = from.Spec },
		},
	}
	deleted := make(chan struct{}, 1)
	handler := cache.ResourceEventHandlerFuncs{DeleteFunc: func(any) {
		select {
		case deleted <- struct{}{}:
		default:
		}
	}}
	for _, informer := range []cache.SharedIndexInformer{levels.Informer(), schemas.Informer()} {
		if _, err := informer.AddEventHandler(handler); err != nil {
			return fmt.Errorf("watch the default flow schemas: %w", err)
		}
	}
	go func() {
		if cache.WaitForCacheSync(ctx.Done(), levels.Informer().HasSynced, schemas.Informer().HasSynced) {
			k.run(ctx, log, deleted)
		}
	}()
	return nil
}

type flowKeeper struct {
	levels  flowKind[*flowcontrolv1.PriorityLevelConfiguration]
	schemas flowKind[*flowcontrolv1.FlowSchema]
}

func (k flowKeeper) run(ctx context.Context, log *slog.Logger, deleted <-chan struct{}) {
	ticker := time.NewTicker(keepFlowSchemasEvery)
	defer ticker.Stop()
	failures := pace.NewFailures(log, clock.RealClock{})
	for {
		if err := k.ensure(ctx); err != nil && ctx.Err() == nil {
			failures.Warn(ctx, "default flow schemas not put right", "", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-deleted:
		case <-ticker.C:
		}
	}
}

func (k flowKeeper) ensure(ctx context.Context) error {
	for _, level := range slices.Concat(bootstrap.MandatoryPriorityLevelConfigurations, bootstrap.SuggestedPriorityLevelConfigurations) {
		if err := k.levels.ensure(ctx, level, slices.Contains(bootstrap.MandatoryPriorityLevelConfigurations, level)); err != nil {
			return err
		}
	}
	for _, schema := range flowSchemas() {
		if err := k.schemas.ensure(ctx, schema, slices.Contains(bootstrap.MandatoryFlowSchemas, schema)); err != nil {
			return err
		}
	}
	return nil
}

// flowKind is a kind of objects that KeepFlowSchemas reconciles, with its operations.
type flowKind[T interface {
	metav1.Object
	runtime.Object
}] struct {
	client interface {
		Create(ctx context.Context, obj T, o metav1.CreateOptions) (T, error)
		Update(ctx context.Context, obj T, o metav1.UpdateOptions) (T, error)
	}
	get      func(name string) (T, error)
	defaults func(runtime.Object)
	clone    func(T) T
	same     func(a, b T) bool // their specs
	replace  func(to, from T)  // the spec
}

// ensure creates a missing object, or updates its spec. It observes a concurrent write a minute later.
func (k flowKind[T]) ensure(ctx context.Context, bootstrap T, mandatory bool) error {
	wanted := k.clone(bootstrap)
	k.defaults(wanted)
	stored, err := k.get(wanted.GetName())
	if apierrors.IsNotFound(err) {
		_, err = k.client.Create(ctx, wanted, metav1.CreateOptions{})
		return ignoreExisting(err)
	}
	if err != nil {
		return err
	}
	updates := mandatory || updatesSpec(stored)
	next := k.clone(stored)
	if updates && !k.same(stored, wanted) {
		k.replace(next, wanted)
	}
	annotations := map[string]string{flowcontrolv1.AutoUpdateAnnotationKey: strconv.FormatBool(updates)}
	for key, value := range next.GetAnnotations() {
		if is, err := strconv.ParseBool(value); key != flowcontrolv1.AutoUpdateAnnotationKey || err == nil && is == updates {
			annotations[key] = value
		}
	}
	next.SetAnnotations(annotations)
	if equality.Semantic.DeepEqual(stored, next) {
		return nil
	}
	_, err = k.client.Update(ctx, next, metav1.UpdateOptions{})
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// updatesSpec reports whether an object that is not mandatory follows the default spec.
func updatesSpec(stored metav1.Object) bool {
	updates, err := strconv.ParseBool(stored.GetAnnotations()[flowcontrolv1.AutoUpdateAnnotationKey])
	if err != nil {
		return stored.GetGeneration() == 1 // only the server has written the spec
	}
	return updates
}
