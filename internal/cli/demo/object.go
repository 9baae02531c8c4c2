package demo

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// Object is the part of an object that the tree shows.
type Object struct {
	Kind, Name string
	UID        types.UID
	// Version is its resourceVersion, or the version of its deletion.
	Version    string
	Owners     []metav1.OwnerReference
	Finalizers []string
	Deleting   bool
	// Grace is its grace period in seconds; 0 when it is not being deleted.
	Grace int64
	// State is the phase of a pod, or the number of ready pods of a workload.
	State string
	// Problems are the reasons why a namespace still exists, from its conditions.
	Problems []string
}

// String returns the name that kubectl prints.
func (o Object) String() string { return o.Kind + "/" + o.Name }

// Read returns the part of an object that the tree shows.
func Read(u *unstructured.Unstructured) Object {
	o := Object{
		Kind: u.GetKind(), Name: u.GetName(), UID: u.GetUID(), Version: u.GetResourceVersion(),
		Owners: u.GetOwnerReferences(), Finalizers: u.GetFinalizers(), Deleting: u.GetDeletionTimestamp() != nil,
	}
	if grace := u.GetDeletionGracePeriodSeconds(); o.Deleting && grace != nil {
		o.Grace = *grace
	}
	switch o.Kind {
	case "Pod":
		o.State = stateOfPod(u)
	case "Deployment", "ReplicaSet", "StatefulSet":
		desired, _, _ := unstructured.NestedInt64(u.Object, "spec", "replicas")
		ready, _, _ := unstructured.NestedInt64(u.Object, "status", "readyReplicas")
		o.State = countedReady(ready, desired)
	case "Namespace":
		o.Problems = problemsOf(u)
	}
	return o
}

// stateOfPod returns the pod's phase, and the exit code of a container that has ended.
func stateOfPod(u *unstructured.Unstructured) string {
	phase, _, _ := unstructured.NestedString(u.Object, "status", "phase")
	statuses, _, _ := unstructured.NestedSlice(u.Object, "status", "containerStatuses")
	for _, s := range statuses {
		status, ok := s.(map[string]any)
		if !ok {
			continue
		}
		ready, _, _ := unstructured.NestedBool(status, "ready")
		code, ended, _ := unstructured.NestedInt64(status, "state", "terminated", "exitCode")
		switch {
		case ended:
			return fmt.Sprintf("%s, exit code %d", phase, code)
		case phase == string(corev1.PodRunning) && !ready:
			return phase + ", not ready"
		}
	}
	return phase
}

// problemsOf returns the messages of the conditions that explain why a namespace still exists.
func problemsOf(u *unstructured.Unstructured) []string {
	var problems []string
	conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	for _, c := range conditions {
		condition, ok := c.(map[string]any)
		if !ok {
			continue
		}
		kind, _, _ := unstructured.NestedString(condition, "type")
		status, _, _ := unstructured.NestedString(condition, "status")
		message, _, _ := unstructured.NestedString(condition, "message")
		if strings.HasPrefix(kind, "Namespace") && status == string(corev1.ConditionTrue) {
			problems = append(problems, kind+": "+message)
		}
	}
	return problems
}

// Has reports whether the object has a finalizer.
func (o Object) Has(finalizer string) bool { return slices.Contains(o.Finalizers, finalizer) }

// OwnedBy reports whether owner owns it.
func (o Object) OwnedBy(owner types.UID) bool {
	return slices.ContainsFunc(o.Owners, func(r metav1.OwnerReference) bool { return r.UID == owner })
}

// notes returns notes about the state of the object, of a few words each; finalizers are in brackets.
func (o Object) notes() []string {
	var notes []string
	if o.State != "" {
		notes = append(notes, o.State)
	}
	switch {
	case o.Deleting && o.Kind == "Pod":
		notes = append(notes, fmt.Sprintf("terminating, %d s of grace", o.Grace))
	case o.Deleting:
		notes = append(notes, "deleting")
	}
	if len(o.Finalizers) > 0 {
		finalizers := "[" + strings.Join(o.Finalizers, ", ") + "]"
		if o.Deleting {
			notes[len(notes)-1] += " " + finalizers
		} else {
			notes = append(notes, finalizers)
		}
	}
	return notes
}

// before reports whether version a is older than b. It is false for versions that cannot be compared,
// which our server does not produce.
func before(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order < 0
}

// inOrder sorts owners before their usual dependents, and otherwise by name.
func inOrder(a, b Object) int {
	order := []string{"Namespace", "Deployment", "StatefulSet", "ReplicaSet", "Pod", "ConfigMap", "Role"}
	return cmp.Or(cmp.Compare(slices.Index(order, a.Kind), slices.Index(order, b.Kind)), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
}

// countedReady returns the state of a workload.
func countedReady(ready, desired int64) string { return fmt.Sprintf("%d/%d ready", ready, desired) }
