package aggregation

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

func TestDecideAboutRegistration(t *testing.T) {
	version := schema.GroupVersion{Group: "fruit.example.com", Version: "v1"}
	of := func(managed string, change func(*apiregistrationv1.APIService)) *apiregistrationv1.APIService {
		s := localService(version, Priority{1000, 100}, managed)
		s.ResourceVersion = "7"
		if change != nil {
			change(s)
		}
		return s
	}
	theirs := func(s *apiregistrationv1.APIService) {
		s.Spec.Service = &apiregistrationv1.ServiceReference{Name: "api"}
	}
	annotated := func(s *apiregistrationv1.APIService) { s.Annotations = map[string]string{"a": "b"} }
	theirsAnnotated := func(s *apiregistrationv1.APIService) { theirs(s); annotated(s) }
	never := localService(version, Priority{1000, 100}, "false")
	for name, c := range map[string]struct {
		desired, observed *apiregistrationv1.APIService
		at                moment
		want              step
	}{
		"neither":                                     {nil, nil, starting, nil},
		"a definition's is missing":                   {of(always, nil), nil, running, create{of(always, nil)}},
		"a definition's is missing at the start":      {of(always, nil), nil, starting, create{of(always, nil)}},
		"a built-in one is missing at the start":      {of(onStart, nil), nil, starting, create{of(onStart, nil)}},
		"a built-in one was deleted":                  {of(onStart, nil), nil, running, nil},
		"as desired":                                  {of(always, nil), of(always, nil), starting, nil},
		"a definition's was changed":                  {of(always, nil), of(always, theirsAnnotated), running, update{of(always, annotated)}},
		"a built-in one was changed":                  {of(onStart, nil), of(onStart, theirs), running, nil},
		"a built-in one was changed before the start": {of(onStart, nil), of(onStart, theirsAnnotated), starting, update{of(onStart, annotated)}},
		"the definition is gone":                      {nil, of(always, nil), running, remove{of(always, nil)}},
		"a group is no longer built in":               {nil, of(onStart, nil), starting, remove{of(onStart, nil)}},
		"somebody labels one like a built-in one":     {nil, of(onStart, nil), running, nil},
		"a user's":                            {nil, never, starting, nil},
		"a user's, of a definition's version": {of(always, nil), of("", theirs), starting, nil},
	} {
		got := decide(c.desired, c.observed, c.at)
		if diff := cmp.Diff(c.want, got, cmp.AllowUnexported(create{}, update{}, remove{})); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// TestGroupsHaveUpstreamsOrder checks that groups and versions are in upstream's order.
func TestGroupsHaveUpstreamsOrder(t *testing.T) {
	order := []schema.GroupVersion{
		{Version: "v1"},
		{Group: "apps", Version: "v1"},
		{Group: "events.k8s.io", Version: "v1"},
		{Group: "autoscaling", Version: "v2"},
		{Group: "autoscaling", Version: "v1"},
		{Group: "batch", Version: "v1"},
		{Group: "extensions", Version: "v1beta1"},
	}
	for i, higher := range order[:len(order)-1] {
		a, b := PriorityOf(higher), PriorityOf(order[i+1])
		if a.Group < b.Group || a.Group == b.Group && a.Version <= b.Version {
			t.Errorf("%s has %v, %s has %v", higher, a, order[i+1], b)
		}
	}
	if a, b := PriorityOf(schema.GroupVersion{Group: "apps", Version: "v1"}), PriorityOf(schema.GroupVersion{Group: "apps", Version: "v1beta2"}); a.Group != b.Group || a.Version <= b.Version {
		t.Errorf("apps/v1 has %v, apps/v1beta2 %v", a, b)
	}
	if p := PriorityOf(schema.GroupVersion{Group: "extensions", Version: "v1beta1"}); p.Group <= customPriority().Group {
		t.Errorf("extensions/v1beta1 has %v, custom resources %v", p, customPriority())
	}
	for _, p := range []Priority{customPriority(), unknownPriority()} {
		if p.Group < 1 || p.Group >= highestPriority || p.Version < 1 {
			t.Errorf("%v is not valid", p)
		}
	}
}
