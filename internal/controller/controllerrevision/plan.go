// Package history keeps what an owner's pod template was: one ControllerRevision for
// each template, numbered in the order in which they were last wished for.
//
//	template ──▶ Data, the patch that restores it
//	Data, the revisions there are ──▶ Decide (pure): the revision that is it, or a number for a new one
//	Keeper ──▶ adopts, makes, numbers and removes revisions
//
// The names, labels and contents are those that kubectl's rollout history and rollout
// undo read: a strategic merge patch that replaces spec.template, which undo sends as
// it is.
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

// replace is the directive of a strategic merge patch that leaves nothing of what was.
const replace = "replace"

// Data is the patch that restores a template.
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

// snapshot is what a revision holds.
type snapshot struct {
	Spec struct {
		Template struct {
			corev1.PodTemplateSpec `json:",inline"`

			Patch string `json:"$patch"`
		} `json:"template"`
	} `json:"spec"`
}

// Template is the template that a revision restores. The error is about data that
// nobody here has written.
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

// Sort puts revisions in order, the oldest first.
func Sort(revisions []*appsv1.ControllerRevision) {
	slices.SortFunc(revisions, func(a, b *appsv1.ControllerRevision) int {
		return cmp.Or(cmp.Compare(a.Revision, b.Revision), a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
}

// Plan is what is to become of the revision that is wished for.
type Plan struct {
	// Update is the revision that holds the template; nil if there is to be a new one.
	Update *appsv1.ControllerRevision
	// Number is what its number is to be: higher than all others.
	Number int64
}

// Decide finds the revision with that data. A template that is wished for again, as after
// an undo, keeps its revision, which gets a new number. Of several with the same data,
// the one of the highest number is it.
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

// same tells whether the revision holds that data. What means the same is the same: a
// revision that another version of the API wrote may spell an absent value out.
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

// Surplus are the revisions to remove, the oldest first, so that not more than limit
// remain of those that are not live.
func Surplus(revisions []*appsv1.ControllerRevision, live func(*appsv1.ControllerRevision) bool, limit int32) []*appsv1.ControllerRevision {
	old := slices.DeleteFunc(slices.Clone(revisions), live)
	Sort(old)
	return old[:max(len(old)-int(limit), 0)]
}
