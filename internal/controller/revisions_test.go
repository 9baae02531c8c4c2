package controller

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

func template(image string) *corev1.PodTemplateSpec {
	return &corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: image}}},
	}
}

func data(t *testing.T, image string) []byte {
	t.Helper()
	d, err := RevisionData(template(image))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func revision(t *testing.T, number int64, image string) *appsv1.ControllerRevision {
	t.Helper()
	return &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", image, number)}, Revision: number, Data: runtime.RawExtension{Raw: data(t, image)},
	}
}

// TestDataRestoresTheTemplate applies the data as kubectl rollout undo does.
func TestDataRestoresTheTemplate(t *testing.T) {
	now := template("new")
	now.Labels["added"], now.Spec.HostNetwork = "later", true
	set, err := json.Marshal(&appsv1.StatefulSet{Spec: appsv1.StatefulSetSpec{ServiceName: "stays", Template: *now}})
	if err != nil {
		t.Fatal(err)
	}
	patched, err := strategicpatch.StrategicMergePatch(set, data(t, "old"), appsv1.StatefulSet{})
	if err != nil {
		t.Fatal(err)
	}
	var restored appsv1.StatefulSet
	if err := json.Unmarshal(patched, &restored); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(template("old"), &restored.Spec.Template); diff != "" {
		t.Errorf("the patch does not restore the template (-want +got):\n%s", diff)
	}
	if restored.Spec.ServiceName != "stays" {
		t.Errorf("the patch changes more than the template: serviceName is %q", restored.Spec.ServiceName)
	}
	read, err := TemplateOf(revision(t, 1, "old"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(template("old"), read); diff != "" {
		t.Errorf("Template reads something else than Data wrote (-want +got):\n%s", diff)
	}
}

func TestTemplateRefusesWhatReplacesNothing(t *testing.T) {
	for _, text := range []string{`{"spec":{"template":{"metadata":{}}}}`, `{}`, `[`, ``} {
		if _, err := TemplateOf(&appsv1.ControllerRevision{Data: runtime.RawExtension{Raw: []byte(text)}}); err == nil {
			t.Errorf("%q was read as a template", text)
		}
	}
}

func TestRevisionOfATemplateIsFoundAndNumbered(t *testing.T) {
	spelledOut := revision(t, 1, "a")
	spelledOut.Data.Raw = []byte(`{"spec":{"template":{"$patch":"replace","metadata":{"creationTimestamp":null,"labels":{"app":"web"}},"spec":{"containers":[{"name":"main","image":"a","resources":{}}]}}}}`)
	for _, c := range []struct {
		name      string
		revisions []*appsv1.ControllerRevision
		update    string // the name; empty for a new one
		number    int64
	}{
		{"the first", nil, "", 1},
		{"another template", []*appsv1.ControllerRevision{revision(t, 1, "b")}, "", 2},
		{"nothing has changed", []*appsv1.ControllerRevision{revision(t, 1, "b"), revision(t, 2, "a")}, "a-2", 2},
		{"an undo", []*appsv1.ControllerRevision{revision(t, 1, "a"), revision(t, 4, "b")}, "a-1", 5},
		{"two with the sameRevision data", []*appsv1.ControllerRevision{revision(t, 3, "a"), revision(t, 1, "a")}, "a-3", 3},
		{"the sameRevision number twice", []*appsv1.ControllerRevision{revision(t, 2, "a"), revision(t, 2, "b")}, "a-2", 3},
		{"no number", []*appsv1.ControllerRevision{revision(t, 0, "a")}, "a-0", 1},
		{"the sameRevision in other words", []*appsv1.ControllerRevision{spelledOut}, "a-1", 1},
		{"damaged data", []*appsv1.ControllerRevision{{Revision: 7, Data: runtime.RawExtension{Raw: []byte("{")}}}, "", 8},
	} {
		t.Run(c.name, func(t *testing.T) {
			plan := DecideRevision(c.revisions, data(t, "a"))
			name := ""
			if plan.Update != nil {
				name = plan.Update.Name
			}
			if name != c.update || plan.Number != c.number {
				t.Errorf("Decide is %q with number %d, want %q with %d", name, plan.Number, c.update, c.number)
			}
		})
	}
}

func TestOldestRevisionsThatAreNotLiveAreSurplus(t *testing.T) {
	all := []*appsv1.ControllerRevision{revision(t, 4, "d"), revision(t, 1, "a"), revision(t, 3, "c"), revision(t, 2, "b")}
	live := func(r *appsv1.ControllerRevision) bool { return r.Name == "b-2" || r.Name == "d-4" }
	for _, c := range []struct {
		limit int32
		want  []string
	}{{0, []string{"a-1", "c-3"}}, {1, []string{"a-1"}}, {2, nil}, {10, nil}} {
		var got []string
		for _, r := range SurplusRevisions(all, live, c.limit) {
			got = append(got, r.Name)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("limit %d (-want +got):\n%s", c.limit, diff)
		}
	}
}
