package aggregation

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	apiregistrationclient "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/typed/apiregistration/v1"
	"k8s.io/utils/clock"

	"github.com/coppice-dev/coppice/internal/collect/pace"
	"github.com/coppice-dev/coppice/internal/controller"
)

// registrationWorkers is the number of APIServices that are reconciled concurrently after the start.
const registrationWorkers = 2

// Registrar maintains an APIService for every group version that the server serves itself: for built-in ones when it
// starts, for those of CustomResourceDefinitions always.
//
//	group versions, CustomResourceDefinitions ──▶ desired state ───┐
//	APIServices, as observed ──────────────────────────────────────┴─▶ decide (pure) ──▶ one conditioned write
//
// These APIServices only tell users and controllers which group versions exist. The server serves a group version with
// or without its APIService. All fields are required.
type Registrar struct {
	Client      apiregistrationclient.APIServicesGetter
	Services    cache.SharedIndexInformer // of APIServices
	Definitions cache.SharedIndexInformer // of CustomResourceDefinitions
	Builtin     []schema.GroupVersion
	Log         *slog.Logger
}

// Ensure reconciles all APIServices, and retries until ctx ends.
func (r *Registrar) Ensure(ctx context.Context) error {
	return pace.Retry(ctx, r.Log, "register the API groups", r.ensure)
}

func (r *Registrar) ensure(ctx context.Context) error {
	if !r.Services.HasSynced() || !r.Definitions.HasSynced() {
		return errors.New("the informers of APIServices and CustomResourceDefinitions have not synced yet")
	}
	desired := r.desired()
	names := map[string]bool{}
	for name := range desired {
		names[name] = true
	}
	for _, key := range r.Services.GetStore().ListKeys() {
		names[key] = true
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(pace.WritesAtStart)
	for name := range names {
		group.Go(func() error { return r.carryOut(ctx, decide(desired[name], r.observed(name), starting)) })
	}
	return group.Wait()
}

// Run reconciles the APIServices of CustomResourceDefinitions until ctx ends.
func (r *Registrar) Run(ctx context.Context) error {
	c := &controller.Controller{
		Name: "apiservice-registration",
		Sources: []controller.Source{
			{Informer: r.Services, Keys: controller.For(r.Services).Keys, Ignore: sameRegistration},
			{Informer: r.Definitions, Keys: definedVersions, Ignore: sameVersions},
		},
		Reconcile: func(ctx context.Context, key cache.ObjectName) (time.Duration, error) {
			return 0, r.carryOut(ctx, decide(r.desiredOf(key.Name), r.observed(key.Name), running))
		},
		Workers: registrationWorkers,
	}
	return c.Run(ctx, r.Log, clock.RealClock{})
}

// desired returns the desired APIServices by name.
func (r *Registrar) desired() map[string]*apiregistrationv1.APIService {
	all := map[string]*apiregistrationv1.APIService{}
	for _, obj := range r.Definitions.GetStore().List() {
		if d, ok := obj.(*apiextensionsv1.CustomResourceDefinition); ok {
			for _, version := range versionsOf(d) {
				all[nameOf(version)] = localService(version, customPriority(), always)
			}
		}
	}
	for _, version := range r.Builtin {
		all[nameOf(version)] = localService(version, PriorityOf(version), onStart)
	}
	return all
}

// desiredOf returns the desired APIService of that name, or nil.
func (r *Registrar) desiredOf(name string) *apiregistrationv1.APIService {
	for _, version := range r.Builtin {
		if nameOf(version) == name {
			return localService(version, PriorityOf(version), onStart)
		}
	}
	for _, obj := range r.Definitions.GetStore().List() {
		d, ok := obj.(*apiextensionsv1.CustomResourceDefinition)
		if !ok {
			continue
		}
		for _, v := range d.Spec.Versions {
			if version := (schema.GroupVersion{Group: d.Spec.Group, Version: v.Name}); v.Served && nameOf(version) == name {
				return localService(version, customPriority(), always)
			}
		}
	}
	return nil
}

func (r *Registrar) observed(name string) *apiregistrationv1.APIService {
	obj, _, _ := r.Services.GetStore().GetByKey(name) // an in-memory store does not fail
	observed, _ := obj.(*apiregistrationv1.APIService)
	return observed
}

func (r *Registrar) carryOut(ctx context.Context, s step) error {
	var err error
	switch s := s.(type) {
	case nil:
		return nil
	case create:
		if _, err = r.Client.APIServices().Create(ctx, s.object, metav1.CreateOptions{}); err != nil {
			err = fmt.Errorf("create APIService %s: %w", s.object.Name, err)
		}
	case update:
		if _, err = r.Client.APIServices().Update(ctx, s.object, metav1.UpdateOptions{}); err != nil {
			err = fmt.Errorf("put APIService %s right: %w", s.object.Name, err)
		}
	case remove:
		observed := metav1.Preconditions{UID: &s.object.UID, ResourceVersion: &s.object.ResourceVersion}
		if err = r.Client.APIServices().Delete(ctx, s.object.Name, metav1.DeleteOptions{Preconditions: &observed}); err != nil {
			err = fmt.Errorf("delete APIService %s: %w", s.object.Name, err)
		}
	}
	return err
}

// definedVersions returns the names of the APIServices for the versions of a definition.
func definedVersions(obj any) []cache.ObjectName {
	d, ok := obj.(*apiextensionsv1.CustomResourceDefinition)
	if !ok {
		return nil
	}
	var keys []cache.ObjectName
	for _, v := range d.Spec.Versions {
		keys = append(keys, cache.ObjectName{Name: nameOf(schema.GroupVersion{Group: d.Spec.Group, Version: v.Name})})
	}
	return keys
}

// sameVersions reports whether a change of a definition leaves its versions unchanged.
func sameVersions(before, now any) bool {
	a, aOK := before.(*apiextensionsv1.CustomResourceDefinition)
	b, bOK := now.(*apiextensionsv1.CustomResourceDefinition)
	return aOK && bOK && slices.Equal(versionsOf(a), versionsOf(b))
}

// sameRegistration reports whether a change of an APIService leaves its registration unchanged, for example
// a status update.
func sameRegistration(before, now any) bool {
	a, aOK := before.(*apiregistrationv1.APIService)
	b, bOK := now.(*apiregistrationv1.APIService)
	return aOK && bOK && equality.Semantic.DeepEqual(a.Spec, b.Spec) && a.Labels[managedLabel] == b.Labels[managedLabel]
}
