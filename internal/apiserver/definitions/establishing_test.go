package definitions

import (
	"testing"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

func TestClaimsOfOneNameConflict(t *testing.T) {
	widgets := claimOf("widgets", "widget", []string{"w"}, "Widget", "WidgetList")
	for name, test := range map[string]struct {
		other claim
		want  bool
	}{
		"nothing in common":               {claimOf("things", "thing", nil, "Thing", "ThingList"), false},
		"nothing accepted":                {claimOf("", "", nil, "", ""), false},
		"its plural is a singular":        {claimOf("things", "widgets", nil, "Thing", "ThingList"), true},
		"a short name":                    {claimOf("things", "thing", []string{"w"}, "Thing", "ThingList"), true},
		"its kind":                        {claimOf("things", "thing", nil, "Widget", "ThingList"), true},
		"its kind is a list":              {claimOf("things", "thing", nil, "Thing", "Widget"), true},
		"a resource that is named a kind": {claimOf("Widget", "thing", nil, "Thing", "ThingList"), false},
	} {
		if got := widgets.conflicts(test.other); got != test.want {
			t.Errorf("%s: %t, want %t", name, got, test.want)
		}
	}
}

func newDefinition(name string, uid types.UID, kind string) *apiextensions.CustomResourceDefinition {
	return &apiextensions.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: name + ".example.com", UID: uid},
		Spec: apiextensions.CustomResourceDefinitionSpec{
			Group: "example.com", Names: apiextensions.CustomResourceDefinitionNames{Plural: name, Singular: name, Kind: kind, ListKind: kind + "List"},
		},
	}
}

func TestDefinitionWithoutConversionWebhookIsEstablishedAtOnce(t *testing.T) {
	plain := newDefinition("widgets", "1", "Widget")
	none := plain.DeepCopy()
	none.Spec.Conversion = &apiextensions.CustomResourceConversion{Strategy: apiextensions.NoneConverter}
	webhook := plain.DeepCopy()
	webhook.Spec.Conversion = &apiextensions.CustomResourceConversion{Strategy: apiextensions.WebhookConverter}
	decided := plain.DeepCopy()
	decided.Status.Conditions = []apiextensions.CustomResourceDefinitionCondition{{Type: apiextensions.NonStructuralSchema}}
	for name, test := range map[string]struct {
		definition *apiextensions.CustomResourceDefinition
		want       bool
	}{"plain": {plain, true}, "no conversion": {none, true}, "a webhook converts": {webhook, false}, "with conditions": {decided, false}} {
		status, ok := established(test.definition, metav1.Now())
		if ok != test.want || ok != apiextensions.IsCRDConditionTrue(&apiextensions.CustomResourceDefinition{Status: status}, apiextensions.Established) {
			t.Errorf("%s: %t, %+v, want %t", name, ok, status, test.want)
		}
		if ok && status.AcceptedNames.Kind != test.definition.Spec.Names.Kind {
			t.Errorf("%s: the names are %+v", name, status.AcceptedNames)
		}
	}
}

// Names are reserved just before their definition is created, until it is deleted or its creation
// fails.
func TestNamesAreReservedUntilTheDefinitionIsDeleted(t *testing.T) {
	now := time.Now()
	var store cache.Store
	synced := false
	e := NewEstablisher(func() time.Time { return now }, func() (cache.Store, bool) { return store, synced }, func() bool { return true })
	widgets, rival, things := newDefinition("widgets", "1", "Widget"), newDefinition("rivals", "2", "Widget"), newDefinition("things", "3", "Thing")
	if e.claim(widgets) {
		t.Error("a claim is granted before the definitions are known")
	}
	store = cache.NewStore(cache.MetaNamespaceKeyFunc)
	if e.claim(widgets) {
		t.Error("a claim is granted before all definitions are known")
	}
	synced = true
	expect := func(what string, definition *apiextensions.CustomResourceDefinition, want bool) {
		t.Helper()
		if got := e.claim(definition); got != want {
			t.Errorf("%s: %t, want %t", what, got, want)
		}
	}
	expect("the first", widgets, true)
	expect("another kind", things, true)
	expect("the same kind", rival, false)
	e.forget(rival)
	expect("the same kind, after the rival has failed", rival, false)
	e.forget(widgets)
	expect("the same kind, after the first has failed", rival, true)
	if !e.isPending(rival.Name) || e.isPending(widgets.Name) {
		t.Error("the rival is not pending, or the first is")
	}
	known := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: rival.ObjectMeta, Spec: apiextensionsv1.CustomResourceDefinitionSpec{Group: "example.com"},
		Status: apiextensionsv1.CustomResourceDefinitionStatus{AcceptedNames: apiextensionsv1.CustomResourceDefinitionNames{Kind: "Widget"}},
	}
	if err := store.Add(known); err != nil {
		t.Fatal(err)
	}
	if e.isPending(rival.Name) {
		t.Error("the rival is pending when the informer has it")
	}
	expect("the same kind as one that the informer has", widgets, false)
	if err := store.Delete(known); err != nil {
		t.Fatal(err)
	}
	expect("the same kind, when that is gone", widgets, true)
	now = now.Add(2 * longestWait)
	if e.isPending(widgets.Name) || e.isPending(things.Name) {
		t.Error("definitions that the informer never shows are pending for ever")
	}
}

// The informer of this process shows a definition as established for at least catchUp.
func TestDefinitionsAreInEffect(t *testing.T) {
	now := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	for name, test := range map[string]struct{ established, want time.Time }{
		"just now":   {now, now.Add(-catchUp)},
		"a while":    {now.Add(-time.Second), now.Add(-catchUp)},
		"long ago":   {now.Add(-time.Minute), now.Add(-time.Minute)},
		"once again": {now.Add(-catchUp), now.Add(-catchUp)},
	} {
		d := &apiextensionsv1.CustomResourceDefinition{}
		d.Status.Conditions = []apiextensionsv1.CustomResourceDefinitionCondition{
			{Type: apiextensionsv1.NamesAccepted, LastTransitionTime: metav1.NewTime(now)},
			{Type: apiextensionsv1.Established, LastTransitionTime: metav1.NewTime(test.established)},
		}
		inEffect(d, now)
		if c := d.Status.Conditions; !c[0].LastTransitionTime.Time.Equal(now) || !c[1].LastTransitionTime.Time.Equal(test.want) {
			t.Errorf("%s: %v", name, c)
		}
	}
	inEffect(&apiextensionsv1.CustomResourceDefinition{}, now)
}
