package deleteflow

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"
)

// deletes returns the context of a user's DELETE.
func deletes(who string) context.Context {
	ctx := context.WithValue(context.Background(), requestKey, &request{deletes: true, agent: "kubectl"})
	return genericrequest.WithUser(ctx, &user.DefaultInfo{Name: who})
}

func namespaceAt(name, version string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "u", ResourceVersion: version}}
}

// R21: the deletion of a namespace is remembered until its client has sent no DELETE there for five seconds.
func TestR21_DeletedNamespacesAreForgotten(t *testing.T) {
	now := time.Now()
	e := &emptied{now: func() time.Time { return now }, by: map[emptiedBy]emptiedNamespace{}}
	ctx := deletes("jane")
	e.add(ctx, namespaceAt("a", "7"))
	for range 5 {
		now = now.Add(emptiedFor - time.Millisecond)
		if of, ok := e.renewed(ctx, "kubectl", "a"); !ok || of.marked != 7 || of.uid != "u" {
			t.Fatalf("within the time it is %+v, %t", of, ok)
		}
	}
	e.add(ctx, namespaceAt("a", "9")) // its deletion goes on
	if of, _ := e.renewed(ctx, "kubectl", "a"); of.marked != 7 {
		t.Errorf("a repeated DELETE moved the revision to %d", of.marked)
	}
	now = now.Add(emptiedFor + time.Millisecond)
	if _, ok := e.renewed(ctx, "kubectl", "a"); ok || len(e.by) > 0 {
		t.Errorf("it is remembered: %v", e.by)
	}
}

// Memory is bounded, for any number of deleted namespaces and for names of any length. Expired entries make room.
func TestR21_DeletedNamespacesAreBounded(t *testing.T) {
	now := time.Now()
	e := &emptied{now: func() time.Time { return now }, by: map[emptiedBy]emptiedNamespace{}}
	for i := range 2 * mostEmptied {
		e.add(deletes(fmt.Sprint("jane", i)), namespaceAt("a", "7"))
	}
	if len(e.by) != mostEmptied {
		t.Errorf("%d are remembered, want %d", len(e.by), mostEmptied)
	}
	now = now.Add(emptiedFor + time.Millisecond)
	e.add(deletes("joe"), namespaceAt("b", "8"))
	if len(e.by) != 1 {
		t.Errorf("%d are remembered, want 1", len(e.by))
	}
}
