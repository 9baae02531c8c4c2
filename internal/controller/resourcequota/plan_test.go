package resourcequota

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	quotav1 "k8s.io/apiserver/pkg/quota/v1"
)

func amounts(t *testing.T, texts map[string]string) corev1.ResourceList {
	t.Helper()
	if texts == nil {
		return nil
	}
	list := corev1.ResourceList{}
	for name, text := range texts {
		quantity, err := resource.ParseQuantity(text)
		if err != nil {
			t.Fatal(err)
		}
		list[corev1.ResourceName(name)] = quantity
	}
	return list
}

func TestStatusHasTheLimitsAndTheUsage(t *testing.T) {
	type list = map[string]string
	for name, test := range map[string]struct {
		spec, hard, used, counted list
		want                      list // what is used then
		changed                   bool
	}{
		"new":              {list{"pods": "2"}, nil, nil, list{"pods": "1"}, list{"pods": "1"}, true},
		"new, empty":       {list{}, nil, nil, list{}, list{}, true},
		"as it is":         {list{"pods": "2"}, list{"pods": "2"}, list{"pods": "1"}, list{"pods": "1"}, list{"pods": "1"}, false},
		"another notation": {list{"cpu": "2"}, list{"cpu": "2000m"}, list{"cpu": "1000m"}, list{"cpu": "1"}, list{"cpu": "1"}, false},
		"freed":            {list{"pods": "2"}, list{"pods": "2"}, list{"pods": "2"}, list{"pods": "1"}, list{"pods": "1"}, true},
		"limits more":      {list{"pods": "3"}, list{"pods": "2"}, list{"pods": "2"}, list{"pods": "2"}, list{"pods": "2"}, true},
		"one less is limited": {
			list{"pods": "2"}, list{"pods": "2", "cpu": "1"}, list{"pods": "1", "cpu": "1"}, list{"pods": "1"}, list{"pods": "1"}, true,
		},
		"not counted now": {
			list{"pods": "2", "count/widgets.example.com": "1"},
			list{"pods": "2", "count/widgets.example.com": "1"},
			list{"pods": "2", "count/widgets.example.com": "1"},
			list{"pods": "1"},
			list{"pods": "1", "count/widgets.example.com": "1"},
			true,
		},
		"never counted": {list{"count/x.y": "1"}, list{"count/x.y": "1"}, list{}, list{}, list{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			q := &corev1.ResourceQuota{
				Spec:   corev1.ResourceQuotaSpec{Hard: amounts(t, test.spec)},
				Status: corev1.ResourceQuotaStatus{Hard: amounts(t, test.hard), Used: amounts(t, test.used)},
			}
			status, changed := Decide(q, amounts(t, test.counted))
			if changed != test.changed || !quotav1.Equals(status.Hard, q.Spec.Hard) || !quotav1.Equals(status.Used, amounts(t, test.want)) {
				t.Errorf("%v, changed %t", status, changed)
			}
		})
	}
}

func TestRecountWaitsForCharges(t *testing.T) {
	now := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	for name, test := range map[string]struct {
		count Count
		want  time.Duration
	}{
		"new":                             {Count{Demanded: true}, 0},
		"freed while others are charged":  {Count{Demanded: true, Charged: now, Began: now}, 0},
		"charged now":                     {Count{Charged: now, Began: ago(time.Minute)}, settlePeriod},
		"charged a moment ago":            {Count{Charged: ago(2 * time.Second), Began: ago(time.Minute)}, settlePeriod - 2*time.Second},
		"not charged for long enough":     {Count{Charged: ago(settlePeriod), Began: ago(time.Minute)}, 0},
		"charged all the time":            {Count{Charged: now, Began: ago(resyncPeriod - time.Second)}, settlePeriod},
		"charged all the time, at resync": {Count{Charged: now, Began: ago(resyncPeriod)}, 0},
	} {
		if got := test.count.Wait(now); got != test.want {
			t.Errorf("%s: wait %s, want %s", name, got, test.want)
		}
	}
}
