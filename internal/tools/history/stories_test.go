package history_test

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/coppice-dev/coppice/internal/collect/story"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/history"
)

// shopDeletion is the deletion of a namespace by ann, which a policy has held for ten minutes.
func shopDeletion(by *story.By) (*story.Summary, []story.Object) {
	began, ended := noon(), noon().Add(10*time.Minute)
	shop := story.Ref{Kind: "Namespace", Name: "shop", UID: "shop"}
	return &story.Summary{ID: "shop", Root: shop, Policy: "Background", By: by, Began: began}, []story.Object{
		{Ref: shop, Marked: &began, Gone: &ended},
		{
			Ref: story.Ref{Kind: "ConfigMap", Namespace: "shop", Name: "c", UID: "c"}, In: "shop", Marked: &ended, Gone: &ended,
			Refusal: &story.Refusal{By: "policy", Refuser: "keep", Binding: "all", Message: "it is kept", Since: began, Count: 9, Ended: &ended},
		},
		{Ref: story.Ref{Kind: "Secret", Namespace: "shop", Name: "there", UID: "there"}, In: "shop"},
	}
}

// Who has deleted a namespace, and what the server has refused meanwhile, follows from the story of a collector.
func TestDeletionIsExplainedFromStories(t *testing.T) {
	const refused = "    because the server refused ConfigMap shop/c for 10m0s: ValidatingAdmissionPolicy 'keep' with binding 'all' denied request: it is kept\n"
	const within = "    Namespace shop: gone\n      deleted by an unknown user, policy Background, 60m ago (2026-03-01T12:00:00Z)\n    " + refused
	const byAnn = "Namespace shop: gone\n  deleted by ann, with kubectl/v1.37.2, policy Background, 60m ago (2026-03-01T12:00:00Z)\n" + refused
	for _, test := range []struct {
		name   string
		by     *story.By
		target history.Target
		want   string
	}{
		{"root", &story.By{User: "ann", Agent: "kubectl/v1.37.2"}, history.Target{Kind: ownership.Kind{Kind: "Namespace"}, Name: "shop"}, byAnn},
		{"root, by UID", &story.By{User: "ann", Agent: "kubectl/v1.37.2"}, history.Target{UID: "shop"}, byAnn},
		{
			"nobody knows the user", nil,
			history.Target{UID: "shop"},
			"Namespace shop: gone\n  deleted by an unknown user, policy Background, 60m ago (2026-03-01T12:00:00Z)\n" + refused,
		},
		{
			"contents", nil,
			history.Target{Kind: ownership.Kind{Kind: "ConfigMap"}, Namespace: "shop", Name: "c"},
			"ConfigMap shop/c: gone\n  deleted with Namespace shop, 50m ago (2026-03-01T12:10:00Z)\n" + refused + within,
		},
		{"not gone", nil, history.Target{UID: "there"}, ""},
		{"another", nil, history.Target{UID: "other"}, ""},
	} {
		log := history.NewLog(nil)
		log.AddStory(shopDeletion(test.by))
		x, ok := log.Explain(test.target)
		got := x.Text(noon().Add(time.Hour))
		if !ok {
			got = ""
		}
		if got != test.want {
			t.Errorf("%s:\n%s\nwant:\n%s", test.name, got, test.want)
		}
	}
}

// A story concerns its roots, and what was deleted with a namespace or a definition.
func TestStoryConcernsRootsAndTheirContents(t *testing.T) {
	s, _ := shopDeletion(nil)
	definition := &story.Summary{Root: story.Ref{Kind: "CustomResourceDefinition.apiextensions.k8s.io", Name: "widgets.example.com", UID: "d"}}
	widget := ownership.Kind{Group: "example.com", Kind: "Widget"}
	for _, test := range []struct {
		story    *story.Summary
		target   history.Target
		resource string
		want     bool
	}{
		{s, history.Target{UID: "shop"}, "", true},
		{s, history.Target{UID: "c"}, "", false},
		{s, history.Target{Kind: ownership.Kind{Kind: "Namespace"}, Name: "shop"}, "namespaces", true},
		{s, history.Target{Kind: ownership.Kind{Kind: "Namespace"}, Name: "other"}, "namespaces", false},
		{s, history.Target{Kind: ownership.Kind{Kind: "Pod"}, Namespace: "shop", Name: "p"}, "pods", true},
		{s, history.Target{Kind: ownership.Kind{Kind: "Pod"}, Namespace: "other", Name: "p"}, "pods", false},
		{definition, history.Target{Kind: widget, Namespace: "other", Name: "w"}, "widgets.example.com", true},
		{definition, history.Target{Kind: widget, Namespace: "other", Name: "w"}, "gadgets.example.com", false},
	} {
		if got := history.Concerns(test.story, test.target, schema.ParseGroupResource(test.resource)); got != test.want {
			t.Errorf("%s and %+v: %t", test.story.Root, test.target, got)
		}
	}
}
