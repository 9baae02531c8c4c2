package probe

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
)

// EventuallyGone waits until objects are gone.
func (w *Space) EventuallyGone(objects ...Object) {
	w.T.Helper()
	for _, o := range objects {
		w.Until(fmt.Sprintf("%s to go", o), func() string {
			if now, ok := w.Look(o); ok {
				return "it is still there: " + Describe(now)
			}
			return ""
		})
	}
}

// EventuallyLeaving waits until objects are being deleted or are gone.
func (w *Space) EventuallyLeaving(objects ...Object) {
	w.T.Helper()
	for _, o := range objects {
		w.Until(fmt.Sprintf("%s to be deleted", o), func() string {
			if now, ok := w.Look(o); ok && now.DeletionTimestamp == nil {
				return "it is not being deleted: " + Describe(now)
			}
			return ""
		})
	}
}

// EventuallyOwned waits until an object has exactly these owner references.
func (w *Space) EventuallyOwned(o Object, owners ...metav1.OwnerReference) {
	w.T.Helper()
	w.Until(fmt.Sprintf("%s to be owned by %s", o, names(owners)), func() string {
		if diff := cmp.Diff(owners, w.Must(o).OwnerReferences, equateEmpty()); diff != "" {
			return "owner references (-want +got):\n" + diff
		}
		return ""
	})
}

// EventuallyFinalizers waits until an object has exactly these finalizers.
func (w *Space) EventuallyFinalizers(o Object, finalizers ...string) {
	w.T.Helper()
	w.Until(fmt.Sprintf("%s to have the finalizers %v", o, finalizers), func() string {
		if got := w.Must(o).Finalizers; !slices.Equal(got, finalizers) {
			return fmt.Sprintf("it has %v", got)
		}
		return ""
	})
}

// Settle waits until a collector has processed all earlier events: it creates garbage of each kind
// and waits until that is collected. It does so twice, because a worker may still process an earlier
// object when the first garbage is gone.
func (w *Space) Settle(kinds ...Kind) {
	w.T.Helper()
	for i := range 2 {
		for _, k := range kinds {
			owner := ConfigMaps
			if k.Cluster {
				owner = ClusterRoles
			}
			// Because of its own label, no controller adopts the garbage.
			w.EventuallyGone(w.Create(k, fmt.Sprintf("sentinel-%d-%s", i, uuid.NewUUID()[:8]), OwnedBy(Nobody(owner)), WithLabel(RunLabel, run)))
		}
	}
}

// Stay waits until the collector has processed all earlier events (Settle), and asserts that objects are kept.
func (w *Space) Stay(objects ...Object) {
	w.T.Helper()
	var kinds []Kind
	for _, o := range objects {
		if !slices.ContainsFunc(kinds, func(k Kind) bool { return k.GroupVersionResource == o.Kind.GroupVersionResource }) {
			kinds = append(kinds, o.Kind)
		}
	}
	w.Settle(kinds...)
	w.AreKept(objects...)
}

// AreKept asserts that objects exist and are not being deleted.
func (w *Space) AreKept(objects ...Object) {
	w.T.Helper()
	for _, problem := range w.notKept(objects) {
		w.T.Errorf("%s", problem)
	}
}

// AreKeptWhile asserts that objects exist and are not being deleted while another one exists. If that is gone, because a
// controller of the cluster has removed it, it skips the check.
func (w *Space) AreKeptWhile(exists Object, objects ...Object) {
	w.T.Helper()
	problems := w.notKept(objects)
	if _, ok := w.Look(exists); !ok {
		w.T.Skipf("a controller has removed %s meanwhile, as the pod garbage collector does 40 s after it has missed the node of a pod", exists)
	}
	for _, problem := range problems {
		w.T.Errorf("%s", problem)
	}
}

// notKept describes the objects that are gone or being deleted.
func (w *Space) notKept(objects []Object) (problems []string) {
	w.T.Helper()
	for _, o := range objects {
		now, ok := w.Look(o)
		switch {
		case !ok:
			problems = append(problems, fmt.Sprintf("want %s to be kept; it was deleted", o))
		case now.DeletionTimestamp != nil:
			problems = append(problems, fmt.Sprintf("want %s to be kept; it is being deleted: %s", o, Describe(now)))
		}
	}
	return problems
}

// AreOrphans asserts that objects stay and have no owner references.
func (w *Space) AreOrphans(dependents ...Object) {
	w.T.Helper()
	w.Stay(dependents...)
	for _, d := range dependents {
		if owners := w.Must(d).OwnerReferences; len(owners) > 0 {
			w.T.Errorf("want %s, which was orphaned, to have no owners; it has %s", d, names(owners))
		}
	}
}

// InvalidNamespace is the reason of the Event about an owner in a namespace that R5 does not allow.
const InvalidNamespace = "OwnerRefInvalidNamespace"

// EventuallyReported waits for an Event about an object.
func (w *Space) EventuallyReported(o Object, reason string) {
	w.T.Helper()
	space := o.Namespace
	if space == "" {
		space = metav1.NamespaceDefault
	}
	w.Until(fmt.Sprintf("an Event %s about %s", reason, o), func() string {
		events, err := w.Server.Kube.CoreV1().Events(space).List(w.T.Context(), metav1.ListOptions{})
		if err != nil {
			return err.Error()
		}
		var reasons []string
		for i := range events.Items {
			e := &events.Items[i]
			if e.InvolvedObject.UID != o.UID {
				continue
			}
			if e.Reason == reason {
				return ""
			}
			reasons = append(reasons, e.Reason)
		}
		return fmt.Sprintf("there are only %v", reasons)
	})
}

// Describe describes the fields of an object that matter to its deletion.
func Describe(now *metav1.PartialObjectMetadata) string {
	var parts []string
	if now.DeletionTimestamp != nil {
		parts = append(parts, "being deleted since "+now.DeletionTimestamp.Format(time.TimeOnly))
	}
	parts = append(parts, fmt.Sprintf("finalizers %v", now.Finalizers))
	for _, r := range now.OwnerReferences {
		parts = append(parts, fmt.Sprintf("owner %s %s %s", r.APIVersion, r.Kind, r.Name))
	}
	return strings.Join(parts, ", ")
}

func names(owners []metav1.OwnerReference) string {
	if len(owners) == 0 {
		return "nobody"
	}
	var all []string
	for _, r := range owners {
		all = append(all, r.Kind+" "+r.Name)
	}
	return strings.Join(all, ", ")
}

// equateEmpty treats nil and an empty list of references as equal.
func equateEmpty() cmp.Option {
	return cmp.FilterValues(func(a, b []metav1.OwnerReference) bool { return len(a) == 0 && len(b) == 0 }, cmp.Ignore())
}
