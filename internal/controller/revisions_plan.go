package controller

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

// RevisionControl keeps the former pod templates of an owner: one ControllerRevision for each template, numbered in
// the order in which they were last desired.
//
//	template ──▶ RevisionData, the patch that restores it
//	data, existing revisions ──▶ DecideRevision (pure): the revision with that data, or a new number
//	RevisionControl ──▶ adopts, creates, numbers and removes revisions
//
// kubectl rollout history and kubectl rollout undo read these names, labels and contents: a
// strategic merge patch that replaces spec.template, which undo sends unchanged.

// replaceDirective is the directive that makes a strategic merge patch replace the whole object.
const replaceDirective = "replace"

// RevisionData returns the patch that restores a template.
func RevisionData(template *corev1.PodTemplateSpec) ([]byte, error) {
	text, err := json.Marshal(template)
	if err != nil {
		return nil, fmt.Errorf("write a revision: %w", err)
	}
	fields := map[string]any{}
	if err := json.Unmarshal(text, &fields); err != nil {
		return nil, fmt.Errorf("write a revision: %w", err)
	}
	fields["$patch"] = replaceDirective
	data, err := json.Marshal(map[string]any{"spec": map[string]any{"template": fields}})
	if err != nil {
		return nil, fmt.Errorf("write a revision: %w", err)
	}
	return data, nil
}

type revisionSnapshot struct {
	Spec struct {
		Template struct {
			corev1.PodTemplateSpec `json:",inline"`

			Patch string `json:"$patch"`
		} `json:"template"`
	} `json:"spec"`
}

// TemplateOf returns the template that a revision restores. It fails for data that this package
// did not write.
func TemplateOf(revision *appsv1.ControllerRevision) (*corev1.PodTemplateSpec, error) {
	return readRevision(revision.Name, revision.Data.Raw)
}

func readRevision(name string, data []byte) (*corev1.PodTemplateSpec, error) {
	var s revisionSnapshot
	if err := json.Unmarshal(data, &s); err != nil {
		return nil, fmt.Errorf("read revision %s: %w", name, err)
	}
	if s.Spec.Template.Patch != replaceDirective {
		return nil, fmt.Errorf("read revision %s: it does not replace a template", name)
	}
	return &s.Spec.Template.PodTemplateSpec, nil
}

// SortRevisions sorts revisions, oldest first.
func SortRevisions(revisions []*appsv1.ControllerRevision) {
	slices.SortFunc(revisions, func(a, b *appsv1.ControllerRevision) int {
		return cmp.Or(cmp.Compare(a.Revision, b.Revision), a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
}

// RevisionPlan identifies the revision that holds the desired template.
type RevisionPlan struct {
	// Update is the revision that holds the template; nil if a new one is needed.
	Update *appsv1.ControllerRevision
	// Number is the revision number that it must have, higher than all others.
	Number int64
}

// DecideRevision finds the revision with that data. A template that is desired again, as after an
// undo, keeps its revision, which gets a new number. Among several with the same data, the
// highest number counts.
func DecideRevision(revisions []*appsv1.ControllerRevision, data []byte) RevisionPlan {
	ordered := slices.Clone(revisions)
	SortRevisions(ordered)
	var p RevisionPlan
	for _, r := range slices.Backward(ordered) {
		if sameRevision(r, data) {
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

// sameRevision reports whether the revision holds that data, regardless of form: a revision written
// through another API version may spell out fields that are absent here.
func sameRevision(revision *appsv1.ControllerRevision, data []byte) bool {
	if bytes.Equal(revision.Data.Raw, data) {
		return true
	}
	a, err := TemplateOf(revision)
	if err != nil {
		return false
	}
	b, err := readRevision("", data)
	return err == nil && equality.Semantic.DeepEqual(a, b)
}

// SurplusRevisions returns the revisions to remove, oldest first, so that at most limit revisions that
// are not live remain.
func SurplusRevisions(revisions []*appsv1.ControllerRevision, live func(*appsv1.ControllerRevision) bool, limit int32) []*appsv1.ControllerRevision {
	old := slices.DeleteFunc(slices.Clone(revisions), live)
	SortRevisions(old)
	return old[:max(len(old)-int(limit), 0)]
}
