package namespaces

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var (
	pods        = resource("", "v1", "pods")
	configMaps  = resource("", "v1", "configmaps")
	deployments = resource("apps", "v1", "deployments")
	policies    = resource("networking.k8s.io", "v1", "networkpolicies")
	roles       = resource("rbac.authorization.k8s.io", "v1", "roles")
	bindings    = resource("rbac.authorization.k8s.io", "v1", "rolebindings")

	everyType = []Resource{configMaps, pods, deployments, policies, bindings, roles}
)

func resource(group, version, name string) Resource {
	return Resource{GroupVersionResource: schema.GroupVersionResource{Group: group, Version: version, Resource: name}, Kind: kindOf(name), DeleteCollection: true}
}

// kindOf returns a kind for a resource.
func kindOf(resource string) string { return "KindOf-" + resource }

// active, hanging and unreadable return contents as listed.
func active(r Resource, names ...string) Content {
	c := Content{Resource: r}
	for _, name := range names {
		c.add(&metav1.ObjectMeta{Name: name}, nil)
	}
	return c
}

func hanging(r Resource, finalizers ...string) Content {
	c := Content{Resource: r}
	for _, f := range finalizers {
		c.add(&metav1.ObjectMeta{Name: "x", DeletionTimestamp: &metav1.Time{Time: time.Unix(1, 0)}, Finalizers: []string{f}}, nil)
	}
	return c
}

func unreadable(r Resource) Content {
	return Content{Resource: r, Err: errors.New("list " + r.Resource + ": broken webhook")}
}

// surveyOf returns a survey that has read every type. All are empty except the given ones.
func surveyOf(contents ...Content) *Survey {
	s := &Survey{Resources: everyType}
	for _, r := range everyType {
		s.Record([]Content{{Resource: r}})
	}
	s.Record(contents)
	return s
}

func TestR22_AccessIsDeletedAfterContents(t *testing.T) {
	for r, want := range map[Resource]Stage{
		pods: StagePods, configMaps: StageContents, deployments: StageContents,
		resource("", "v1", "secrets"):                          StageContents,
		resource("example.com", "v1", "pods"):                  StageContents,
		resource("rbac.authorization.k8s.io", "v1", "widgets"): StageContents,
		roles: StageAccess, bindings: StageAccess, policies: StageAccess,
	} {
		if got := (Order{}).StageOf(r.GroupResource()); got != want {
			t.Errorf("StageOf(%s) = %d, want %d", r.GroupResource(), got, want)
		}
	}
}

// The next step for each survey. Within a stage nothing waits for another type; between stages
// everything does.
func TestR22_NextStepOfEachSurvey(t *testing.T) {
	missing := func(group string) error {
		return &Incomplete{Groups: map[schema.GroupVersion]error{{Group: group, Version: "v1"}: errors.New("down")}}
	}
	remembered := func(group string) *Incomplete {
		version := schema.GroupVersion{Group: group, Version: "v1"}
		return &Incomplete{Groups: map[schema.GroupVersion]error{version: errors.New("down")}, Remembered: map[schema.GroupVersion]bool{version: true}}
	}
	twoMissing := func() error {
		incomplete := remembered("metrics.k8s.io")
		incomplete.Groups[schema.GroupVersion{Group: "example.com", Version: "v1"}] = errors.New("down")
		return incomplete
	}
	ordered := func(s *Survey, text string) *Survey {
		order, err := parseOrder(text)
		if err != nil {
			t.Fatal(err)
		}
		s.Order = order
		return s
	}
	with := func(s *Survey, discovery error) *Survey { s.Discovery = discovery; return s }
	swept := func(s *Survey, r Resource, after Content) *Survey {
		s.Sweep(r, nil)
		s.Record([]Content{after})
		return s
	}
	deleting := func(w Stage, contents ...Content) Step { return Delete{w, contents} }
	waiting := func(w Stage, remaining, deleting int) Step {
		return Wait{Stage: w, Remaining: remaining, Deleting: deleting}
	}
	tests := map[string]struct {
		survey *Survey
		want   Step
	}{
		"nothing known: pods are read first":             {&Survey{Resources: everyType}, Read{[]Resource{pods}}},
		"NS-03 empty":                                    {surveyOf(), Finalize{}},
		"no types, no trouble":                           {&Survey{}, Finalize{}},
		"NS-22 pods go first":                            {surveyOf(active(pods, "a"), active(configMaps, "b")), deleting(StagePods, active(pods, "a"))},
		"NS-22 a hanging pod holds all":                  {surveyOf(hanging(pods, "x/y"), active(configMaps, "b"), active(roles, "r")), waiting(StagePods, 1, 1)},
		"active pods go beside hanging ones":             {surveyOf(merged(hanging(pods, "x/y"), active(pods, "a"))), deleting(StagePods, merged(hanging(pods, "x/y"), active(pods, "a")))},
		"contents go together":                           {surveyOf(active(configMaps, "b"), active(deployments, "d"), active(roles, "r")), deleting(StageContents, active(configMaps, "b"), active(deployments, "d"))},
		"a hanging type holds no other":                  {surveyOf(hanging(configMaps, "x/y"), active(deployments, "d")), deleting(StageContents, active(deployments, "d"))},
		"a hanging type holds the last stage":            {surveyOf(hanging(configMaps, "x/y"), active(roles, "r")), waiting(StageContents, 1, 1)},
		"an unreadable type holds no other":              {surveyOf(unreadable(configMaps), active(deployments, "d")), deleting(StageContents, active(deployments, "d"))},
		"an unreadable type holds the last stage":        {surveyOf(unreadable(configMaps), active(roles, "r")), waiting(StageContents, 0, 0)},
		"unreadable pods hold all":                       {surveyOf(unreadable(pods), active(configMaps, "b")), waiting(StagePods, 0, 0)},
		"RBAC and policies go last":                      {surveyOf(active(roles, "r"), active(bindings, "rb"), active(policies, "n")), deleting(StageAccess, active(policies, "n"), active(bindings, "rb"), active(roles, "r"))},
		"NS-06 a missing group holds the end":            {with(surveyOf(), missing("metrics.k8s.io")), waiting(Order{}.end(), 0, 0)},
		"NS-06 a group that is remembered holds nothing": {with(surveyOf(), remembered("metrics.k8s.io")), Finalize{}},
		"NS-06 one of two groups is remembered":          {with(surveyOf(), twoMissing()), waiting(Order{}.end(), 0, 0)},
		"remembered pods are looked for":                 {with(surveyOf(active(configMaps, "b")), remembered("")), deleting(StageContents, active(configMaps, "b"))},
		"another order":                                  {ordered(surveyOf(active(pods, "a"), active(configMaps, "b"), active(roles, "r")), "configmaps;*;pods"), deleting(0, active(configMaps, "b"))},
		"another order, second stage":                    {ordered(surveyOf(active(pods, "a"), active(roles, "r")), "configmaps;*;pods"), deleting(1, active(roles, "r"))},
		"another order, a group that may hide a stage":   {with(ordered(surveyOf(active(pods, "a")), "deployments.apps;*"), missing("apps")), waiting(0, 0, 0)},
		"NS-06 a missing group holds no contents":        {with(surveyOf(active(roles, "r")), missing("metrics.k8s.io")), deleting(StageAccess, active(roles, "r"))},
		"the core group may hide pods":                   {with(surveyOf(active(configMaps, "b")), missing("")), waiting(StagePods, 0, 0)},
		"no discovery at all":                            {&Survey{Discovery: errors.New("down")}, waiting(StagePods, 0, 0)},
		"deleted from, read again":                       {swept(surveyOf(active(configMaps, "b")), configMaps, Content{Resource: configMaps}), Verify{}},
		"deleted from, still active":                     {swept(surveyOf(active(configMaps, "b")), configMaps, active(configMaps, "c")), waiting(StageContents, 1, 0)},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			ignore := cmpopts.IgnoreFields(Wait{}, "Reason")
			if diff := cmp.Diff(test.want, Next(test.survey), ignore); diff != "" {
				t.Errorf("step (-want +got):\n%s", diff)
			}
		})
	}
}

// merged returns a type of which some objects hang and some are active.
func merged(hanging, active Content) Content {
	hanging.Active = active.Active
	hanging.Remaining += active.Remaining
	return hanging
}

// After a DELETE the type has to be read again: only a list shows that the objects are gone.
func TestR22_SweptTypesAreReadAgain(t *testing.T) {
	s := surveyOf(active(configMaps, "b"))
	s.Sweep(configMaps, nil)
	if diff := cmp.Diff(Step(Read{[]Resource{configMaps}}), Next(s)); diff != "" {
		t.Errorf("step (-want +got):\n%s", diff)
	}
}

// A sync ends: from any contents Next arrives at Wait, Verify or Finalize, with a bounded number of
// reads and deletes per type.
func TestR22_ASyncEnds(t *testing.T) {
	s := &Survey{Resources: everyType}
	for steps := range 12 {
		switch step := Next(s).(type) {
		case Read:
			for _, r := range step.Resources {
				s.Record([]Content{active(r, "never goes")})
			}
		case Delete:
			for _, c := range step.Contents {
				s.Sweep(c.Resource, nil)
			}
		case Wait:
			if step.Stage != StagePods {
				t.Errorf("waits in stage %d, want pods", step.Stage)
			}
			return
		default:
			t.Fatalf("step %d = %T with pods left", steps, step)
		}
	}
	t.Error("still going after 12 steps")
}

func TestR22_ProgressIsANextStageOrFewerObjects(t *testing.T) {
	before := Wait{Stage: StageContents, Remaining: 600, Deleting: 10}
	for name, test := range map[string]struct {
		now  Wait
		want bool
	}{
		"the same":             {before, false},
		"the next stage":       {Wait{Stage: StageAccess, Remaining: 900}, true},
		"fewer objects":        {Wait{Stage: StageContents, Remaining: 599, Deleting: 9}, true},
		"more of them leaving": {Wait{Stage: StageContents, Remaining: 600, Deleting: 11}, true},
		"more objects":         {Wait{Stage: StageContents, Remaining: 601, Deleting: 10}, false},
		"an earlier stage":     {Wait{Stage: StagePods}, false},
	} {
		if got := test.now.Progressed(before); got != test.want {
			t.Errorf("%s: Progressed = %v, want %v", name, got, test.want)
		}
	}
}

func TestR22_OnlyTerminatingNamespacesWithFinalizerArePending(t *testing.T) {
	deleted := &metav1.Time{Time: time.Unix(1, 0)}
	for name, test := range map[string]struct {
		deleted    *metav1.Time
		finalizers []corev1.FinalizerName
		want       bool
	}{
		"NS-08 active":                    {nil, []corev1.FinalizerName{"kubernetes"}, false},
		"NS-01 finalized":                 {deleted, nil, false},
		"our finalizer":                   {deleted, []corev1.FinalizerName{"kubernetes"}, true},
		"our finalizer and a foreign one": {deleted, []corev1.FinalizerName{"example.com/x", "kubernetes"}, true},
		"a foreign one alone":             {deleted, []corev1.FinalizerName{"example.com/x"}, false},
	} {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: test.deleted}, Spec: corev1.NamespaceSpec{Finalizers: test.finalizers}}
		if got := Pending(ns); got != test.want {
			t.Errorf("%s: Pending = %v, want %v", name, got, test.want)
		}
	}
}

func TestR22_OnlyOurFinalizerGoes(t *testing.T) {
	before := []corev1.FinalizerName{"example.com/a", "kubernetes", "example.com/b"}
	if diff := cmp.Diff([]corev1.FinalizerName{"example.com/a", "example.com/b"}, withoutOurs(before)); diff != "" {
		t.Errorf("NS-02 finalizers (-want +got):\n%s", diff)
	}
	if before[1] != "kubernetes" {
		t.Error("NS-02: the list that was read was changed")
	}
}

func TestR22_ManyObjectsAreDeletedAsACollection(t *testing.T) {
	many := make([]string, manyObjects)
	for i := range many {
		many[i] = fmt.Sprint(i)
	}
	supported, unsupported := configMaps, configMaps
	unsupported.DeleteCollection = false
	for name, test := range map[string]struct {
		content Content
		want    bool
	}{
		"many":                       {active(supported, many...), true},
		"few":                        {active(supported, many[1:]...), false},
		"many, not supported":        {active(unsupported, many...), false},
		"many, one is being deleted": {merged(hanging(supported, "x/y"), active(supported, many...)), false},
	} {
		if got := collectable(test.content); got != test.want {
			t.Errorf("%s: collectable = %v, want %v", name, got, test.want)
		}
	}
}
