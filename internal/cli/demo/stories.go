package demo

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// holdFinalizer is the finalizer of manifests/team.yaml, which no controller removes.
const holdFinalizer = "example.com/hold"

// Stories returns all stories, in the order in which they are played.
func Stories() []Story {
	return []Story{background(), foreground(), orphan(), grace(), namespace()}
}

// Choose returns the stories with these names, in the order in which they are played, or all
// stories if there are no names. unknown is the first name that no story has.
func Choose(names []string) (chosen []Story, unknown string) {
	all := Stories()
	if len(names) == 0 {
		return all, ""
	}
	for _, name := range names {
		if !slices.ContainsFunc(all, func(s Story) bool { return s.Name == name }) {
			return nil, name
		}
	}
	return slices.DeleteFunc(all, func(s Story) bool { return !slices.Contains(names, s.Name) }), ""
}

func background() Story {
	return Story{"background", "Background deletion, the default", "background", []Step{
		makeWeb(),
		{
			Tell: "The owner is deleted at once. Then its dependents have no owner, and the collector\n" +
				"deletes them, level by level. The pods get their grace period to end.",
			Question: inWhichOrder("The request names the deployment, and no policy. In which order are the objects deleted?"),
			Kubectl:  []string{"delete", "deployment", "web"},
			Expect: []Expectation{
				{"the deployment is gone", func(v *View) bool { return len(v.Gone("Deployment")) == 1 }},
				{"the pods are terminating", func(v *View) bool { return len(v.Marked("Pod")) == 3 }},
				{"deployment, replica set and pods are gone, the owner first", func(v *View) bool {
					return v.WentInOrder("Deployment", "ReplicaSet", "Pod")
				}},
			},
		},
	}}
}

func foreground() Story {
	return Story{"foreground", "Foreground deletion", "foreground", []Step{
		makeWeb(),
		{
			Tell: "The owner waits, with the finalizer foregroundDeletion, for the dependents whose\n" +
				"reference has blockOwnerDeletion. So does each of them: the tree is deleted bottom up.",
			Question: inWhichOrder("Now with --cascade=foreground. In which order do they go?"),
			Kubectl:  []string{"delete", "deployment", "web", "--cascade=foreground"},
			Expect: []Expectation{
				{"the deployment waits for the replica set", func(v *View) bool { return waited(v, "Deployment") }},
				{"the replica set waits for the pods", func(v *View) bool { return waited(v, "ReplicaSet") }},
				{"pods, replica set and deployment are gone, the owner last", func(v *View) bool {
					return v.WentInOrder("Pod", "ReplicaSet", "Deployment")
				}},
			},
		},
	}}
}

func orphan() Story {
	return Story{"orphan", "Orphaned dependents, and their adoption", "orphan", []Step{
		makeWeb(),
		{
			Tell: "Orphaned dependents stay: the collector removes the reference to their owner before\n" +
				"the owner is deleted.",
			Question: whatOfOrphans(),
			Kubectl:  []string{"delete", "deployment", "web", "--cascade=orphan"},
			Expect: []Expectation{{"the deployment is gone, the replica set has no owner, and its pods run on", func(v *View) bool {
				sets := v.All("ReplicaSet")
				return len(v.Gone("Deployment")) == 1 && len(sets) == 1 && len(sets[0].Owners) == 0 && ready(v, 3) && len(v.Gone("Pod")) == 0
			}}},
		},
		{
			Tell:    "A new deployment with the same selector adopts the orphans of the first one.",
			Kubectl: []string{"apply", "-f", "web.yaml"},
			Expect: []Expectation{{"the new deployment owns the old replica set, and no pod was replaced", func(v *View) bool {
				owner, sets := v.All("Deployment"), v.All("ReplicaSet")
				return len(owner) == 1 && len(sets) == 1 && sets[0].OwnedBy(owner[0].UID) && ready(v, 3) &&
					len(v.Gone("Pod")) == 0 && len(v.Gone("ReplicaSet")) == 0
			}}},
		},
	}}
}

func grace() Story {
	return Story{"grace", "A pod's grace period, and a container that ignores SIGTERM", "grace", []Step{
		{
			Tell:    "Two pods with a grace period of three seconds. One ends a second after\nSIGTERM, the other one ignores SIGTERM.",
			Kubectl: []string{"apply", "-f", "pods.yaml"},
			Expect:  []Expectation{{"both pods run", func(v *View) bool { return runs(v, 2) }}},
		},
		{
			Tell: "Both get a deletionTimestamp. The node sends SIGTERM, and SIGKILL when the grace\n" +
				"period is over. A pod is deleted when its last container has ended.",
			Question: whatOfTheStubborn(),
			Kubectl:  []string{"delete", "pod", "polite", "stubborn"},
			Expect: []Expectation{
				{"both are terminating, with three seconds of grace", func(v *View) bool {
					marked := v.Marked("Pod")
					return len(marked) == 2 && marked[0].Grace == 3 && marked[1].Grace == 3
				}},
				{"the polite pod is gone, the stubborn one runs", func(v *View) bool {
					stubborn, there := v.Find("Pod", "stubborn")
					return there && strings.HasPrefix(stubborn.State, "Running") && wentWith(v, "polite", "exit code 0")
				}},
				{"the stubborn pod was killed, exit code 137, and is gone", func(v *View) bool {
					return len(v.All("Pod")) == 0 && wentWith(v, "stubborn", "exit code 137")
				}},
			},
		},
	}}
}

func namespace() Story {
	return Story{"namespace", "A namespace is emptied in stages, and names the objects that hold it", "team", []Step{
		{
			Tell:    "A deployment, a role, and a config map with a finalizer that no controller removes.",
			Kubectl: []string{"apply", "-f", "team.yaml"},
			Expect:  []Expectation{{"everything is there, and two pods are ready", func(v *View) bool { return ready(v, 2) && len(v.All("Role")) == 1 }}},
		},
		{
			Tell: "Pods are deleted first, then everything else, and roles last, because people may need\n" +
				"them to fix what hangs. The config map hangs: a condition names its finalizer.",
			Question: whatIsLeft(),
			Kubectl:  []string{"delete", "namespace", "team", "--wait=false"},
			Expect: []Expectation{
				{"the pods are terminating", func(v *View) bool { return len(v.Marked("Pod")) == 2 }},
				{"the config map holds the namespace and the role; everything else is gone, the pods first", heldNamespace},
			},
		},
		{
			Tell:    "The owner of the finalizer has to remove it. Then the other objects are deleted at once.",
			Kubectl: []string{"patch", "configmap", "held", "--type=merge", "-p", `{"metadata":{"finalizers":null}}`},
			Expect: []Expectation{{"config map, role and namespace are gone, in this order", func(v *View) bool {
				return v.WentInOrder("ConfigMap", "Role", "Namespace")
			}}},
		},
	}}
}

// makeWeb returns the first step of most stories.
func makeWeb() Step {
	return Step{
		Tell:    "A deployment of three pods: it owns a replica set, and that owns the pods.",
		Kubectl: []string{"apply", "-f", "web.yaml"},
		Expect:  []Expectation{{"three pods are ready", func(v *View) bool { return ready(v, 3) }}},
	}
}

// ready reports whether the deployment and its one replica set count this number of ready pods, and
// the pods are running.
func ready(v *View, pods int) bool {
	deployments, sets := v.All("Deployment"), v.All("ReplicaSet")
	if len(deployments) > 1 || len(sets) != 1 || !runs(v, pods) {
		return false
	}
	all := sets
	all = append(all, deployments...)
	return !slices.ContainsFunc(all, func(o Object) bool { return o.State != countedReady(int64(pods), int64(pods)) || o.Deleting })
}

// runs reports whether exactly this number of pods exist and all are running.
func runs(v *View, pods int) bool {
	all := v.All("Pod")
	return len(all) == pods && !slices.ContainsFunc(all, func(o Object) bool {
		return o.State != "Running" || o.Deleting
	})
}

// waited reports whether the only object of a kind got the foregroundDeletion finalizer.
func waited(v *View, kind string) bool {
	marked := v.Marked(kind)
	return len(marked) == 1 && marked[0].Has(metav1.FinalizerDeleteDependents)
}

// wentWith reports whether a pod is gone and ended with this exit code.
func wentWith(v *View, pod, code string) bool {
	return slices.ContainsFunc(v.Gone("Pod"), func(o Object) bool {
		return o.Name == pod && strings.HasSuffix(o.State, code)
	})
}

// heldNamespace reports whether the namespace waits for the finalizer of the config map.
func heldNamespace(v *View) bool {
	held, there := v.Find("ConfigMap", "held")
	role, roleThere := v.Find("Role", "team")
	if !there || !held.Deleting || !held.Has(holdFinalizer) || !roleThere || role.Deleting || !v.WentInOrder("Pod", "Deployment") || !v.WentInOrder("Pod", "ReplicaSet") {
		return false
	}
	names := func(problem string) bool {
		return strings.HasPrefix(problem, "NamespaceFinalizersRemaining:") && strings.Contains(problem, holdFinalizer)
	}
	namespaces := v.All("Namespace")
	return len(namespaces) == 1 && slices.ContainsFunc(namespaces[0].Problems, names)
}
