package aggregation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints"
	"k8s.io/client-go/tools/cache"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/kube-aggregator/pkg/apis/apiregistration/v1/helper"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/coppice-dev/coppice/internal/apiserver/serviceendpoints"
	"github.com/coppice-dev/coppice/internal/collect/pace"
	"github.com/coppice-dev/coppice/internal/controller"
)

const (
	// checkInterval is the time between two checks of a server, and the maximum while it is unavailable.
	checkInterval = 30 * time.Second
	// firstCheck is the time after which a server that has just become unavailable is checked again; it
	// doubles with every failure.
	firstCheck = 100 * time.Millisecond
	// checkTimeout bounds a check. Discovery is fast.
	checkTimeout = 5 * time.Second
	// checkedAddresses is the maximum number of endpoints of a Service that a check tries; one must answer.
	checkedAddresses = 5
	// maxDiscovery is the maximum size of a discovery document, in bytes.
	maxDiscovery = 4 << 20
	workers      = 2
)

const namespaced = apidiscoveryv2.ScopeNamespace

// Run keeps routes, discovery and conditions up to date until ctx ends.
func (a *Aggregator) Run(ctx context.Context) error {
	var watches sync.WaitGroup
	defer watches.Wait()
	c := &controller.Controller{
		Name:      "aggregation",
		Sources:   []controller.Source{{Informer: a.services, Keys: controller.For(a.services).Keys, Ignore: sameSpec}},
		Requests:  a.requests,
		Informers: []cache.SharedIndexInformer{a.services},
		Reconcile: func(_ context.Context, key cache.ObjectName) (time.Duration, error) {
			return a.reconcile(ctx, &watches, key.Name)
		},
		Workers: workers,
	}
	return c.Run(ctx, a.config.Log, clock.RealClock{})
}

// Ensure announces the group versions of all servers, as stale: before the first check of a server, no
// client may conclude that its group does not exist, and that its objects are gone. Ensure retries until
// ctx ends.
func (a *Aggregator) Ensure(ctx context.Context) error {
	return pace.Retry(ctx, a.config.Log, "announce the aggregated API groups", func(context.Context) error {
		if !a.services.HasSynced() {
			return errors.New("the informer of APIServices has not synced yet")
		}
		for _, obj := range a.services.GetStore().List() {
			if s, ok := obj.(*apiregistrationv1.APIService); ok && s.Spec.Service != nil {
				a.backendOf(s)
			}
		}
		return nil
	})
}

// sameSpec reports whether a change keeps the spec. Conditions are ignored: otherwise several servers on
// one store would react to each other's.
func sameSpec(before, now any) bool {
	x, xOK := before.(*apiregistrationv1.APIService)
	y, yOK := now.(*apiregistrationv1.APIService)
	return xOK && yOK && x.UID == y.UID && equality.Semantic.DeepEqual(x.Spec, y.Spec)
}

func (a *Aggregator) reconcile(ctx context.Context, watches *sync.WaitGroup, name string) (retryAfter time.Duration, err error) {
	obj, ok, _ := a.services.GetStore().GetByKey(name) // an in-memory store does not fail
	s, _ := obj.(*apiregistrationv1.APIService)
	if !ok || s == nil || s.Spec.Service == nil {
		a.forget(helper.APIServiceNameToGroupVersion(name))
		if s == nil {
			return 0, nil
		}
		return 0, a.report(ctx, s, helper.NewLocalAvailableAPIServiceCondition())
	}
	a.watching.Do(func() { a.watch(ctx, watches) })
	b := a.backendOf(s)
	list, problem := a.check(ctx, b)
	if ctx.Err() != nil {
		return 0, ctx.Err()
	}
	retryAfter = checkInterval
	if problem != nil {
		retryAfter = min(firstCheck<<min(b.failures.Add(1)-1, 16), checkInterval)
	} else {
		b.failures.Store(0)
	}
	// Publish before the condition is written: a client that sees the condition must find the group.
	a.publish(b, list, problem)
	return retryAfter, a.report(ctx, s, availability(problem))
}

// backendOf returns the backend that an APIService describes, or a new one if the APIService has changed.
// It announces a new APIService.
func (a *Aggregator) backendOf(s *apiregistrationv1.APIService) *backend {
	a.creating.Lock()
	defer a.creating.Unlock()
	version := schema.GroupVersion{Group: s.Spec.Group, Version: s.Spec.Version}
	last := a.routes.all()[version]
	if last != nil && last.describes(s) {
		return last
	}
	b := newBackend(s, a.certificates.current)
	a.routes.set(version, b)
	if last == nil {
		b.available.Store(helper.IsAPIServiceConditionTrue(s, apiregistrationv1.Available)) // the last known condition
		a.announce(b, &apidiscoveryv2.APIVersionDiscovery{Version: version.Version, Freshness: apidiscoveryv2.DiscoveryFreshnessStale})
		return b
	}
	b.discovered.Store(last.discovered.Load())
	last.close()
	return b
}

// forget removes a group version that other servers no longer serve.
func (a *Aggregator) forget(version schema.GroupVersion) {
	b := a.routes.all()[version]
	if b == nil {
		return
	}
	a.routes.set(version, nil)
	a.discover.RemoveGroupVersion(metav1.GroupVersion(version))
	a.config.Groups().Refresh()
	b.close()
}

// publish puts the resources of a server into discovery.
func (a *Aggregator) publish(b *backend, list *metav1.APIResourceList, problem error) {
	entry := &apidiscoveryv2.APIVersionDiscovery{Version: b.version.Version}
	if last := b.discovered.Load(); last != nil {
		entry = last.DeepCopy() // its resources in the last successful check
	}
	entry.Freshness = apidiscoveryv2.DiscoveryFreshnessStale
	if problem == nil && list != nil {
		if resources, err := endpoints.ConvertGroupVersionIntoToDiscovery(list.APIResources); err == nil {
			entry.Resources, entry.Freshness = resources, apidiscoveryv2.DiscoveryFreshnessCurrent
			b.discovered.Store(entry)
		}
	}
	b.available.Store(problem == nil)
	if b.published != nil && equality.Semantic.DeepEqual(b.published, entry) {
		return
	}
	a.announce(b, entry)
}

// announce puts an entry into discovery.
func (a *Aggregator) announce(b *backend, entry *apidiscoveryv2.APIVersionDiscovery) {
	b.published = entry
	version := metav1.GroupVersion(b.version)
	a.discover.AddGroupVersion(b.version.Group, *entry.DeepCopy())
	a.discover.SetGroupVersionPriority(version, int(b.spec.GroupPriorityMinimum), int(b.spec.VersionPriority))
	a.config.Groups().Refresh()
}

// report writes the condition of an APIService if it has changed.
func (a *Aggregator) report(ctx context.Context, s *apiregistrationv1.APIService, condition apiregistrationv1.APIServiceCondition) error {
	changed, ok := withCondition(s, condition, metav1.NewTime(a.config.Now()))
	if !ok {
		return nil
	}
	if _, err := a.client.APIServices().UpdateStatus(ctx, changed, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("report that %s is %s: %w", s.Name, condition.Reason, err)
	}
	return nil
}

// addresses returns the addresses of the server of a backend.
func (a *Aggregator) addresses(ctx context.Context, b *backend) ([]string, error) {
	ref := b.spec.Service
	return a.config.Endpoints.Addresses(ctx, serviceendpoints.Reference{Namespace: ref.Namespace, Name: ref.Name, Port: ptr.Deref(ref.Port, 0)})
}

// check requests the discovery document of the group version. The list is nil if the server answers with
// something else.
func (a *Aggregator) check(ctx context.Context, b *backend) (*metav1.APIResourceList, error) {
	addresses, err := a.addresses(ctx, b)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	type answer struct {
		list *metav1.APIResourceList
		err  error
	}
	addresses = addresses[:min(len(addresses), checkedAddresses)]
	answers := make(chan answer, len(addresses))
	for _, address := range addresses {
		go func() {
			list, err := b.resources(ctx, address)
			answers <- answer{list, err}
		}()
	}
	var failed error
	for range addresses {
		got := <-answers
		if got.err == nil {
			return got.list, nil
		}
		failed = got.err
	}
	b.close() // a connection may have broken unnoticed
	return nil, failed
}

// resources requests the resources of the group version from the server at an address.
func (b *backend) resources(ctx context.Context, address string) (*metav1.APIResourceList, error) {
	response, err := b.send(ctx, address, "/apis/"+b.version.Group+"/"+b.version.Version, runtime.ContentTypeJSON)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxDiscovery+1))
	if err == nil && len(body) > maxDiscovery {
		err = errors.New("the discovery document is too large")
	}
	if err != nil {
		return nil, fmt.Errorf("failing or missing response from %s: %w", address, err)
	}
	list := &metav1.APIResourceList{}
	if json.Unmarshal(body, list) != nil || list.GroupVersion != b.version.String() {
		return nil, nil // it answers, although not with a discovery document
	}
	for i := range list.APIResources {
		if r := &list.APIResources[i]; r.Group == "" && r.Version == "" { // the group version of the list
			r.Group, r.Version = b.version.Group, b.version.Version
		}
	}
	return list, nil
}

// availability returns the condition of an APIService whose check ended with err.
func availability(err error) apiregistrationv1.APIServiceCondition {
	condition := apiregistrationv1.APIServiceCondition{Type: apiregistrationv1.Available, Status: apiregistrationv1.ConditionFalse}
	switch reason, ok := err.(*serviceendpoints.Unreachable); { //nolint:errorlint // not wrapped on its way here
	case err == nil:
		condition.Status, condition.Reason, condition.Message = apiregistrationv1.ConditionTrue, "Passed", "all checks passed"
	case ok:
		condition.Reason, condition.Message = reason.Reason, reason.Message
	default:
		condition.Reason, condition.Message = "FailedDiscoveryCheck", err.Error()
	}
	return condition
}
