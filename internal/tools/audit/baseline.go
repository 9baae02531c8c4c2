package audit

import (
	"fmt"
	"slices"

	"sigs.k8s.io/yaml"
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
