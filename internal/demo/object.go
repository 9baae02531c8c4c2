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

// Object is what the tree shows of an object.
type Object struct {
	Kind, Name string
	UID        types.UID
	// Version is its resourceVersion; of an object that is gone, that of its deletion.
	Version    string
	Owners     []metav1.OwnerReference
	Finalizers []string
	Deleting   bool
	// Grace is how long it may take to end, in seconds; 0 of what is not being deleted.
	Grace int64
	// Standing says how it is: the phase of a pod, how many pods of a workload are ready.
	Standing string
	// Troubles are why a namespace is still there, as its conditions have it.
	Troubles []string
}

// String is how kubectl names it.
func (o Object) String() string { return o.Kind + "/" + o.Name }

// Read takes from an object what the tree shows.
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
		o.Standing = standingOfPod(u)
	case "Deployment", "ReplicaSet", "StatefulSet":
		desired, _, _ := unstructured.NestedInt64(u.Object, "spec", "replicas")
		ready, _, _ := unstructured.NestedInt64(u.Object, "status", "readyReplicas")
		o.Standing = countedReady(ready, desired)
	case "Namespace":
		o.Troubles = troublesOf(u)
	}
	return o
}

// standingOfPod is the pod's phase, and with which exit code it failed.
func standingOfPod(u *unstructured.Unstructured) string {
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

// troublesOf are the messages of the conditions that tell why a namespace stays.
func troublesOf(u *unstructured.Unstructured) []string {
	var troubles []string
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
			troubles = append(troubles, kind+": "+message)
		}
	}
	return troubles
}

// Has tells whether the object carries a finalizer.
func (o Object) Has(finalizer string) bool { return slices.Contains(o.Finalizers, finalizer) }

// OwnedBy tells whether owner owns it.
func (o Object) OwnedBy(owner types.UID) bool {
	return slices.ContainsFunc(o.Owners, func(r metav1.OwnerReference) bool { return r.UID == owner })
}

// notes say how the object is, in a few words each; its finalizers are in brackets.
func (o Object) notes() []string {
	var notes []string
	if o.Standing != "" {
		notes = append(notes, o.Standing)
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

// before tells whether a was written before b. Versions that cannot be compared, which
// no server that this runs against has, are in no order.
func before(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order < 0
}

// inOrder sorts owners before what they usually own, and else by name.
func inOrder(a, b Object) int {
	order := []string{"Namespace", "Deployment", "StatefulSet", "ReplicaSet", "Pod", "ConfigMap", "Role"}
	return cmp.Or(cmp.Compare(slices.Index(order, a.Kind), slices.Index(order, b.Kind)), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
}

// countedReady is the standing of a workload.
func countedReady(ready, desired int64) string { return fmt.Sprintf("%d/%d ready", ready, desired) }
