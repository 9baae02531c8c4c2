package ask

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/admission"
	"github.com/coppice-dev/coppice/internal/tools/answer"
	"github.com/coppice-dev/coppice/internal/tools/finalizerowner"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
	"github.com/coppice-dev/coppice/internal/tools/reader"
)

// Cluster reads the whole cluster.
func (s *Sources) Cluster(ctx context.Context) (*answer.Cluster, error) {
	facts, err := reader.NewFacts(s.Config)
	if err != nil {
		return nil, err
	}
	inv, err := s.read(ctx, reader.Options{Pods: true, Defaults: facts.Defaults})
	if err != nil {
		return nil, err
	}
	return &answer.Cluster{Inventory: inv, Facts: facts, Judge: admission.New(), Now: inv.Read}, nil
}

// read reads the cluster.
func (s *Sources) read(ctx context.Context, options reader.Options) (*inventory.Inventory, error) {
	if s.Namespace != "" {
		options.Namespaces = []string{s.Namespace}
	}
	options.Now = s.Now()
	if s.Progress != nil {
		options.Progress = func(p reader.Progress) { s.Progress(p, false) }
		defer s.Progress(reader.Progress{}, true)
	}
	inv, err := reader.Read(ctx, s.Config, options)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", s.Config.Host, err)
	}
	return inv, nil
}

// neighborhood is the part of a cluster that a question about some objects needs.
type neighborhood struct {
	answer.Cluster

	uids  []ownership.UID // of the objects of the question
	notes string          // for the user, about objects that do not exist
}

// selecting returns the objects of a question, and writes notes for the user.
type selecting func(inv *inventory.Inventory, notes io.Writer) ([]ownership.UID, error)

// neighborhood reads the parts of the cluster that a question needs. For namespaces and objects in them it reads these
// namespaces, as the rest of the cluster hardly ever matters to their deletion; then it reads the kinds that the
// selected objects still lack. After an error of choose, the result has the inventory and the notes.
func (s *Sources) neighborhood(ctx context.Context, args []string, choose selecting) (*neighborhood, error) {
	facts, err := reader.NewFacts(s.Config)
	if err != nil {
		return nil, err
	}
	options := reader.Options{Pods: true, Defaults: facts.Defaults}
	if s.Namespace != "" && len(args) > 0 {
		options.Scope = func(served *inventory.Inventory) reader.Scope { return scopeOf(served, args, s.Namespace) }
		options.Missing = func(read *inventory.Inventory) inventory.Missing {
			uids, err := choose(read, io.Discard)
			if err != nil {
				return inventory.Missing{} // choose returns the error again once the cluster is read
			}
			return read.Missing(uids, finalizerowner.IsBuiltIn)
		}
	}
	inv, err := s.read(ctx, options)
	if err != nil {
		return nil, err
	}
	n := &neighborhood{Cluster: answer.Cluster{Inventory: inv, Facts: facts, Judge: admission.New(), Now: inv.Read}}
	var notes strings.Builder
	n.uids, err = choose(inv, &notes)
	n.notes = notes.String()
	return n, err
}

// scopeOf returns the part of a cluster to read for a question about named objects. For invalid names it is the whole
// cluster; the caller reports them after reading.
func scopeOf(served *inventory.Inventory, args []string, namespace string) reader.Scope {
	selectors, err := served.ParseSelectors(args, namespace)
	if err != nil {
		return reader.Scope{}
	}
	var scope reader.Scope
	for _, s := range selectors {
		isNamespace := s.Resource.OwnerKind() == ownership.Kind{Kind: "Namespace"}
		switch {
		case s.Resource.Namespaced:
			scope.Namespaces = append(scope.Namespaces, namespace)
		case isNamespace && len(s.Names) > 0:
			scope.Namespaces = append(scope.Namespaces, s.Names...)
			scope.Beyond = true
		default:
			return reader.Scope{}
		}
	}
	slices.Sort(scope.Namespaces)
	scope.Namespaces = slices.Compact(scope.Namespaces)
	return scope
}
