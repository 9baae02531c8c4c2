package mcpserver

import (
	"context"
	"fmt"

	"github.com/dustin/go-humanize/english"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/ask"
	"github.com/coppice-dev/coppice/internal/tools/audit"
	"github.com/coppice-dev/coppice/internal/tools/insight"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
)

// graphInput are the arguments of the tool graph.
type graphInput struct {
	Objects   []string `json:"objects,omitempty" jsonschema:"objects as TYPE/NAME: deployment/web"`
	UIDs      []string `json:"uids,omitempty" jsonschema:"UIDs of objects"`
	Part      string   `json:"part,omitempty" jsonschema:"owners, dependents or connected (the default)"`
	Namespace string   `json:"namespace,omitempty" jsonschema:"namespace of the objects; default: that of the kubeconfig"`
	Cursor    string   `json:"cursor,omitempty" jsonschema:"cursor of the page before"`
}

// GraphAnswer is the answer of the tool graph.
type GraphAnswer struct {
	Page

	Objects []GraphObject `json:"objects"`
}

// GraphObject is an object of the ownership graph.
type GraphObject struct {
	Object     string   `json:"object" jsonschema:"KIND NAMESPACE/NAME"`
	UID        string   `json:"uid"`
	Owners     []string `json:"owners,omitempty" jsonschema:"UIDs of owners, with the standing of the reference if it is not solid"`
	Phase      string   `json:"phase,omitempty" jsonschema:"state of a deletion in progress"`
	Missing    bool     `json:"missing,omitempty" jsonschema:"an owner that does not exist"`
	Finalizers int      `json:"finalizers,omitempty" jsonschema:"number of finalizers"`
}

// mostOwners bounds the owners of an object in an answer.
const mostOwners = 4

// graph lists owners and dependents.
func (s *session) graph(ctx context.Context, in graphInput) (*GraphAnswer, error) {
	named, err := objects(in.Objects, in.UIDs)
	if err != nil {
		return nil, err
	}
	if named.IsEmpty() {
		return nil, fmt.Errorf("name the objects to begin at: objects as TYPE/NAME, or uids")
	}
	q := ask.Ownership{Objects: named}
	switch in.Part {
	case "", "connected":
		q.Part = ask.Component
	case "owners":
		q.Part = ask.Owners
	case "dependents":
		q.Part = ask.Dependents
	default:
		return nil, fmt.Errorf("part %s is unknown: choose owners, dependents or connected", quoted(in.Part))
	}
	from, err := offset(in.Cursor, "")
	if err != nil {
		return nil, err
	}
	sources, err := s.sources(Scope{Namespace: in.Namespace})
	if err != nil {
		return nil, err
	}
	found, err := sources.Graph(ctx, q)
	if err != nil {
		return nil, err
	}
	answer := &GraphAnswer{}
	answer.Summary = fmt.Sprintf("%s, %s", english.Plural(len(found.Objects), "object", ""), english.Plural(len(found.References), "owner reference", ""))
	answer.Objects = fill(&answer.Page, found.Objects, graphObject(found.Graph), window{from: from, most: mostPage})
	answer.note(found.Unread...)
	return answer, nil
}

// graphObject returns a function that describes an object of a graph, with its owners.
func graphObject(g insight.Graph) func(*insight.Object) GraphObject {
	owners := map[ownership.UID][]string{}
	for _, r := range g.References {
		if len(owners[r.Dependent]) == mostOwners {
			continue
		}
		owner := string(r.Owner)
		if r.Standing != "solid" {
			owner += " (" + r.Standing + ")"
		}
		owners[r.Dependent] = append(owners[r.Dependent], owner)
	}
	return func(o *insight.Object) GraphObject {
		kind := o.Kind
		if o.Group != "" {
			kind += "." + o.Group
		}
		item := GraphObject{
			Object: nameOf(kind, o.Namespace, o.Name), UID: clip(string(o.UID), mostNameInList), Missing: o.Missing, Finalizers: len(o.Finalizers),
		}
		for _, owner := range owners[o.UID] {
			item.Owners = append(item.Owners, clip(owner, mostNameInList))
		}
		if o.Phase != ownership.Active.String() {
			item.Phase = clip(o.Phase, mostNameInList)
		}
		return item
	}
}

// auditInput are the arguments of the tool audit.
type auditInput struct {
	Namespace string `json:"namespace,omitempty" jsonschema:"report the objects of this namespace only; default: the whole cluster"`
	Cursor    string `json:"cursor,omitempty" jsonschema:"cursor of the page before"`
}

// AuditAnswer is the answer of the tool audit.
type AuditAnswer struct {
	Page

	Checked  int            `json:"checked" jsonschema:"number of objects"`
	Findings []AuditFinding `json:"findings"`
}

// AuditFinding is a finding of an audit.
type AuditFinding struct {
	Severity   audit.Severity `json:"severity"`
	Code       audit.Code     `json:"code"`
	Object     string         `json:"object"`
	Message    string         `json:"message"`
	Suggestion string         `json:"suggestion,omitempty"`
}

// audit finds wrong owner references and deletions.
func (s *session) audit(ctx context.Context, in auditInput) (*AuditAnswer, error) {
	from, err := offset(in.Cursor, "")
	if err != nil {
		return nil, err
	}
	sources, err := s.sources(Scope{Namespace: in.Namespace, IsWhole: in.Namespace == ""})
	if err != nil {
		return nil, err
	}
	cluster, err := sources.Cluster(ctx)
	if err != nil {
		return nil, err
	}
	report := cluster.Audit(ctx, audit.Options{Namespace: in.Namespace})
	answer := &AuditAnswer{Checked: report.Objects}
	counts := map[audit.Severity]int{}
	for n := range report.Findings {
		counts[report.Findings[n].Severity]++
	}
	answer.Findings = fill(&answer.Page, report.Findings, auditFinding, window{from: from, most: mostPage})
	answer.Summary = fmt.Sprintf("errors: %d, warnings: %d, notes: %d; objects checked: %d",
		counts[audit.Error], counts[audit.Warning], counts[audit.Note], report.Objects)
	answer.note(inventory.TextsOf(cluster.Inventory.Unread)...)
	return answer, nil
}

func auditFinding(f *audit.Finding) AuditFinding {
	return AuditFinding{
		f.Severity, f.Code, nameOf(f.Object.Kind, f.Object.Namespace, f.Object.Name), clip(f.Message, mostSays), clip(f.Suggestion, mostDetail),
	}
}
