package demo

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"
)

// read reads an object from a manifest.
func read(t *testing.T, manifest string) Object {
	t.Helper()
	u := &unstructured.Unstructured{}
	data, err := yaml.YAMLToJSON([]byte(manifest))
	if err != nil {
		t.Fatal(err)
	}
	if err := u.UnmarshalJSON(data); err != nil {
		t.Fatal(err)
	}
	return Read(u)
}

func TestObjectsAreReadFromMetadata(t *testing.T) {
	for _, c := range []struct{ manifest, told string }{
		{"{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}", "ConfigMap/a"},
		{"{apiVersion: v1, kind: ConfigMap, metadata: {name: a, finalizers: [x/y]}}", "ConfigMap/a  [x/y]"},
		{"{apiVersion: v1, kind: ConfigMap, metadata: {name: a, finalizers: [x/y, z], deletionTimestamp: '2026-01-02T03:04:05Z', deletionGracePeriodSeconds: 0}}", "ConfigMap/a  deleting [x/y, z]"},
		{"{apiVersion: apps/v1, kind: ReplicaSet, metadata: {name: a}, spec: {replicas: 3}, status: {replicas: 3, readyReplicas: 2}}", "ReplicaSet/a  2/3 ready"},
		{"{apiVersion: v1, kind: Pod, metadata: {name: a}, status: {phase: Pending}}", "Pod/a  Pending"},
		{"{apiVersion: v1, kind: Pod, metadata: {name: a}, status: {phase: Running, containerStatuses: [{ready: true}, {ready: false}]}}", "Pod/a  Running, not ready"},
		{"{apiVersion: v1, kind: Pod, metadata: {name: a, deletionTimestamp: '2026-01-02T03:04:05Z', deletionGracePeriodSeconds: 30}, status: {phase: Running, containerStatuses: [{ready: true}]}}", "Pod/a  Running · terminating, 30 s of grace"},
		{"{apiVersion: v1, kind: Pod, metadata: {name: a}, status: {phase: Failed, containerStatuses: [{state: {terminated: {exitCode: 137}}}]}}", "Pod/a  Failed, exit code 137"},
		{`{apiVersion: v1, kind: Namespace, metadata: {name: a}, status: {conditions: [
			{type: NamespaceContentRemaining, status: "True", message: two are left}, {type: NamespaceFinalizersRemaining, status: "False", message: no}]}}`, "Namespace/a  NamespaceContentRemaining: two are left"},
		{"{apiVersion: v1, kind: Pod, metadata: {name: a, ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: r, uid: u}]}}", "Pod/a  owned by ReplicaSet/r"},
	} {
		if got := NewView().Put(read(t, c.manifest)); got != "+ "+c.told {
			t.Errorf("%s: %q, want %q", c.manifest, got, "+ "+c.told)
		}
	}
}

// object makes an object for a view.
func object(kind, name string, change ...func(*Object)) Object {
	o := Object{Kind: kind, Name: name, UID: types.UID(kind + "/" + name), Version: "1"}
	for _, c := range change {
		c(&o)
	}
	return o
}

func ownedBy(kind, name string, controller, blocks bool) func(*Object) {
	return func(o *Object) {
		o.Owners = append(o.Owners, metav1.OwnerReference{
			Kind: kind, Name: name, UID: types.UID(kind + "/" + name), Controller: &controller, BlockOwnerDeletion: &blocks,
		})
	}
}

func stands(how string) func(*Object) { return func(o *Object) { o.State = how } }

func deleting(grace int64, finalizers ...string) func(*Object) {
	return func(o *Object) { o.Deleting, o.Grace, o.Finalizers = true, grace, finalizers }
}

func at(version string) func(*Object) { return func(o *Object) { o.Version = version } }

func viewOf(objects ...Object) *View {
	v := NewView()
	for _, o := range objects {
		v.Put(o)
	}
	return v
}

func TestTreeShowsOwnersAndProblems(t *testing.T) {
	for name, c := range map[string]struct {
		view *View
		want string
	}{
		"nothing": {NewView(), ""},
		"a foreground deletion": {viewOf(
			object("Pod", "web-2", ownedBy("ReplicaSet", "web", true, true), stands("Running")),
			object("Pod", "web-1", ownedBy("ReplicaSet", "web", true, true), stands("Running"), deleting(30)),
			object("ReplicaSet", "web", ownedBy("Deployment", "web", true, true), stands("2/2 ready"), deleting(0, "foregroundDeletion")),
			object("Deployment", "web", stands("2/2 ready"), deleting(0, "foregroundDeletion")),
			object("ConfigMap", "settings", ownedBy("Deployment", "web", false, false)),
			object("Role", "team"),
			object("Namespace", "n"),
		), `
Namespace/n
├─ Deployment/web     2/2 ready · deleting [foregroundDeletion]
│  ├─ ReplicaSet/web  2/2 ready · deleting [foregroundDeletion] · holds its owner
│  │  ├─ Pod/web-1    Running · terminating, 30 s of grace · holds its owner
│  │  └─ Pod/web-2    Running · holds its owner
│  └─ ConfigMap/settings
└─ Role/team`},
		"a namespace that is held": {viewOf(
			object("Namespace", "n", deleting(0), func(o *Object) { o.Problems = []string{"It is held"} }),
			object("ConfigMap", "held", deleting(0, "x/y")),
		), `
Namespace/n        deleting
│  It is held
└─ ConfigMap/held  deleting [x/y]`},
		"nothing below the problems": {viewOf(
			object("Namespace", "n", deleting(0), func(o *Object) { o.Problems = []string{"It is held"} }),
		), `
Namespace/n  deleting
   It is held`},
		"without a namespace": {viewOf(object("Pod", "b", stands("Running")), object("ReplicaSet", "a", stands("0/0 ready"))), `
ReplicaSet/a  0/0 ready
Pod/b         Running`},
		"an owner is gone": {viewOf(object("Pod", "a", ownedBy("ReplicaSet", "r", true, true))), `
Pod/a  owner ReplicaSet/r is gone`},
		"two owners, the controller counts": {viewOf(
			object("ReplicaSet", "a"), object("ReplicaSet", "b"),
			object("Pod", "p", ownedBy("ReplicaSet", "a", false, true), ownedBy("ReplicaSet", "b", true, true)),
		), `
ReplicaSet/a
ReplicaSet/b
└─ Pod/p`},
		"two owners, one is gone": {viewOf(
			object("ReplicaSet", "b"),
			object("Pod", "p", ownedBy("ReplicaSet", "a", true, true), ownedBy("ReplicaSet", "b", false, true)),
		), `
ReplicaSet/b
└─ Pod/p  owner ReplicaSet/a is gone`},
		"a circle": {viewOf(
			object("ConfigMap", "a", ownedBy("ConfigMap", "b", false, true)), object("ConfigMap", "b", ownedBy("ConfigMap", "a", false, true)),
		), `
ConfigMap/a
└─ ConfigMap/b`},
	} {
		t.Run(name, func(t *testing.T) {
			got := strings.Join(Text(c.view.Tree()), "\n")
			if diff := cmp.Diff(strings.TrimPrefix(c.want, "\n"), got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestLinesHaveTheEmphasisOfTheirObject(t *testing.T) {
	lines := viewOf(
		object("Namespace", "n", deleting(0), func(o *Object) { o.Problems = []string{"It is held"} }), object("Pod", "a"),
	).Tree()
	if want := []Emphasis{Deleting, Problem, Normal}; len(lines) != 3 || lines[0].Emphasis != want[0] || lines[1].Emphasis != want[1] || lines[2].Emphasis != want[2] {
		t.Errorf("%+v", lines)
	}
}

func TestChangesAreDescribed(t *testing.T) {
	v := NewView()
	for _, c := range []struct{ got, want string }{
		{v.Put(object("Pod", "a", stands("Pending"))), "+ Pod/a  Pending"},
		{v.Put(object("Pod", "a", stands("Pending"), at("2"))), ""},
		{v.Put(object("Pod", "a", stands("Running"), at("3"))), "~ Pod/a  Running"},
		{v.Put(object("Pod", "a", stands("Running"), ownedBy("ReplicaSet", "r", true, true))), "~ Pod/a  owned by ReplicaSet/r · Running"},
		{v.Put(object("Pod", "a", stands("Running"), deleting(5))), "~ Pod/a  Running · terminating, 5 s of grace"},
		{v.Put(object("Pod", "a", stands("Running"), deleting(1))), "~ Pod/a  Running · terminating, 1 s of grace"},
		{v.Remove(object("Pod", "a")), "- Pod/a"},
	} {
		if c.got != c.want {
			t.Errorf("%q, want %q", c.got, c.want)
		}
	}
	if marked := v.Marked("Pod"); len(marked) != 1 || marked[0].Grace != 5 {
		t.Errorf("marked: %+v", marked)
	}
	if len(v.Gone("Pod")) != 1 || len(v.All("Pod")) != 0 || len(v.Gone("ReplicaSet")) != 0 {
		t.Errorf("%+v", v)
	}
}

func TestWentInOrder(t *testing.T) {
	for name, c := range map[string]struct {
		left []Object
		gone []Object
		want bool
	}{
		"in order":       {nil, []Object{object("Pod", "a", at("5")), object("Pod", "b", at("9")), object("Role", "r", at("10"))}, true},
		"told late":      {nil, []Object{object("Role", "r", at("10")), object("Pod", "a", at("9"))}, true},
		"one too late":   {nil, []Object{object("Pod", "a", at("5")), object("Role", "r", at("10")), object("Pod", "b", at("11"))}, false},
		"one is left":    {[]Object{object("Pod", "b")}, []Object{object("Pod", "a", at("5")), object("Role", "r", at("10"))}, false},
		"none was there": {nil, []Object{object("Pod", "a", at("5"))}, false},
		"no version":     {nil, []Object{object("Pod", "a", at("")), object("Role", "r", at("10"))}, false},
	} {
		v := viewOf(c.left...)
		for _, o := range c.gone {
			v.Remove(o)
		}
		if got := v.WentInOrder("Pod", "Role"); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// TestListReplacesObjectsAndKeepsHistory: the objects come from the list, the history from the watches.
func TestListReplacesObjectsAndKeepsHistory(t *testing.T) {
	v := viewOf(object("Pod", "a"), object("Pod", "b", deleting(1)))
	v.Remove(object("Pod", "c"))
	listed := v.Listed([]Object{object("Pod", "d")})
	if _, there := listed.Find("Pod", "a"); there || len(listed.All("Pod")) != 1 || len(listed.Gone("Pod")) != 1 || len(listed.Marked("Pod")) != 1 {
		t.Errorf("%+v", listed)
	}
	if len(v.All("Pod")) != 2 {
		t.Errorf("the view itself has changed: %+v", v)
	}
}

// TestStoriesBeginUnfulfilled: every story can be chosen and played, and none of its expectations holds at
// the beginning.
func TestStoriesBeginUnfulfilled(t *testing.T) {
	manifests, err := Manifests()
	if err != nil || len(manifests) == 0 {
		t.Fatal(manifests, err)
	}
	names, namespaces := map[string]bool{}, map[string]bool{}
	for _, s := range Stories() {
		if names[s.Name] || namespaces[s.Namespace] || s.Name == "" || s.Title == "" {
			t.Errorf("%s in %s", s.Name, s.Namespace)
		}
		names[s.Name], namespaces[s.Namespace] = true, true
		for i, step := range s.Steps {
			if step.Tell == "" || len(step.Expect) == 0 {
				t.Errorf("%s, step %d tells %q and expects %d", s.Name, i+1, step.Tell, len(step.Expect))
			}
			for line := range strings.SplitSeq(step.Tell, "\n") {
				if len(line) > 90 {
					t.Errorf("%s: %q is too long a line", s.Name, line)
				}
			}
			if file := slices.Index(step.Kubectl, "-f"); file >= 0 && manifests[step.Kubectl[file+1]] == nil {
				t.Errorf("%s: %s is not there", s.Name, step.Kubectl[file+1])
			}
			for _, e := range step.Expect {
				if e.Holds(NewView()) {
					t.Errorf("%s: %q holds of nothing", s.Name, e.Says)
				}
			}
		}
	}
}

func TestStoriesAreChosenByName(t *testing.T) {
	if all, unknown := Choose(nil); len(all) != len(Stories()) || unknown != "" {
		t.Errorf("%d, %s", len(all), unknown)
	}
	if some, unknown := Choose([]string{"orphan", "background", "orphan"}); len(some) != 2 || some[0].Name != "background" || some[1].Name != "orphan" || unknown != "" {
		t.Errorf("%v, %s", some, unknown)
	}
	if some, unknown := Choose([]string{"orphan", "none"}); some != nil || unknown != "none" {
		t.Errorf("%v, %s", some, unknown)
	}
}

func TestCommandIsShownAsTyped(t *testing.T) {
	s := Step{Kubectl: []string{"patch", "configmap", "held", "-p", `{"metadata":{}}`}}
	if got, want := s.Command(), `kubectl patch configmap held -p '{"metadata":{}}'`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// Every story asks one question, before the command that deletes. No choice is right before the command has run, and
// no two choices are right at once.
func TestQuestionHasOneRightChoice(t *testing.T) {
	set := func(owners ...func(*Object)) Object { return object("ReplicaSet", "web", owners...) }
	gone := func(objects ...Object) *View {
		v := NewView()
		for n, o := range objects {
			o.Version = string(rune('1' + n))
			v.Remove(o)
		}
		return v
	}
	left := func(v *View, objects ...Object) *View {
		for _, o := range objects {
			v.Put(o)
		}
		return v
	}
	deployment, pod := object("Deployment", "web"), object("Pod", "a")
	views := []*View{
		gone(deployment, set(), pod), gone(pod, set(), deployment), left(gone(deployment), set(), pod),
		left(gone(deployment), set(ownedBy("Deployment", "web", true, true)), pod),
		gone(object("Pod", "stubborn", stands("Failed, exit code 137"))), gone(object("Pod", "stubborn", stands("Succeeded, exit code 0"))),
		viewOf(object("Pod", "stubborn")), gone(pod, object("Namespace", "team")), gone(object("Namespace", "team")),
	}
	for _, s := range Stories() {
		asked := 0
		for _, step := range s.Steps {
			if step.Question == nil {
				continue
			}
			asked++
			if !slices.Contains(step.Kubectl, "delete") || len(step.Question.Choices) < 3 {
				t.Errorf("%s asks %q before %v", s.Name, step.Question.Asks, step.Kubectl)
			}
			for n, v := range views {
				right := 0
				for _, c := range step.Question.Choices {
					if c.Holds(v) {
						right++
					}
				}
				if right > 1 {
					t.Errorf("%s: %d answers are right of view %d", s.Name, right, n)
				}
			}
		}
		if asked != 1 {
			t.Errorf("%s asks %d questions", s.Name, asked)
		}
	}
	for n, q := range map[int]*Question{0: inWhichOrder(""), 2: inWhichOrder(""), 3: whatOfOrphans(), 4: whatOfTheStubborn(), 5: whatOfTheStubborn(), 6: whatOfTheStubborn()} {
		if _, ok := q.Right(views[n]); !ok {
			t.Errorf("of view %d no answer is right", n)
		}
	}
}
