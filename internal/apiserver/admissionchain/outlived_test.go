package admissionchain

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/coppice-dev/coppice/internal/rules/protection"
)

// R28: an entry counts wherever in an object a controller may copy it from.
func TestR28_EntriesInTemplatesCount(t *testing.T) {
	const list = `[{"finalizer":"example.com/x"}]`
	m := metav1.ObjectMeta{Annotations: map[string]string{protection.Annotation: list}}
	claim := corev1.PersistentVolumeClaim{ObjectMeta: m}
	ephemeral := corev1.PodSpec{Volumes: []corev1.Volume{{Name: "a"}, {VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{
		VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{ObjectMeta: m},
	}}}}}
	custom := func(content map[string]any) runtime.Object { return &unstructured.Unstructured{Object: content} }
	annotations := map[string]any{protection.Annotation: list}
	for name, test := range map[string]struct {
		object runtime.Object
		want   int
	}{
		"the object itself":       {&corev1.ConfigMap{ObjectMeta: m}, 1},
		"a pod template":          {&appsv1.Deployment{Spec: appsv1.DeploymentSpec{Template: corev1.PodTemplateSpec{ObjectMeta: m}}}, 1},
		"both":                    {&appsv1.Deployment{ObjectMeta: m, Spec: appsv1.DeploymentSpec{Template: corev1.PodTemplateSpec{ObjectMeta: m}}}, 1},
		"a pointer to a template": {&corev1.ReplicationController{Spec: corev1.ReplicationControllerSpec{Template: &corev1.PodTemplateSpec{ObjectMeta: m}}}, 1},
		"a template of Jobs":      {&batchv1.CronJob{Spec: batchv1.CronJobSpec{JobTemplate: batchv1.JobTemplateSpec{ObjectMeta: m}}}, 1},
		"of their pods": {&batchv1.CronJob{Spec: batchv1.CronJobSpec{JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{
			Template: corev1.PodTemplateSpec{ObjectMeta: m},
		}}}}, 1},
		"volume claims":       {&appsv1.StatefulSet{Spec: appsv1.StatefulSetSpec{VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{}, claim}}}, 1},
		"ephemeral volumes":   {&corev1.Pod{Spec: ephemeral}, 1},
		"in a template":       {&appsv1.DaemonSet{Spec: appsv1.DaemonSetSpec{Template: corev1.PodTemplateSpec{Spec: ephemeral}}}, 1},
		"resource claims":     {&resourcev1.ResourceClaimTemplate{Spec: resourcev1.ResourceClaimTemplateSpec{ObjectMeta: m}}, 1},
		"a revision":          {&appsv1.ControllerRevision{Data: runtime.RawExtension{Raw: []byte(`{"spec":{"template":{"metadata":{"annotations":{"coppice.dev/outlives":"[{\"finalizer\":\"example.com/x\"}]"}}}}}`)}}, 1},
		"a custom object":     {custom(map[string]any{"metadata": map[string]any{"annotations": annotations}}), 1},
		"a custom template":   {custom(map[string]any{"spec": map[string]any{"parts": []any{"a", map[string]any{"annotations": annotations}}}}), 1},
		"no entry":            {&corev1.Pod{Spec: corev1.PodSpec{Volumes: []corev1.Volume{{}}}}, 0},
		"a list that is none": {&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{protection.Annotation: "[]"}}}, 0},
		"no object":           {nil, 0},
	} {
		if got := entriesIn(test.object); len(got) != test.want {
			t.Errorf("%s: %v, want %d", name, got, test.want)
		}
	}
}

// R28: the entries of one write are bounded, however many templates it has, and entries that are there already do not count.
func TestR28_AWriteAddsFewEntries(t *testing.T) {
	set := func(templates int) *appsv1.StatefulSet {
		s := &appsv1.StatefulSet{}
		for i := range templates {
			var entries []protection.Outlived
			for n := range protection.MaxOutlives {
				entries = append(entries, protection.Outlived{Finalizer: fmt.Sprintf("example.com/x%d-%d", i, n)})
			}
			list, err := json.Marshal(entries)
			if err != nil {
				t.Fatal(err)
			}
			s.Spec.VolumeClaimTemplates = append(s.Spec.VolumeClaimTemplates, corev1.PersistentVolumeClaim{
				ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{protection.Annotation: string(list)}},
			})
		}
		return s
	}
	for name, test := range map[string]struct {
		old    runtime.Object
		wants  int // templates
		checks int
	}{
		"as many as may be":         {nil, maxAdded / protection.MaxOutlives, maxAdded},
		"one list more":             {nil, maxAdded/protection.MaxOutlives + 1, -1},
		"very many":                 {nil, 800, -1},
		"very many, but one is new": {set(800), 801, protection.MaxOutlives},
	} {
		checks := -1
		p := newOutlived(func(_ context.Context, _ user.Info, _ string, added []protection.Outlived) error {
			checks = len(added)
			return nil
		})
		a := admission.NewAttributesRecord(set(test.wants), test.old, appsv1.SchemeGroupVersion.WithKind("StatefulSet"), "ns", "s",
			appsv1.SchemeGroupVersion.WithResource("statefulsets"), "", admission.Create, nil, true, &user.DefaultInfo{Name: "ann"})
		err := p.Validate(t.Context(), a, nil)
		if checks != test.checks || apierrors.IsForbidden(err) != (test.checks < 0) {
			t.Errorf("%s: %d rights are checked (%v), want %d", name, checks, err, test.checks)
		}
	}
}
