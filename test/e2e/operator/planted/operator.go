package planted

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// LongestRetry is the longest time until a reconciliation that has failed is tried again.
const LongestRetry = 300 * time.Millisecond

// errStale says that a live object is not as the cache shows it. The reconciliation is tried again.
var errStale = errors.New("the cache is stale")

// Operator reconciles Pools and serves orders. It runs once.
type Operator struct {
	client client.Client // reads from caches
	reader client.Reader // reads from the server
	bugs   []Bug

	mu    sync.Mutex
	known map[string]bool // guarded; places of members that a bug remembers, instead of reading them

	begun   atomic.Int64 // reconciliations
	running atomic.Int64
	manager ctrl.Manager
}

// NewScheme returns the scheme of the operator and of its tests.
func NewScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	return scheme, errors.Join(clientgoscheme.AddToScheme(scheme), AddToScheme(scheme))
}

// New returns an operator with bugs.
func New(access *rest.Config, bugs ...Bug) (*Operator, error) {
	scheme, err := NewScheme()
	if err != nil {
		return nil, err
	}
	manager, err := ctrl.NewManager(access, ctrl.Options{
		Scheme: scheme, Metrics: server.Options{BindAddress: "0"}, HealthProbeBindAddress: "0",
		Controller: config.Controller{SkipNameValidation: new(true)}, // several run in one process
	})
	if err != nil {
		return nil, fmt.Errorf("make the manager: %w", err)
	}
	o := &Operator{client: manager.GetClient(), reader: manager.GetAPIReader(), bugs: bugs, known: map[string]bool{}, manager: manager}
	// As most operators, this one ignores changes of a Pool's metadata and status.
	pools := ctrl.NewControllerManagedBy(manager).Named("pools").
		For(&Pool{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).Owns(&corev1.ConfigMap{}).
		WithOptions(options()).Complete(o.counted(o.reconcilePool))
	isOrder := predicate.NewPredicateFuncs(func(object client.Object) bool { return object.GetLabels()[RoleLabel] == Order })
	orders := ctrl.NewControllerManagedBy(manager).Named("orders").
		For(&corev1.Secret{}, builder.WithPredicates(isOrder)).
		WithOptions(options()).Complete(o.counted(o.reconcileOrder))
	return o, errors.Join(pools, orders)
}

// options has eight workers, as an operator with many objects. One object is reconciled by one of them at a time.
func options() controller.Options {
	return controller.Options{
		MaxConcurrentReconciles: 8,
		RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](30*time.Millisecond, LongestRetry),
	}
}

// Run runs the operator until ctx ends.
func (o *Operator) Run(ctx context.Context) error { return o.manager.Start(ctx) }

// Cache reads what the operator sees.
func (o *Operator) Cache() client.Reader { return o.manager.GetCache() }

// Begun returns the number of reconciliations that have begun; and whether one runs.
func (o *Operator) Begun() (number int64, running bool) { return o.begun.Load(), o.running.Load() > 0 }

func (o *Operator) counted(next func(context.Context, ctrl.Request) error) reconcile.Reconciler {
	return reconcile.Func(func(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
		o.running.Add(1)
		o.begun.Add(1)
		defer o.running.Add(-1)
		return ctrl.Result{}, next(ctx, request)
	})
}

func (o *Operator) has(b Bug) bool { return slices.Contains(o.bugs, b) }

// confirm returns errStale unless the live Pool is the one that the cache shows, with the same spec, and not being
// deleted. Only this operator removes its finalizer, so the Pool does not go before the caller has acted.
func (o *Operator) confirm(ctx context.Context, pool *Pool) error {
	var live Pool
	err := o.reader.Get(ctx, client.ObjectKeyFromObject(pool), &live)
	switch {
	case err != nil:
		return err
	case live.UID != pool.UID, live.Generation != pool.Generation, !live.DeletionTimestamp.IsZero():
		return errStale
	default:
		return nil
	}
}

// remove deletes an object in the very state that the caller has seen.
func (o *Operator) remove(ctx context.Context, object client.Object) error {
	uid, version := object.GetUID(), object.GetResourceVersion()
	err := o.client.Delete(ctx, object, client.Preconditions{UID: &uid, ResourceVersion: &version})
	return client.IgnoreNotFound(err)
}

func ownedBy(pool *Pool, role, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: pool.Namespace, Name: name,
		Labels: map[string]string{RoleLabel: role, PoolLabel: pool.Name, UIDLabel: string(pool.UID)},
		OwnerReferences: []metav1.OwnerReference{
			*metav1.NewControllerRef(pool, GroupVersion().WithKind("Pool")),
		},
	}
}
