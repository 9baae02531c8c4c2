package controller

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

func TestR24_Relation(t *testing.T) {
	for name, test := range map[string]struct {
		controller        string // its uid; none if empty
		matches           bool
		ownerEnding, ends bool
		namespace         string
		match             func(metav1.Object) bool
		want              relation
	}{
		"owned":                               {controller: "me", matches: true, want: owned},
		"owned though it ends":                {controller: "me", matches: true, ends: true, want: owned},
		"it no longer matches":                {controller: "me", want: mismatched},
		"nor does it while the owner ends":    {controller: "me", ownerEnding: true, want: owned},
		"another owner's":                     {controller: "other", matches: true, want: unrelated},
		"that of a former owner of that name": {controller: "former", matches: true, want: unrelated},
		"an orphan":                           {matches: true, want: orphan},
		"an orphan that does not match":       {want: unrelated},
		"an orphan that ends":                 {matches: true, ends: true, want: unrelated},
		"an orphan while the owner ends":      {matches: true, ownerEnding: true, want: unrelated},
		"owned, but by another name":          {controller: "me", matches: true, match: func(o metav1.Object) bool { return o.GetName() != "" }, want: mismatched},
		"an orphan by another name":           {matches: true, match: func(o metav1.Object) bool { return o.GetName() != "" }, want: unrelated},
		"an orphan by its name":               {matches: true, match: func(o metav1.Object) bool { return o.GetName() == "" }, want: orphan},
		"an orphan of another namespace":      {matches: true, namespace: "elsewhere", want: unrelated},
	} {
		t.Run(name, func(t *testing.T) {
			ended := metav1.NewTime(time.Unix(1, 0))
			owner := &corev1.ReplicationController{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "me", UID: "me"}}
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team"}}
			if test.namespace != "" {
				pod.Namespace = test.namespace
			}
			if test.matches {
				pod.Labels = map[string]string{"app": "web"}
			}
			if test.ownerEnding {
				owner.DeletionTimestamp = &ended
			}
			if test.ends {
				pod.DeletionTimestamp = &ended
			}
			if test.controller != "" {
				former := owner.DeepCopy()
				former.UID = "me"
				ref := metav1.NewControllerRef(former, corev1.SchemeGroupVersion.WithKind("ReplicationController"))
				if test.controller != "me" {
					ref.UID = "another"
				}
				pod.OwnerReferences = []metav1.OwnerReference{{UID: "me too", Name: "no controller"}, *ref}
			}
			if got := (Owner{Object: owner, Selector: labels.SelectorFromSet(labels.Set{"app": "web"}), Match: test.match}).relationTo(pod); got != test.want {
				t.Errorf("%d, want %d", got, test.want)
			}
		})
	}
}
