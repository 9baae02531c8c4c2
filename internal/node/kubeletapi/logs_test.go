package kubeletapi

import (
	"net/url"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func testPod() *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "uid-1"}}
}

// TestLogURLRoundTrips checks that the agent parses the same options that the API server got.
func TestLogURLRoundTrips(t *testing.T) {
	since := metav1.NewTime(time.Date(2026, 7, 1, 12, 0, 0, 123456789, time.FixedZone("", 2*60*60)))
	for name, o := range map[string]corev1.PodLogOptions{
		"nothing":    {},
		"follow":     {Follow: true},
		"previous":   {Previous: true, Timestamps: true},
		"tail":       {TailLines: new(int64(0))},
		"since":      {SinceSeconds: new(int64(5)), LimitBytes: new(int64(7))},
		"since time": {SinceTime: &since, TailLines: new(int64(100)), Follow: true},
	} {
		t.Run(name, func(t *testing.T) {
			o.Container = "app"
			path, query := LogURL(testPod(), &o)
			if path != "/containerLogs/default/web/app" {
				t.Errorf("path %s", path)
			}
			values, err := url.ParseQuery(query)
			if err != nil {
				t.Fatal(err)
			}
			if got := values.Get("uid"); got != "uid-1" {
				t.Errorf("uid %q", got)
			}
			got, err := ParseLogOptions(values)
			if err != nil {
				t.Fatal(err)
			}
			got.Container = o.Container
			if o.SinceTime != nil && got.SinceTime != nil && got.SinceTime.Time.Equal(o.SinceTime.Time) {
				got.SinceTime = o.SinceTime // another zone
			}
			if !equality.Semantic.DeepEqual(*got, o) {
				t.Errorf("%+v, want %+v", *got, o)
			}
		})
	}
}

func TestParseLogOptionsRefusesInvalid(t *testing.T) {
	for query, want := range map[string]string{
		"follow=perhaps":  "follow:",
		"tailLines=-1":    `tailLines: "-1" must be an integer greater than or equal to 0`,
		"tailLines=many":  `tailLines: "many"`,
		"limitBytes=0":    `limitBytes: "0" must be an integer greater than or equal to 1`,
		"sinceSeconds=0":  `sinceSeconds: "0"`,
		"sinceTime=today": "sinceTime:",
		"sinceSeconds=5&sinceTime=2026-07-01T12:00:00Z": "at most one of",
	} {
		values, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		if o, err := ParseLogOptions(values); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %+v, %v; want %q", query, o, err, want)
		}
	}
}
