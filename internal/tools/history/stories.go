package history

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/dustin/go-humanize/english"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/coppice-dev/coppice/internal/collect/story"
	"github.com/coppice-dev/coppice/internal/rules/refusal"
)

// mostRefusals bounds the refusals that the explanation of a deletion names.
const mostRefusals = 4

// AddStory adds a deletion that a collector has observed: the requests for its roots, the removals of its objects, and
// the refusals of the server in between.
func (l *Log) AddStory(s *story.Summary, objects []story.Object) {
	refusals := refusalsOf(objects)
	for _, root := range rootsOf(s) {
		l.refusals[root.UID] = refusals
	}
	for i := range objects {
		o := &objects[i]
		if o.Gone != nil {
			l.observe(o, s)
		}
		if o.Refusal != nil && l.refusals[o.UID] == nil {
			l.refusals[o.UID] = []string{textOf(o)}
		}
	}
}

func rootsOf(s *story.Summary) []story.Ref {
	if len(s.Roots) > 0 {
		return s.Roots
	}
	return []story.Ref{s.Root}
}

// observe adds the deletion of an object that is gone. Stories know the requests for roots only, and their users on a
// server that tells them. Other sources about the same object have priority.
func (l *Log) observe(o *story.Object, s *story.Summary) {
	kind := kindOf(o.Kind)
	l.places[o.UID] = known{kind, o.Namespace, o.Name}
	d := &deletion{place: l.placeOf(kind, o.Namespace, o.Name), uid: o.UID, source: Stories, did: "deleted", at: *o.Gone}
	if o.Marked != nil {
		d.at = *o.Marked
	}
	isRoot := slices.ContainsFunc(rootsOf(s), func(root story.Ref) bool { return root.UID == o.UID })
	if !isRoot {
		d.with = &Target{UID: s.Root.UID, Kind: kindOf(s.Root.Kind), Namespace: s.Root.Namespace, Name: s.Root.Name}
	} else if d.policy = s.Policy; s.By != nil {
		d.by, d.agent = s.By.User, s.By.Agent
	}
	if d.by != "" && titleOf(d.by) == "" {
		l.add(d)
		return
	}
	l.observed[d.place] = append(l.observed[d.place], d)
}

// Concerns reports whether a story may have a target, or the namespace or the definition with which it was deleted.
func Concerns(s *story.Summary, t Target, resource schema.GroupResource) bool {
	return slices.ContainsFunc(rootsOf(s), func(root story.Ref) bool {
		switch {
		case t.UID != "":
			return root.UID == t.UID
		case root.Kind == "Namespace" && root.Name == t.Namespace, root.Kind == definitionKind && root.Name == resource.String():
			return true
		}
		return kindOf(root.Kind) == t.Kind && root.Namespace == t.Namespace && root.Name == t.Name
	})
}

const definitionKind = "CustomResourceDefinition.apiextensions.k8s.io"

// refusalsOf describes the refusals of a story, the longest first.
func refusalsOf(objects []story.Object) []string {
	var refused []*story.Object
	for i := range objects {
		if objects[i].Refusal != nil {
			refused = append(refused, &objects[i])
		}
	}
	slices.SortFunc(refused, func(a, b *story.Object) int {
		return cmp.Or(a.Refusal.Since.Compare(b.Refusal.Since), cmp.Compare(a.UID, b.UID))
	})
	var texts []string
	for _, o := range refused[:min(len(refused), mostRefusals)] {
		texts = append(texts, textOf(o))
	}
	if more := len(refused) - len(texts); more > 0 {
		texts = append(texts, english.Plural(more, "more refused object", ""))
	}
	return texts
}

// textOf describes the refusal of an object.
func textOf(o *story.Object) string {
	r := o.Refusal
	says := refusal.Refusal{By: refusal.By(r.By), Name: r.Refuser, Binding: r.Binding, Message: r.Message}.String()
	if r.Ended == nil {
		return fmt.Sprintf("the server has refused %s since %s: %s", o.Ref, r.Since.UTC().Format(time.RFC3339), says)
	}
	return fmt.Sprintf("the server refused %s for %s: %s", o.Ref, r.Ended.Sub(r.Since).Round(time.Second), says)
}
