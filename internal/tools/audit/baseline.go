package audit

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/coppice-dev/coppice/internal/tools/inventory"
)

// Baseline lists accepted findings, which are not reported again. It identifies an object by its name, so that
// a finding stays accepted when the object is recreated.
type Baseline struct {
	Findings []Known `json:"findings"`
}

// Known is a finding of a baseline.
type Known struct {
	Code      Code   `json:"code"`
	Object    string `json:"object"`
	Namespace string `json:"namespace,omitempty"`
	Owner     string `json:"owner,omitempty"`
	// Finalizer is empty for all finalizers of the object, as in the files of older versions.
	Finalizer string `json:"finalizer,omitempty"`
}

// known returns a finding in the form of baselines.
func (f *Finding) known() Known {
	k := Known{Code: f.Code, Object: f.Object.String(), Namespace: f.Object.Namespace, Finalizer: f.Finalizer}
	if f.Owner != nil {
		k.Owner = f.Owner.Kind + "/" + f.Owner.Name
	}
	return k
}

// Baseline returns the findings of a report as a baseline.
func (r Report) Baseline() Baseline {
	b := Baseline{Findings: []Known{}}
	for i := range r.Findings {
		if r.Findings[i].Severity != Note {
			b.Findings = append(b.Findings, r.Findings[i].known())
		}
	}
	return b
}

// Unchecked returns the findings of a baseline that a check with these options cannot find: those of objects outside of
// its namespace, and of resources that could not be read.
func (b Baseline) Unchecked(inv *inventory.Inventory, o Options) Baseline {
	var unchecked Baseline
	for _, k := range b.Findings {
		isUnread := slices.ContainsFunc(inv.Unread, func(u inventory.Unread) bool { return k.isOf(u) })
		if o.Namespace != "" && k.Namespace != o.Namespace || isUnread {
			unchecked.Findings = append(unchecked.Findings, k)
		}
	}
	return unchecked
}

// isOf reports whether the object of a finding is of a resource that could not be read in its namespace.
func (k Known) isOf(u inventory.Unread) bool {
	name, _, _ := strings.Cut(k.Object, "/")
	resource := schema.ParseGroupResource(name)
	if resource.Group != u.Resource.Group || u.Resource.Resource != "" && u.Resource.Resource != resource.Resource {
		return false
	}
	return u.Namespace == k.Namespace || u.Namespace == "" && !slices.Contains(u.Except, k.Namespace)
}

// With returns the findings of both baselines.
func (b Baseline) With(other Baseline) Baseline {
	all := Baseline{Findings: slices.Clone(b.Findings)}
	for _, k := range other.Findings {
		if !slices.Contains(all.Findings, k) {
			all.Findings = append(all.Findings, k)
		}
	}
	return all
}

// Encode returns the baseline as YAML.
func (b Baseline) Encode() ([]byte, error) {
	text, err := yaml.Marshal(b)
	if err != nil {
		return nil, fmt.Errorf("encode the baseline: %w", err)
	}
	return text, nil
}

// ParseBaseline parses the output of Encode.
func ParseBaseline(text []byte) (Baseline, error) {
	var b Baseline
	if err := yaml.UnmarshalStrict(text, &b); err != nil {
		return Baseline{}, fmt.Errorf("parse the baseline: %w", err)
	}
	return b, nil
}

// Without returns the report without the findings of a baseline.
func (r Report) Without(b Baseline) Report {
	known := make(map[Known]bool, len(b.Findings))
	for _, k := range b.Findings {
		known[k] = true
	}
	before := len(r.Findings)
	r.Findings = slices.DeleteFunc(slices.Clone(r.Findings), func(f Finding) bool {
		k := f.known()
		isKnown := known[k]
		k.Finalizer = ""
		return isKnown || known[k]
	})
	r.Known += before - len(r.Findings)
	return r
}
