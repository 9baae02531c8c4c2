package mcpserver

import (
	"context"
	"fmt"
	"time"

	"github.com/dustin/go-humanize/english"

	"github.com/coppice-dev/coppice/internal/tools/ask"
	"github.com/coppice-dev/coppice/internal/tools/explain"
)

// explainInput are the arguments of the tool explain.
type explainInput struct {
	Objects   []string `json:"objects,omitempty" jsonschema:"objects as TYPE/NAME: namespace/shop; without objects and uids, everything that is being deleted"`
	UIDs      []string `json:"uids,omitempty" jsonschema:"UIDs of objects"`
	Namespace string   `json:"namespace,omitempty" jsonschema:"namespace of the objects; default: that of the kubeconfig"`
	Cursor    string   `json:"cursor,omitempty" jsonschema:"cursor of the page before"`
}

// ExplainAnswer is the answer of the tool explain.
type ExplainAnswer struct {
	Page

	Items []Explained `json:"items"`
}

// Explained is an object with its causes, or a cause with its objects.
type Explained struct {
	Objects []string `json:"objects" jsonschema:"the first objects, as KIND NAMESPACE/NAME"`
	Count   int      `json:"count" jsonschema:"number of objects"`
	State   string   `json:"state" jsonschema:"Stuck: somebody has to act; Slow: it ends by itself; Unknown; Gone"`
	Causes  []Cause  `json:"causes,omitempty"`
}

// Cause is a cause at the end of a chain.
type Cause struct {
	State string `json:"state"`
	Says  string `json:"says"`
	// Next is the safest next step, for a person.
	Next    string `json:"next,omitempty"`
	Command string `json:"command,omitempty" jsonschema:"a command for the next step; show it to the user before anyone runs it"`
}

const (
	// mostCauses bounds the causes of an object, mostMembers the objects of a cause.
	mostCauses, mostMembers = 3, 3
	// mostDetail bounds a text of a cause, in bytes.
	mostDetail = 250
)

// explain explains why objects still exist, or why they are gone.
func (s *session) explain(ctx context.Context, in explainInput) (*ExplainAnswer, error) {
	named, err := objects(in.Objects, in.UIDs)
	if err != nil {
		return nil, err
	}
	from, err := offset(in.Cursor, "")
	if err != nil {
		return nil, err
	}
	q := ask.Existence{Objects: named, All: named.IsEmpty()}
	scope := Scope{Namespace: in.Namespace}
	if q.All {
		q.In, scope.IsWhole = in.Namespace, in.Namespace == ""
	}
	sources, err := s.sources(scope)
	if err != nil {
		return nil, err
	}
	found, err := sources.Explain(ctx, q)
	if err != nil {
		return nil, err
	}
	answer := &ExplainAnswer{}
	items := explainedOf(found)
	answer.Items = fill(&answer.Page, items, same, window{from: from, most: mostPage})
	answer.note(found.Unread...)
	switch {
	case len(items) == 0:
		answer.Summary = "nothing is being deleted"
	case q.All:
		answer.Summary = english.Plural(len(items), "cause", "") + " of waiting, the stuck ones first"
	default:
		answer.Summary = fmt.Sprintf("%s: %s", items[0].Objects[0], items[0].State)
		if len(items[0].Causes) > 0 {
			answer.Summary += ", " + items[0].Causes[0].Says
		}
	}
	return answer, nil
}

// sources returns the sources of answers. The namespace of a question is checked first.
func (s *session) sources(scope Scope) (*ask.Sources, error) {
	if err := checkTexts(scope.Namespace); err != nil {
		return nil, err
	}
	return s.Cluster.Sources(scope)
}

// explainedOf returns the items of an explanation.
func explainedOf(found ask.Explanations) []Explained {
	items := make([]Explained, 0, len(found.Groups)+len(found.Objects)+len(found.Deleted))
	for n := range found.Groups {
		items = append(items, groupOf(&found.Groups[n]))
	}
	for n := range found.Objects {
		x := &found.Objects[n]
		item := Explained{[]string{clip(x.Object.String(), mostName)}, 1, string(x.State), nil}
		for _, leaf := range x.Leaves() {
			if len(item.Causes) == mostCauses {
				break
			}
			item.Causes = append(item.Causes, causeOf(leaf))
		}
		items = append(items, item)
	}
	for n := range found.Deleted {
		x := &found.Deleted[n]
		item := Explained{[]string{clip(fmt.Sprint(x.Object), mostName)}, 1, "Gone", nil}
		for c := range x.Causes[:min(len(x.Causes), mostCauses)] {
			cause := &x.Causes[c]
			item.Causes = append(item.Causes, Cause{State: "Gone", Says: clip(cause.Says+", at "+cause.Time.UTC().Format(time.RFC3339), mostDetail)})
		}
		items = append(items, item)
	}
	return items
}

// groupOf describes a cause with its objects.
func groupOf(g *explain.Group) Explained {
	return Explained{refs(g.Objects), len(g.Objects) + g.More, string(g.Leaf.State), []Cause{causeOf(&g.Leaf)}}
}

func causeOf(w *explain.Wait) Cause {
	cause := Cause{State: string(w.State), Says: clip(w.Says, mostDetail)}
	if len(w.Next) > 0 {
		cause.Next, cause.Command = clip(w.Next[0].Says, mostDetail), clip(w.Next[0].Command, mostDetail)
	}
	return cause
}

// refs names the first objects.
func refs(all []explain.Ref) []string {
	names := make([]string, 0, mostMembers)
	for _, o := range all[:min(len(all), mostMembers)] {
		names = append(names, clip(o.String(), mostDetail))
	}
	return names
}
