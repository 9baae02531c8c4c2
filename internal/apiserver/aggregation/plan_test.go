package aggregation

import (
	"errors"
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/coppice-dev/coppice/internal/apiserver/serviceendpoints"
)

func TestConditionIsWrittenOnlyWhenItChanges(t *testing.T) {
	then, now := metav1.NewTime(time.Unix(1, 0)), metav1.NewTime(time.Unix(2, 0))
	down := errors.New("connection refused")
	s := &apiregistrationv1.APIService{}
	for i, step := range []struct {
		err    error
		at     metav1.Time
		writes bool
		want   string
	}{
		{down, then, true, "False FailedDiscoveryCheck connection refused 1"},
		{down, now, false, ""},
		{&serviceendpoints.Unreachable{Reason: "ServiceNotFound", Message: "no service"}, now, true, "False ServiceNotFound no service 1"}, // still not available
		{nil, now, true, "True Passed all checks passed 2"},
		{nil, then, false, ""},
	} {
		changed, ok := withCondition(s, availability(step.err), step.at)
		if ok != step.writes {
			t.Fatalf("step %d: writes: %t", i, ok)
		}
		if !ok {
			continue
		}
		s = changed
		c := s.Status.Conditions[0]
		if got := fmt.Sprint(c.Status, " ", c.Reason, " ", c.Message, " ", c.LastTransitionTime.Unix()); got != step.want || len(s.Status.Conditions) != 1 {
			t.Errorf("step %d: %s, want %s", i, got, step.want)
		}
	}
}
