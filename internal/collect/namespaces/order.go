package namespaces

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// EverythingElse is the name that stands, in an order, for all resources that no stage names.
const EverythingElse = "*"

// Stage is the position in an Order of resources that are deleted together. A stage begins
// when the one before it is empty (R22).
type Stage int

// The stages of the default order.
const (
	// StagePods comes first, while the objects that pods need and that isolate them still exist.
	StagePods Stage = iota
	// StageContents is everything else.
	StageContents
	// StageAccess comes last: RBAC, which users need to inspect and repair a deletion that hangs, and
	// NetworkPolicies (CVE-2024-7598).
	StageAccess
)

// Order is the order in which the contents of a namespace are deleted. The zero value is
// the default: pods; everything else; RBAC and NetworkPolicies.
type Order struct {
	stages [][]schema.GroupResource // empty for the stage of everything else
	rest   Stage                    // the stage of everything else

	isUpstream bool
}

// DefaultStages returns the stages of the default order.
func DefaultStages() [][]schema.GroupResource {
	return [][]schema.GroupResource{
		StagePods:     {corev1.Resource("pods")},
		StageContents: {{Resource: EverythingElse}},
		StageAccess:   {rbacv1.Resource("roles"), rbacv1.Resource("rolebindings"), networkingv1.Resource("networkpolicies")},
	}
}

// UpstreamOrder returns the order of kube-controller-manager's namespace controller, since Kubernetes
// 1.33: pods; everything else.
func UpstreamOrder() Order {
	return Order{stages: [][]schema.GroupResource{{corev1.Resource("pods")}, nil}, rest: 1, isUpstream: true}
}

// IsUpstream reports whether kube-controller-manager's namespace controller deletes in this order. It deletes the objects
// of a resource by one request, which kube-apiserver ends at the first object that it may not delete.
func (o Order) IsUpstream() bool { return o.isUpstream }

// NewOrder returns an order of stages, one of which is EverythingElse alone. Without stages
// it is the default order.
func NewOrder(stages [][]schema.GroupResource) (Order, error) {
	if len(stages) == 0 {
		return Order{}, nil
	}
	o := Order{rest: -1}
	seen := map[schema.GroupResource]bool{}
	for i, resources := range stages {
		if len(resources) == 1 && resources[0] == (schema.GroupResource{Resource: EverythingElse}) {
			if o.rest >= 0 {
				return Order{}, errors.New("two stages are *: there can be one for everything else")
			}
			o.rest = Stage(i)
			o.stages = append(o.stages, nil)
			continue
		}
		if len(resources) == 0 {
			return Order{}, fmt.Errorf("stage %d names no resource", i+1)
		}
		for _, r := range resources {
			if r.Resource == "" || r.Resource == EverythingElse {
				return Order{}, fmt.Errorf("stage %d: %q names no resource: write resource.group, or * alone for everything else", i+1, r)
			}
			if seen[r] {
				return Order{}, fmt.Errorf("%s is in two stages", r)
			}
			seen[r] = true
		}
		o.stages = append(o.stages, slices.Clone(resources))
	}
	if o.rest < 0 {
		return Order{}, errors.New("no stage is *: resources that no stage names would never be deleted")
	}
	return o, nil
}

// ParseStages parses stages that are separated by semicolons, each consisting of resources ("pods",
// "roles.rbac.authorization.k8s.io") separated by commas. NewOrder validates them. An empty text
// has no stages.
func ParseStages(text string) [][]schema.GroupResource {
	if strings.TrimSpace(text) == "" {
		return nil
	}
	var stages [][]schema.GroupResource
	for stage := range strings.SplitSeq(text, ";") {
		var resources []schema.GroupResource
		for name := range strings.SplitSeq(stage, ",") {
			resources = append(resources, schema.ParseGroupResource(strings.TrimSpace(name)))
		}
		stages = append(stages, resources)
	}
	return stages
}

// ParseDeletionOrder parses and validates stages as ParseStages does. An empty text has the stages of the default order.
func ParseDeletionOrder(text string) ([][]schema.GroupResource, error) {
	stages := ParseStages(text)
	if len(stages) == 0 {
		return DefaultStages(), nil
	}
	if _, err := NewOrder(stages); err != nil {
		return nil, err
	}
	return stages, nil
}

// FormatStages returns stages in the form that ParseStages reads.
func FormatStages(stages [][]schema.GroupResource) string {
	texts := make([]string, len(stages))
	for i, resources := range stages {
		names := make([]string, len(resources))
		for j, r := range resources {
			names[j] = r.String()
		}
		texts[i] = strings.Join(names, ",")
	}
	return strings.Join(texts, ";")
}

// all returns the resources of each stage, which are empty for the stage of everything else.
func (o Order) all() [][]schema.GroupResource {
	if o.stages != nil {
		return o.stages
	}
	stages := DefaultStages()
	stages[StageContents] = nil
	return stages
}

// end returns the stage of a namespace in which all stages are empty.
func (o Order) end() Stage { return Stage(len(o.all())) }

// StageOf returns the stage of a resource.
func (o Order) StageOf(r schema.GroupResource) Stage {
	for stage, resources := range o.all() {
		if slices.Contains(resources, r) {
			return Stage(stage)
		}
	}
	if o.stages == nil {
		return StageContents
	}
	return o.rest
}

// Name returns a stage's resources, for logs.
func (o Order) Name(s Stage) string {
	if s == o.end() {
		return "end"
	}
	var names []string
	for _, r := range o.all()[s] {
		names = append(names, r.String())
	}
	if names == nil {
		return EverythingElse
	}
	return strings.Join(names, ",")
}
