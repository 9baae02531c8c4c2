package protection

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// An entry of the annotation asks whether an object exists. Only users with the right to read the object get
// the answer, by two rules:
//
//   - A user who adds an entry needs the right to read the object (Added, Missing). From then on collectors,
//     which can read everything, look it up.
//   - A deletion by a user without the right to read the object gets the same refusal whether the object
//     exists or not (Left.Unread).

// Added returns the entries that a write adds to an object: a deletion looks them up after the write, but not
// before. before is nil if the write creates the object. A write that sets the annotation Checked adds all
// entries.
func Added(before, after metav1.Object) []Outlived {
	p, _ := Of(after)
	says := after.GetAnnotations()[Checked]
	if before == nil || says != "" && says != before.GetAnnotations()[Checked] {
		return p.Outlives
	}
	already, _ := Of(before)
	return Missing(p.Outlives, already.Outlives)
}

// Missing returns the entries that another list lacks.
func Missing(entries, from []Outlived) []Outlived {
	there := make(map[Outlived]bool, len(from)) // an object with templates has any number of entries
	for _, o := range from {
		there[o] = true
	}
	return slices.DeleteFunc(slices.Clone(entries), func(o Outlived) bool { return there[o] })
}

// copiers are the users of controllers that make objects from templates, labels and annotations included.
var copiers = map[string]bool{
	"system:coppice:workload-controllers":                                 true,
	"system:kube-controller-manager":                                      true,
	"system:serviceaccount:kube-system:cronjob-controller":                true,
	"system:serviceaccount:kube-system:daemon-set-controller":             true,
	"system:serviceaccount:kube-system:deployment-controller":             true,
	"system:serviceaccount:kube-system:endpointslicemirroring-controller": true,
	"system:serviceaccount:kube-system:ephemeral-volume-controller":       true,
	"system:serviceaccount:kube-system:job-controller":                    true,
	"system:serviceaccount:kube-system:replicaset-controller":             true,
	"system:serviceaccount:kube-system:replication-controller":            true,
	"system:serviceaccount:kube-system:resource-claim-controller":         true,
	"system:serviceaccount:kube-system:statefulset-controller":            true,
}

// IsCopier reports whether a user is a controller that makes objects from templates. Its rights say nothing about
// the rights of the users who write the templates.
func IsCopier(user string) bool { return copiers[user] }

// Answer decides as Decide does, for a server that answers a DELETE. Controllers publish the refusal of a cascade in Events
// and conditions, whose readers may not be allowed to read the objects. So it lists all entries, whether they exist or
// not, and of the objects that use another one the kinds only.
func (p Protection) Answer(by Deleter, remaining []Remaining) *Refusal {
	refusal := p.Decide(by, remaining)
	if refusal == nil || by != Cascade || !p.NeedsLookup() {
		return refusal
	}
	refusal.remaining = nil
	for _, o := range p.Outlives {
		refusal.remaining = append(refusal.remaining, Remaining{Outlived: o})
	}
	if p.Mode == Unused {
		refusal.remaining = kindsOf(remaining)
	}
	return refusal
}

// kindsOf returns the kinds of objects, each once.
func kindsOf(objects []Remaining) (kinds []Remaining) {
	for _, o := range objects {
		kind := Remaining{Outlived: Outlived{APIVersion: o.APIVersion, Kind: o.Kind}, Unknown: o.Unknown}
		if !slices.Contains(kinds, kind) {
			kinds = append(kinds, kind)
		}
	}
	return kinds
}
