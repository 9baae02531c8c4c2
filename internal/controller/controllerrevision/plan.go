// Package controllerrevision keeps the former pod templates of an owner: one
// ControllerRevision for each template, numbered in the order in which they were last
// desired.
//
//	template ──▶ Data, the patch that restores it
//	Data, existing revisions ──▶ Decide (pure): the revision with that data, or a new number
//	Control ──▶ adopts, creates, numbers and removes revisions
//
// kubectl rollout history and kubectl rollout undo read these names, labels and contents: a
// strategic merge patch that replaces spec.template, which undo sends unchanged.
package controllerrevision

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

// replace is the directive that makes a strategic merge patch replace the whole object.
const replace = "replace"

// Data returns the patch that restores a template.
func Data(template *corev1.PodTemplateSpec) ([]byte, error) {
	text, err := json.Marshal(template)
	if err != nil {
		return nil, fmt.Errorf("write a revision: %w", err)
	}
	fields := map[string]any{}
	if err := json.Unmarshal(text, &fields); err != nil {
		return nil, fmt.Errorf("write a revision: %w", err)
	}
	fields["$patch"] = replace
	data, err := json.Marshal(map[string]any{"spec": map[string]any{"template": fields}})
	if err != nil {
		return nil, fmt.Errorf("write a revision: %w", err)
	}
	return data, nil
}

type snapshot struct {
	Spec struct {
		Template struct {
			corev1.PodTemplateSpec `json:",inline"`

			Patch string `json:"$patch"`
		} `json:"template"`
	} `json:"spec"`
}

// Template returns the template that a revision restores. It fails for data that this package
// did not write.
func Template(revision *appsv1.ControllerRevision) (*corev1.PodTemplateSpec, error) {
	return read(revision.Name, revision.Data.Raw)
}

func read(name string, data []byte) (*corev1.PodTemplateSpec, error) {
	var s snapshot
	if err := json.Unmarshal(data, &s); err != nil {
		return nil, fmt.Errorf("read revision %s: %w", name, err)
	}
	if s.Spec.Template.Patch != replace {
		return nil, fmt.Errorf("read revision %s: it does not replace a template", name)
	}
	return &s.Spec.Template.PodTemplateSpec, nil
}

// Sort sorts revisions, oldest first.
func Sort(revisions []*appsv1.ControllerRevision) {
	slices.SortFunc(revisions, func(a, b *appsv1.ControllerRevision) int {
		return cmp.Or(cmp.Compare(a.Revision, b.Revision), a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
}

// Plan identifies the revision that holds the desired template.
type Plan struct {
	// Update is the revision that holds the template; nil if a new one is needed.
	Update *appsv1.ControllerRevision
	// Number is the revision number that it must have, higher than all others.
	Number int64
}

// Decide finds the revision with that data. A template that is desired again, as after an
// undo, keeps its revision, which gets a new number. Among several with the same data, the
// highest number counts.
func Decide(revisions []*appsv1.ControllerRevision, data []byte) Plan {
	ordered := slices.Clone(revisions)
	Sort(ordered)
	var p Plan
	for _, r := range slices.Backward(ordered) {
		if same(r, data) {
			p.Update = r
			break
		}
	}
	for _, r := range ordered {
		if r != p.Update {
			p.Number = max(p.Number, r.Revision+1)
		}
	}
	if p.Update != nil {
		p.Number = max(p.Number, p.Update.Revision)
	}
	p.Number = max(p.Number, 1)
	return p
}

// same reports whether the revision holds that data, regardless of form: a revision written
// through another API version may spell out fields that are absent here.
func same(revision *appsv1.ControllerRevision, data []byte) bool {
	if bytes.Equal(revision.Data.Raw, data) {
		return true
	}
	a, err := Template(revision)
	if err != nil {
		return false
	}
	b, err := read("", data)
	return err == nil && equality.Semantic.DeepEqual(a, b)
}

// Surplus returns the revisions to remove, oldest first, so that at most limit revisions that
// are not live remain.
func Surplus(revisions []*appsv1.ControllerRevision, live func(*appsv1.ControllerRevision) bool, limit int32) []*appsv1.ControllerRevision {
	old := slices.DeleteFunc(slices.Clone(revisions), live)
	Sort(old)
	return old[:max(len(old)-int(limit), 0)]
}
