package definitions

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/coppice-dev/coppice/collector/report"
	"github.com/coppice-dev/coppice/internal/collect/storybook"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/rules/refusal"
)

const (
	noService = `conversion webhook for example.com/v2, Kind=Widget failed: Post "https://convert.shop.svc:443/": service "convert" not found`
	protects  = `widgets.example.com "w" is forbidden: protected by its label coppice.dev/protect=always`
)

// deleted returns a definition in deletion whose condition Terminating has a reason and a message.
func deleted(reason, message string) *apiextensionsv1.CustomResourceDefinition {
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{
			Name: "widgets.example.com", UID: "crd", ResourceVersion: "1", DeletionTimestamp: &metav1.Time{Time: time.Unix(1, 0)},
			Finalizers: []string{apiextensionsv1.CustomResourceCleanupFinalizer},
		},
		Status: apiextensionsv1.CustomResourceDefinitionStatus{Conditions: []apiextensionsv1.CustomResourceDefinitionCondition{{
			Type: apiextensionsv1.Terminating, Status: apiextensionsv1.ConditionTrue, Reason: reason, Message: message,
		}}},
	}
}

func TestProgressIsInTheCondition(t *testing.T) {
	living := deleted(instanceDeletionFailed, noService)
	living.DeletionTimestamp = nil
	for name, test := range map[string]struct {
		definition *apiextensionsv1.CustomResourceDefinition
		progress   progress
		by         refusal.By
		name       string
	}{
		"not deleted":           {living, over, "", ""},
		"conversion":            {deleted(instanceDeletionFailed, "could not list instances: "+noService), refused, refusal.ByConversion, "Widget.example.com"},
		"protection":            {deleted(instanceDeletionFailed, "could not issue all deletes: "+protects), refused, refusal.ByProtection, ""},
		"other words":           {deleted(instanceDeletionFailed, "could not list instances: etcd is full"), refused, refusal.ByFailure, ""},
		"in progress":           {deleted(instanceDeletionInProgress, "CustomResource deletion is in progress"), trying, "", ""},
		"waits for an instance": {deleted("InstanceDeletionCheck", "could not confirm zero CustomResources remaining: timed out"), over, "", ""},
	} {
		if p, r := progressOf(test.definition); p != test.progress || r.By != test.by || r.Name != test.name {
			t.Errorf("%s: %d, %+v", name, p, r)
		}
	}
}

// fixture is a controller whose definitions the test changes.
type fixture struct {
	apiextensionsclient.CustomResourceDefinitionInterface // any other method causes a nil dereference
	*Controller

	store   cache.Store
	clock   *clocktesting.FakeClock
	written int
	events  []string
}

// informer has the definitions of a fixture.
type informer struct {
	cache.SharedIndexInformer // any other method causes a nil dereference
	store                     cache.Store
}

func (i informer) GetStore() cache.Store { return i.store }

func newFixture() *fixture {
	f := &fixture{store: cache.NewStore(cache.MetaNamespaceKeyFunc), clock: clocktesting.NewFakeClock(time.Unix(1_000_000, 0))}
	f.Controller = New(Config{Informer: informer{store: f.store}, Client: f, Events: f, Clock: f.clock, Log: slog.New(slog.DiscardHandler)})
	return f
}

func (f *fixture) CustomResourceDefinitions() apiextensionsclient.CustomResourceDefinitionInterface {
	return f
}

func (f *fixture) UpdateStatus(_ context.Context, d *apiextensionsv1.CustomResourceDefinition, _ metav1.UpdateOptions) (*apiextensionsv1.CustomResourceDefinition, error) {
	f.written++
	return d, nil
}

func (f *fixture) Warn(_ context.Context, o ownership.Object, reason, message string) error {
	f.events = append(f.events, fmt.Sprintf("%s %s: %s", o.Name, reason, message))
	return nil
}

// observe makes a definition the current one.
func (f *fixture) observe(ctx context.Context, d *apiextensionsv1.CustomResourceDefinition, version string) {
	d.ResourceVersion = version
	_ = f.store.Add(d)
	f.sync(ctx, d.Name)
}

// R31: a definition whose instances cannot be converted is in the status and in the story, with an Event if that lasts,
// until the server has deleted them.
func TestR31_RefusedInstancesAreReported(t *testing.T) {
	f, stories, ctx := newFixture(), storybook.New(), t.Context()
	crd := objectOf(deleted("", ""))
	stories.Seen(&crd, "", f.clock.Now())
	defer f.RecordIn(stories)()
	for n := range 3 {
		f.observe(ctx, deleted(instanceDeletionInProgress, ""), fmt.Sprint(2*n))
		f.observe(ctx, deleted(instanceDeletionFailed, "could not list instances: "+noService), fmt.Sprint(2*n+1))
		f.clock.Step(6 * time.Second)
	}
	objects, counts := f.Refused()
	if len(objects) != 1 || objects[0].By != "conversion" || objects[0].Refuser != "Widget.example.com" || objects[0].Count != 3 ||
		objects[0].Action != report.ActionDeleteInstances || len(counts) != 1 || counts[0].Objects != 1 {
		t.Errorf("%+v %+v", objects, counts)
	}
	const event = "widgets.example.com GarbageCollectionRefused: the API server cannot delete its instances: conversion webhook for example.com/*, Kind=Widget failed"
	if len(f.events) != 1 || len(f.events[0]) < len(event) || f.events[0][:len(event)] != event {
		t.Errorf("Events: %q", f.events)
	}
	told := func() (lasts bool) {
		_, all, _, _ := stories.Story("crd", 0, nil, f.clock.Now())
		return len(all) == 1 && all[0].Refusal != nil && all[0].Refusal.Ended == nil
	}
	if !told() {
		t.Error("the story has no refusal")
	}
	f.observe(ctx, deleted("InstanceDeletionCheck", "could not confirm"), "9")
	if objects, counts := f.Refused(); len(objects)+len(counts) > 0 || told() {
		t.Errorf("refused afterwards: %+v", objects)
	}
}

// R31: a definition of that name that is gone, or another one, is not refused.
func TestR31_RefusalsOfRemovedDefinitionsAreForgotten(t *testing.T) {
	for _, then := range []func(f *fixture){
		func(f *fixture) { _ = f.store.Delete(deleted("", "")) },
		func(f *fixture) {
			other := deleted(instanceDeletionInProgress, "")
			other.UID = types.UID("other")
			_ = f.store.Update(other)
		},
	} {
		f := newFixture()
		f.observe(t.Context(), deleted(instanceDeletionFailed, protects), "1")
		if objects, _ := f.Refused(); len(objects) != 1 || objects[0].By != "protection" || len(f.events) > 0 {
			t.Errorf("%+v, Events %q", objects, f.events)
		}
		then(f)
		f.sync(t.Context(), "widgets.example.com")
		if objects, _ := f.Refused(); len(objects) > 0 || len(f.uids)+len(f.seen) > 0 {
			t.Errorf("refused afterwards: %+v", objects)
		}
	}
}

// R31: the server is made to try again once in a minute in which it did not by itself.
func TestR31_InstancesAreTriedAgain(t *testing.T) {
	f, ctx := newFixture(), t.Context()
	refusedAt := func(version string) {
		f.observe(ctx, deleted(instanceDeletionFailed, noService), version)
	}
	looks := func(wait time.Duration, written int) {
		t.Helper()
		if got := f.sync(ctx, "widgets.example.com"); got != wait || f.written != written {
			t.Errorf("looks again after %v, with %d writes; want %v and %d", got, f.written, wait, written)
		}
	}
	refusedAt("1")
	looks(retryAfter, 0)
	f.clock.Step(retryAfter / 2)
	looks(retryAfter/2, 0)
	refusedAt("2") // the server has tried by itself
	f.clock.Step(retryAfter / 2)
	looks(retryAfter/2, 0)
	f.clock.Step(retryAfter / 2)
	looks(retryAfter, 1)
}
