package rbac

import (
	"context"
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	rbacclient "k8s.io/client-go/kubernetes/typed/rbac/v1"
	rbaclisters "k8s.io/client-go/listers/rbac/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

// Aggregator writes the rules of ClusterRoles with an aggregationRule when a ClusterRole that they select
// has changed.
type Aggregator struct {
	client rbacclient.ClusterRolesGetter
	roles  rbaclisters.ClusterRoleLister
	synced cache.InformerSynced
	queue  workqueue.TypedRateLimitingInterface[string] // names of roles
}

// NewAggregator returns an Aggregator that watches through shared and writes through client.
func NewAggregator(shared informers.SharedInformerFactory, client rbacclient.ClusterRolesGetter) (*Aggregator, error) {
	roles := shared.Rbac().V1().ClusterRoles()
	a := &Aggregator{
		client: client, roles: roles.Lister(), synced: roles.Informer().HasSynced,
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]()),
	}
	_, err := roles.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { a.enqueue() },
		UpdateFunc: func(any, any) { a.enqueue() },
		DeleteFunc: func(any) { a.enqueue() },
	})
	if err != nil {
		return nil, fmt.Errorf("watch ClusterRoles for aggregation: %w", err)
	}
	return a, nil
}

// enqueue queues all aggregated roles: there are few, and any change may affect each of them.
func (a *Aggregator) enqueue() {
	for _, role := range a.all() {
		if role.AggregationRule != nil {
			a.queue.Add(role.Name)
		}
	}
}

func (a *Aggregator) all() []*rbacv1.ClusterRole {
	roles, err := a.roles.List(labels.Everything())
	if err != nil {
		return nil
	}
	return roles
}

// Run reconciles until ctx ends.
func (a *Aggregator) Run(ctx context.Context) {
	stop := context.AfterFunc(ctx, a.queue.ShutDown)
	defer stop()
	if !cache.WaitForCacheSync(ctx.Done(), a.synced) {
		return
	}
	for {
		name, shutdown := a.queue.Get()
		if shutdown {
			return
		}
		if err := a.reconcile(ctx, name); err != nil {
			a.queue.AddRateLimited(name)
		} else {
			a.queue.Forget(name)
		}
		a.queue.Done(name)
	}
}

func (a *Aggregator) reconcile(ctx context.Context, name string) error {
	role, err := a.roles.Get(name)
	if apierrors.IsNotFound(err) || err == nil && role.AggregationRule == nil {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read ClusterRole %s: %w", name, err)
	}
	rules := Aggregate(role, a.all())
	if equality.Semantic.DeepEqual(rules, role.Rules) {
		return nil
	}
	next := role.DeepCopy()
	next.Rules = rules
	if _, err := a.client.ClusterRoles().Update(ctx, next, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("aggregate ClusterRole %s: %w", name, err)
	}
	return nil
}
