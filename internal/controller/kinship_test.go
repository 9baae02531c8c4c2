package controller

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

func TestR24_KinshipOf(t *testing.T) {
	for name, test := range map[string]struct {
		controller        string // its uid; none if empty
		matches           bool
		ownerEnding, ends bool
		namespace         string
		member            func(metav1.Object) bool
		want              Kinship
	}{
		"mine":                           {controller: "me", matches: true, want: Mine},
		"mine though it ends":            {controller: "me", matches: true, ends: true, want: Mine},
		"it no longer matches":           {controller: "me", want: Astray},
		"nor does it while I end":        {controller: "me", ownerEnding: true, want: Mine},
		"somebody else's":                {controller: "other", matches: true, want: Stranger},
		"one of my name before me":       {controller: "former me", matches: true, want: Stranger},
		"an orphan":                      {matches: true, want: Orphan},
		"an orphan that does not match":  {want: Stranger},
		"an orphan that ends":            {matches: true, ends: true, want: Stranger},
		"an orphan while I end":          {matches: true, ownerEnding: true, want: Stranger},
		"mine, but by another name":      {controller: "me", matches: true, member: func(o metav1.Object) bool { return o.GetName() != "" }, want: Astray},
		"an orphan by another name":      {matches: true, member: func(o metav1.Object) bool { return o.GetName() != "" }, want: Stranger},
		"an orphan by its name":          {matches: true, member: func(o metav1.Object) bool { return o.GetName() == "" }, want: Orphan},
		"an orphan of another namespace": {matches: true, namespace: "elsewhere", want: Stranger},
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
			if got := KinshipOf(Owner{Object: owner, Selector: labels.SelectorFromSet(labels.Set{"app": "web"}), Member: test.member}, pod); got != test.want {
				t.Errorf("%d, want %d", got, test.want)
			}
		})
	}
}
