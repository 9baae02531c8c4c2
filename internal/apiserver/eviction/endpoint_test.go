package eviction

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/coppice-dev/coppice/internal/controller/pods"
)

// registry has one pod and budgets. Another client may write before each write.
type registry struct {
	pod     *corev1.Pod // nil: gone
	budgets map[string]*policyv1.PodDisruptionBudget
	// deleted is the last state of the deleted pod, and options are the options of its deletion.
	deleted *corev1.Pod
	options *metav1.DeleteOptions
	log     []string
	// beforeDisrupt, beforeMark and beforeDelete are the actions of another client before a write;
	// they may be nil.
	beforeDisrupt, beforeMark, beforeDelete func(*registry)
}

func newRegistry(p *corev1.Pod, budgets ...policyv1.PodDisruptionBudget) *registry {
	r := &registry{pod: p, budgets: map[string]*policyv1.PodDisruptionBudget{}}
	for i := range budgets {
		r.budgets[budgets[i].Name] = &budgets[i]
	}
	return r
}

func (r *registry) registries() Registries {
	return Registries{Pods: podRegistry{r}, PodStatus: statusRegistry{r}, Budgets: budgetRegistry{r}, BudgetStatus: budgetRegistry{r}}
}

// change is a write to the pod by another client.
func (r *registry) change(changes ...func(*corev1.Pod)) {
	r.pod = r.pod.DeepCopy()
	for _, change := range changes {
		change(r.pod)
	}
	r.bump()
}

func (r *registry) bump() {
	n, err := strconv.Atoi(r.pod.ResourceVersion)
	if err != nil {
		panic(err)
	}
	r.pod.ResourceVersion = strconv.Itoa(n + 1)
}

func (r *registry) others(come func(*registry)) {
	if come != nil {
		come(r)
	}
}

func (r *registry) gone(name string) error {
	return apierrors.NewNotFound(corev1.Resource("pods"), name)
}

type podRegistry struct{ *registry }

func (r podRegistry) Get(_ context.Context, name string, _ *metav1.GetOptions) (runtime.Object, error) {
	if r.pod == nil {
		return nil, r.gone(name)
	}
	return r.pod, nil
}

func (r podRegistry) Delete(_ context.Context, name string, _ rest.ValidateObjectFunc, options *metav1.DeleteOptions) (runtime.Object, bool, error) {
	r.others(r.beforeDelete)
	if r.pod == nil {
		return nil, false, r.gone(name)
	}
	want := options.Preconditions
	if want == nil || want.UID == nil || want.ResourceVersion == nil {
		return nil, false, errors.New("a deletion without preconditions")
	}
	if *want.UID != r.pod.UID || *want.ResourceVersion != r.pod.ResourceVersion {
		return nil, false, apierrors.NewConflict(corev1.Resource("pods"), name, errors.New("precondition failed"))
	}
	r.log = append(r.log, "delete")
	r.deleted, r.options = r.pod, options
	if len(options.DryRun) == 0 {
		r.pod = nil
	}
	return r.deleted, true, nil
}

type statusRegistry struct{ *registry }

func (r statusRegistry) New() runtime.Object { return &corev1.Pod{} }

func (r statusRegistry) Update(
	ctx context.Context, name string, info rest.UpdatedObjectInfo, _ rest.ValidateObjectFunc, _ rest.ValidateObjectUpdateFunc, _ bool, _ *metav1.UpdateOptions,
) (runtime.Object, bool, error) {
	r.others(r.beforeMark)
	if r.pod == nil {
		return nil, false, r.gone(name)
	}
	obj, err := info.UpdatedObject(ctx, r.pod)
	if err != nil {
		return nil, false, err
	}
	r.log = append(r.log, "mark")
	r.pod = obj.(*corev1.Pod)
	r.bump()
	return r.pod, false, nil
}

type budgetRegistry struct{ *registry }

func (r budgetRegistry) New() runtime.Object     { return &policyv1.PodDisruptionBudget{} }
func (r budgetRegistry) NewList() runtime.Object { return &policyv1.PodDisruptionBudgetList{} }

func (r budgetRegistry) ConvertToTable(context.Context, runtime.Object, runtime.Object) (*metav1.Table, error) {
	return nil, errors.New("nobody asks for a table")
}

func (r budgetRegistry) List(context.Context, *internalversion.ListOptions) (runtime.Object, error) {
	list := &policyv1.PodDisruptionBudgetList{}
	for _, b := range r.budgets {
		list.Items = append(list.Items, *b.DeepCopy())
	}
	return list, nil
}

func (r budgetRegistry) Update(
	ctx context.Context, name string, info rest.UpdatedObjectInfo, _ rest.ValidateObjectFunc, _ rest.ValidateObjectUpdateFunc, _ bool, options *metav1.UpdateOptions,
) (runtime.Object, bool, error) {
	r.others(r.beforeDisrupt)
	b, ok := r.budgets[name]
	if !ok {
		return nil, false, apierrors.NewNotFound(policyv1.Resource("poddisruptionbudgets"), name)
	}
	obj, err := info.UpdatedObject(ctx, b)
	if err != nil {
		return nil, false, err
	}
	r.log = append(r.log, "disrupt")
	if len(options.DryRun) == 0 {
		r.budgets[name] = obj.(*policyv1.PodDisruptionBudget)
	}
	return obj, false, nil
}

func (r *registry) evict(t *testing.T, options *metav1.DeleteOptions) error {
	t.Helper()
	e := NewEndpoint(r.registries(), func() time.Time { return epoch })
	eviction := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: "web"}, DeleteOptions: options}
	answer, err := e.Create(t.Context(), "web", eviction, nil, &metav1.CreateOptions{})
	if s, ok := answer.(*metav1.Status); err == nil && (!ok || s.Status != metav1.StatusSuccess) {
		t.Errorf("the answer is %v", answer)
	}
	return err
}

// once returns a function that acts the first n times that it is called.
func once(n int, act func(*registry)) func(*registry) {
	return func(r *registry) {
		if n--; n >= 0 {
			act(r)
		}
	}
}

func TestEvictionMarksBeforeItDeletes(t *testing.T) {
	for name, test := range map[string]struct {
		registry *registry
		log      []string
		left     int32 // disruptions that the budget allows afterwards
	}{
		"no budget":          {newRegistry(pod()), []string{"mark", "delete"}, 0},
		"a budget":           {newRegistry(pod(), budget()), []string{"disrupt", "mark", "delete"}, 0},
		"it has ended":       {newRegistry(pod(inPhase(corev1.PodFailed)), budget()), []string{"mark", "delete"}, 1},
		"it is pending":      {newRegistry(pod(inPhase(corev1.PodPending)), budget()), []string{"mark", "delete"}, 1},
		"it is not ready":    {newRegistry(pod(unready), budget()), []string{"mark", "delete"}, 1},
		"it is being ended":  {newRegistry(pod(terminating), budget(), budget()), []string{"mark", "delete"}, 1},
		"it is not the last": {newRegistry(pod(), budget(allowed(3))), []string{"disrupt", "mark", "delete"}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			r := test.registry
			if err := r.evict(t, nil); err != nil {
				t.Fatal(err)
			}
			if fmt.Sprint(r.log) != fmt.Sprint(test.log) {
				t.Errorf("%v, want %v", r.log, test.log)
			}
			c := pods.Condition(r.deleted, corev1.DisruptionTarget)
			if c == nil || c.Status != corev1.ConditionTrue || c.Reason != "EvictionByEvictionAPI" || c.Message != "Eviction API: evicting" {
				t.Errorf("the condition of the pod is %+v", c)
			}
			if b := r.budgets["guard"]; b != nil && b.Status.DisruptionsAllowed != test.left {
				t.Errorf("%d are left", b.Status.DisruptionsAllowed)
			}
		})
	}
}

// An eviction that is refused changes nothing.
func TestEvictRefused(t *testing.T) {
	twin := budget()
	twin.Name = "twin"
	other := "another"
	for name, test := range map[string]struct {
		registry *registry
		options  *metav1.DeleteOptions
		code     int32
	}{
		"the budget does not allow it":  {newRegistry(pod(), budget(allowed(0))), nil, http.StatusTooManyRequests},
		"two budgets":                   {newRegistry(pod(), budget(), twin), nil, http.StatusInternalServerError},
		"no pod":                        {newRegistry(nil), nil, http.StatusNotFound},
		"another uid":                   {newRegistry(pod(), budget()), &metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(other)}, http.StatusConflict},
		"another version":               {newRegistry(pod(), budget()), &metav1.DeleteOptions{Preconditions: metav1.NewRVDeletionPrecondition(other).Preconditions}, http.StatusConflict},
		"a policy that does not exist":  {newRegistry(pod(), budget()), &metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletionPropagation("Sideways"))}, http.StatusUnprocessableEntity},
		"an option that is not for it":  {newRegistry(pod(), budget()), &metav1.DeleteOptions{IgnoreStoreReadErrorWithClusterBreakingPotential: new(true)}, http.StatusUnprocessableEntity},
		"the dry run of something else": {newRegistry(pod(), budget()), &metav1.DeleteOptions{DryRun: []string{"Some"}}, http.StatusUnprocessableEntity},
	} {
		err := test.registry.evict(t, test.options)
		answer, ok := errors.AsType[*apierrors.StatusError](err)
		if !ok || answer.ErrStatus.Code != test.code {
			t.Errorf("%s: %v", name, err)
		}
		if len(test.registry.log) > 0 {
			t.Errorf("%s: %v", name, test.registry.log)
		}
	}
}

func TestEvictOptions(t *testing.T) {
	r := newRegistry(pod(), budget())
	preconditions := &metav1.Preconditions{UID: new(pod().UID), ResourceVersion: new(pod().ResourceVersion)}
	if err := r.evict(t, &metav1.DeleteOptions{GracePeriodSeconds: new(int64(3)), Preconditions: preconditions}); err != nil {
		t.Fatal(err)
	}
	if r.options.GracePeriodSeconds == nil || *r.options.GracePeriodSeconds != 3 {
		t.Errorf("%+v", r.options)
	}
}

// A dry run checks the budget, and changes nothing.
func TestEvictDryRun(t *testing.T) {
	all := []string{metav1.DryRunAll}
	e := func(r *registry) *Endpoint { return NewEndpoint(r.registries(), func() time.Time { return epoch }) }
	for name, test := range map[string]struct {
		inBody, inRequest []string
		budget            policyv1.PodDisruptionBudget
		refused           bool
	}{
		"of the content":  {all, nil, budget(), false},
		"of the request":  {nil, all, budget(), false},
		"of both":         {all, all, budget(), false},
		"of what may not": {nil, all, budget(allowed(0)), true},
	} {
		r := newRegistry(pod(), test.budget)
		eviction := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: "web"}, DeleteOptions: &metav1.DeleteOptions{DryRun: test.inBody}}
		_, err := e(r).Create(t.Context(), "web", eviction, nil, &metav1.CreateOptions{DryRun: test.inRequest})
		if apierrors.IsTooManyRequests(err) != test.refused || err != nil && !test.refused {
			t.Errorf("%s: %v", name, err)
		}
		if r.pod.ResourceVersion != "1" || len(r.budgets["guard"].Status.DisruptedPods) > 0 || !test.refused && len(r.options.DryRun) != 1 {
			t.Errorf("%s: %v, %+v", name, r.log, r.budgets["guard"].Status)
		}
	}
}

func TestCreateChecksTheEviction(t *testing.T) {
	r := newRegistry(pod())
	e := NewEndpoint(r.registries(), func() time.Time { return epoch })
	refusal := errors.New("not admitted")
	refuse := func(context.Context, runtime.Object) error { return refusal }
	eviction := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: "web"}}
	if _, err := e.Create(t.Context(), "web", eviction, refuse, &metav1.CreateOptions{}); !errors.Is(err, refusal) {
		t.Errorf("%v", err)
	}
	if _, err := e.Create(t.Context(), "db", eviction, nil, &metav1.CreateOptions{}); !apierrors.IsBadRequest(err) {
		t.Errorf("of another name: %v", err)
	}
	if _, err := e.Create(t.Context(), "web", &corev1.Pod{}, nil, &metav1.CreateOptions{}); !apierrors.IsBadRequest(err) {
		t.Errorf("a pod: %v", err)
	}
	different := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: "web"}, DeleteOptions: &metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll, metav1.DryRunAll}}}
	if _, err := e.Create(t.Context(), "web", different, nil, &metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); !apierrors.IsBadRequest(err) {
		t.Errorf("two dry runs: %v", err)
	}
	if len(r.log) > 0 {
		t.Errorf("%v", r.log)
	}
}

// No write of another client between the steps makes Evict delete a pod that it must not delete.
func TestEvictRaces(t *testing.T) {
	becomesReady := func(r *registry) { r.change(func(p *corev1.Pod) { p.Status = pod().Status }) }
	reports := func(r *registry) { r.change(func(p *corev1.Pod) { p.Status.PodIP = "10.0.0.1" }) }
	relabels := func(r *registry) { r.change(labelled("db")) }
	relabelsMore := func(r *registry) {
		r.change(func(p *corev1.Pod) { p.Labels = map[string]string{"app": "web", "tier": "front"} })
	}
	recreates := func(r *registry) { r.pod = pod(func(p *corev1.Pod) { p.UID = "second" }) }
	ofDB := func(b *policyv1.PodDisruptionBudget) {
		b.Name = "db"
		b.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}}
	}
	for name, test := range map[string]struct {
		pod                                     *corev1.Pod
		budgets                                 []policyv1.PodDisruptionBudget
		beforeDisrupt, beforeMark, beforeDelete func(*registry)
		options                                 *metav1.DeleteOptions
		goes                                    bool
		reason                                  metav1.StatusReason // of the refusal
	}{
		"a pending pod becomes ready":              {pod: pod(inPhase(corev1.PodPending)), budgets: []policyv1.PodDisruptionBudget{budget(allowed(0))}, beforeMark: once(1, becomesReady), reason: metav1.StatusReasonTooManyRequests},
		"it becomes ready at the last moment":      {pod: pod(inPhase(corev1.PodPending)), budgets: []policyv1.PodDisruptionBudget{budget(allowed(0))}, beforeDelete: once(1, becomesReady), reason: metav1.StatusReasonTooManyRequests},
		"it becomes ready, and the budget is kept": {pod: pod(unready), budgets: []policyv1.PodDisruptionBudget{budget()}, beforeMark: once(1, becomesReady), goes: true},
		"its node reports":                         {pod: pod(), budgets: []policyv1.PodDisruptionBudget{budget()}, beforeMark: once(1, reports), beforeDelete: once(3, reports), goes: true},
		"its node always reports":                  {pod: pod(), budgets: []policyv1.PodDisruptionBudget{budget()}, beforeDelete: reports, reason: metav1.StatusReasonTooManyRequests},
		"it is recreated":                          {pod: pod(), beforeMark: once(1, recreates), reason: metav1.StatusReasonNotFound},
		"it is recreated at the last moment":       {pod: pod(), beforeDelete: once(1, recreates), reason: metav1.StatusReasonNotFound},
		"it changes its budget":                    {pod: pod(), budgets: []policyv1.PodDisruptionBudget{budget(), budget(ofDB, allowed(0))}, beforeMark: once(1, relabels), reason: metav1.StatusReasonTooManyRequests},
		"it changes, and keeps its budget":         {pod: pod(), budgets: []policyv1.PodDisruptionBudget{budget(allowed(2))}, beforeMark: once(1, relabelsMore), goes: true},
		"it gets a budget":                         {pod: pod(), budgets: []policyv1.PodDisruptionBudget{budget(ofDB, allowed(0))}, beforeDelete: once(1, relabels), reason: metav1.StatusReasonTooManyRequests},
		"the budget goes":                          {pod: pod(), budgets: []policyv1.PodDisruptionBudget{budget(allowed(0))}, beforeDisrupt: once(1, func(r *registry) { delete(r.budgets, "guard") }), goes: true},
		"others use the budget up":                 {pod: pod(), budgets: []policyv1.PodDisruptionBudget{budget()}, beforeDisrupt: once(1, func(r *registry) { r.budgets["guard"].Status.DisruptionsAllowed = 0 }), reason: metav1.StatusReasonTooManyRequests},
		"the client's version is over":             {pod: pod(), options: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: new("1")}}, beforeMark: once(1, reports), reason: metav1.StatusReasonConflict},
		"the client's version is over at last":     {pod: pod(), options: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: new("1")}}, beforeDelete: once(1, reports), reason: metav1.StatusReasonConflict},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRegistry(test.pod, test.budgets...)
			r.beforeDisrupt, r.beforeMark, r.beforeDelete = test.beforeDisrupt, test.beforeMark, test.beforeDelete
			err := r.evict(t, test.options)
			if test.goes != (err == nil) || apierrors.ReasonForError(err) != test.reason {
				t.Errorf("%v", err)
			}
			if test.goes != (r.deleted != nil) {
				t.Errorf("deleted: %v", r.deleted)
			}
			disrupted := 0
			for _, step := range r.log {
				if step == "disrupt" {
					disrupted++
				}
			}
			if disrupted > 1 {
				t.Errorf("the budget was used %d times: %v", disrupted, r.log)
			}
		})
	}
}

func TestFromStorages(t *testing.T) {
	r := newRegistry(pod())
	core := map[string]rest.Storage{"pods": noStorage{podRegistry{r}}, "pods/status": noStorage{podRegistry{r}}}
	if _, err := FromStorages(core, nil); err == nil {
		t.Error("registries that cannot write a status will do")
	}
}

// noStorage is a registry of pods that cannot be updated.
type noStorage struct{ podRegistry }

func (noStorage) New() runtime.Object { return &corev1.Pod{} }
func (noStorage) Destroy()            {}
