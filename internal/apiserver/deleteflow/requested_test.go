package deleteflow

import (
	"context"
	"errors"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
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

// byAnn deletes as the user ann, in front of an admission plug-in that answers answer after all others.
type byAnn struct {
	rest.GracefulDeleter

	answer error
}

// Delete implements rest.GracefulDeleter.
func (d byAnn) Delete(ctx context.Context, name string, validate rest.ValidateObjectFunc, options *metav1.DeleteOptions) (runtime.Object, bool, error) {
	ctx = genericrequest.WithUser(ctx, &user.DefaultInfo{Name: "ann"})
	return d.GracefulDeleter.Delete(ctx, name, func(ctx context.Context, obj runtime.Object) error {
		if err := validate(ctx, obj); err != nil {
			return err
		}
		return d.answer
	}, options)
}

// Nobody is said to have deleted an object because of a DELETE that admission has refused, or a dry run.
func TestDeletionsThatAdmissionRefusesAreNotReported(t *testing.T) {
	deleters(t, func(t *testing.T, deleterOf func(*fixture) rest.GracefulDeleter) {
		for name, finalizers := range map[string][]string{"removed": nil, "marked": {foreign}} {
			for _, test := range []struct {
				refusal error
				options metav1.DeleteOptions
				reports bool
			}{
				{errRefused, metav1.DeleteOptions{}, false},
				{nil, metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}, false},
				{nil, metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)}, true},
			} {
				w := newFixture(t, configMap(finalizers...))
				var reported []Requested
				w.flow.onRequest = func(r Requested) { reported = append(reported, r) }
				got := w.deleteWith(byAnn{deleterOf(w), test.refusal}, test.options)
				if !errors.Is(got.err, test.refusal) {
					t.Fatalf("%s: %v, want %v", name, got.err, test.refusal)
				}
				if (len(reported) > 0) != test.reports {
					t.Errorf("%s, %v, %+v: reported %+v", name, test.refusal, test.options, reported)
				}
				for _, r := range reported {
					if r.User != "ann" || r.UID != "1st" || r.Policy != metav1.DeletePropagationBackground {
						t.Errorf("%s: reported %+v", name, r)
					}
				}
			}
		}
	})
}
