package deleteflow

import (
	"context"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"
)

// Deletions of a user are reported, whatever headers the request has: else anybody could delete without a story.
// Those of a collector are not: they are part of a story.
func TestDeletionsAreReportedByUser(t *testing.T) {
	for who, want := range map[string]bool{
		"ann": true, "system:serviceaccount:shop:default": true,
		"system:serviceaccount:kube-system:generic-garbage-collector": false, "system:serviceaccount:kube-system:namespace-controller": false,
	} {
		var reported []Requested
		f := New(Config{Now: testNow, OnRequest: func(r Requested) { reported = append(reported, r) }})
		ctx := genericrequest.WithUser(t.Context(), &user.DefaultInfo{Name: who})
		ctx = context.WithValue(ctx, requestKey, &request{deletes: true, reasons: true, agent: "curl"})
		f.reportRequest(ctx, configMap(), &metav1.DeleteOptions{})
		if got := len(reported) == 1 && reported[0].User == who && reported[0].Agent == "curl"; got != want || len(reported) > 1 {
			t.Errorf("%s: %+v", who, reported)
		}
	}
}
