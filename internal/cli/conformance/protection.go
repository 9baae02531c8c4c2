package conformance

import (
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/coppice-dev/coppice/internal/cli/conformance/probe"
)

// protected are checks of protected objects, a rule of our server.
var protected = []Check{
	{"PR-01 no request deletes an object in mode always, until it is unprotected", "R28", Collector | Ours, func(w *probe.Space) {
		owner := w.Create(probe.ConfigMaps, "owner")
		o := protect(w, "object", "always", probe.OwnedBy(probe.Ref(owner)))
		for _, options := range []metav1.DeleteOptions{
			{},
			probe.Policy(probe.Foreground), probe.Policy(probe.Orphan),
			{GracePeriodSeconds: new(int64(0))},
			{DryRun: []string{metav1.DryRunAll}},
		} {
			isProtected(w, w.TryRemove(o, options))
		}
		other := w.Create(probe.Secrets, "other")
		isProtected(w, w.DeleteCollection(probe.Secrets, "", metav1.DeleteOptions{}))
		w.EventuallyGone(other)
		w.Remove(owner, probe.Background)
		w.EventuallyGone(owner)
		w.Stay(o)
		lift(w, o)
		w.EventuallyGone(o)
	}},
	{"PR-02 only a request by name deletes an object in mode cascading", "R28 S1", Collector | Ours, func(w *probe.Space) {
		owner := w.Create(probe.ConfigMaps, "owner")
		o := protect(w, "object", "cascading", probe.OwnedBy(probe.Ref(owner)))
		w.Remove(owner, probe.Background)
		w.EventuallyGone(owner)
		w.Stay(o)
		w.Remove(o, probe.Background)
		w.EventuallyGone(o)
	}},
	{"PR-03 a provider outlives its consumers", "R28", Ours, func(w *probe.Space) {
		consumers := w.CreateMany(2, probe.ConfigMaps, "consumer")
		o := protect(w, "provider", "outlives", outliving(consumers...))
		for _, consumer := range consumers {
			isProtected(w, w.TryRemove(o, metav1.DeleteOptions{}))
			w.Remove(consumer, probe.Background)
			w.EventuallyGone(consumer)
		}
		w.RemoveWith(o, metav1.DeleteOptions{})
		w.EventuallyGone(o)
	}},
	{"PR-04 a namespace waits for its protected objects, and a condition names them", "R22 R28 S8", NamespaceController | Ours, func(w *probe.Space) {
		o, other := protect(w, "object", "cascading"), w.Create(probe.ConfigMaps, "other")
		self := w.End()
		w.EventuallyGone(other)
		w.EventuallyMentions("NamespaceDeletionContentFailure True ContentDeletionFailed", "object")
		w.SettleNamespaces()
		w.AreKept(o)
		lift(w, o)
		w.EventuallyGone(self, o)
	}},
}

const (
	protectLabel       = "coppice.dev/protect"
	outlivesAnnotation = "coppice.dev/outlives"
)

// protect creates a protected Secret.
func protect(w *probe.Space, name, mode string, options ...probe.Option) probe.Object {
	w.T.Helper()
	o := w.Create(probe.Secrets, name, append(options, probe.WithLabel(protectLabel, mode))...)
	w.T.Cleanup(func() { _ = w.TryPatch(o, map[string]any{"labels": nil}) })
	return o
}

// lift ends the protection of an object.
func lift(w *probe.Space, o probe.Object) {
	w.T.Helper()
	w.Patch(o, map[string]any{"labels": nil})
}

// outliving lists the objects that an object outlives.
func outliving(outlived ...probe.Object) probe.Option {
	list := make([]string, 0, len(outlived))
	for _, o := range outlived {
		list = append(list, fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"name":%q}`, o.Kind.APIVersion(), o.Kind.Name, o.Name))
	}
	return func(u *unstructured.Unstructured) {
		u.SetAnnotations(map[string]string{outlivesAnnotation: "[" + strings.Join(list, ",") + "]"})
	}
}

// isProtected checks the answer that refuses to delete a protected object.
func isProtected(w *probe.Space, err error) {
	w.T.Helper()
	if !apierrors.IsForbidden(err) || !apierrors.HasStatusCause(err, protectLabel) {
		w.T.Errorf("want the DELETE to be refused with 403 and the cause %s; the answer is %v", protectLabel, err)
	}
}
