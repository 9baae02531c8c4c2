package protection

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestLimitsAreReadAndWritten(t *testing.T) {
	for text, want := range map[string]Limits{
		"more-than=50": {MoreThan: 50},
		" more-than = 50 ; kinds=Namespaces, deployments.apps ;": {MoreThan: 50, Kinds: []schema.GroupResource{{Resource: "namespaces"}, {Group: "apps", Resource: "deployments"}}},
		"kinds=secrets;controllers=system:serviceaccount:ops:a,b": {
			Kinds: []schema.GroupResource{{Resource: "secrets"}}, Controllers: []string{"system:serviceaccount:ops:a", "b"},
		},
	} {
		got, err := ParseLimits(text)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%q: %v\n%s", text, err, diff)
		}
		again, err := ParseLimits(got.String())
		if diff := cmp.Diff(want, again); err != nil || diff != "" {
			t.Errorf("%q, from %q: %v\n%s", text, got.String(), err, diff)
		}
	}
	for text, says := range map[string]string{
		"":                          "no limit: more-than or kinds is required",
		"controllers=a":             "no limit",
		"more-than=0":               "more-than=0 is no number of objects above 0",
		"more-than=many":            "more-than=many is no number",
		"kinds=":                    `"kinds" has no value`,
		"50":                        `"50" has no value`,
		"most=5":                    `"most" is unknown: choose more-than, kinds and controllers`,
		"more-than=50, kinds=nodes": "is no number of objects",
	} {
		if _, err := ParseLimits(text); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want %q", text, err, says)
		}
	}
}

// R32: what needs a confirmation, and what the refusal says.
func TestR32_LimitsAreExceeded(t *testing.T) {
	limits := Limits{MoreThan: 2, Kinds: []schema.GroupResource{{Resource: "namespaces"}, {Group: "apps", Resource: "deployments"}}}
	for name, test := range map[string]struct {
		closure Closure
		says    string // empty if it is not refused
	}{
		"few":           {Closure{Objects: 2}, ""},
		"many":          {Closure{Objects: 3}, "unconfirmed: 3 objects would be deleted, and more than 2 need a confirmation; to see them, and to confirm: coppice preview delete configmaps/a -n shop"},
		"a kind":        {Closure{Objects: 1, Limited: []string{"namespaces"}}, "1 object would be deleted, and namespaces need a confirmation in any number;"},
		"many and kind": {Closure{Objects: 3, Limited: []string{"namespaces"}}, "and more than 2 need a confirmation, and namespaces in any number;"},
	} {
		if got := limits.Exceeded(test.closure); got != (test.says != "") {
			t.Errorf("%s: exceeded %t", name, got)
		}
		if test.says == "" {
			continue
		}
		test.closure.Digest = DigestOf([]string{"b", "a", "b"})
		err := limits.Refuse(test.closure, schema.GroupResource{Resource: "configmaps"}, "shop", "a")
		if !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v, want %q", name, err, test.says)
		}
		test.closure.Limited = nil
		got, needs := NeedsConfirmation(errors.Join(err))
		if diff := cmp.Diff(test.closure, got); !needs || diff != "" {
			t.Errorf("%s: %t\n%s", name, needs, diff)
		}
	}
	collection := limits.Refuse(Closure{Objects: 3}, schema.GroupResource{Resource: "pods"}, "shop", "")
	if !strings.HasSuffix(collection.Error(), "coppice preview delete pods --all -n shop") {
		t.Error(collection)
	}
	for resource, want := range map[schema.GroupResource]bool{
		{Resource: "namespaces"}: true, {Group: "other.io", Resource: "namespaces"}: true,
		{Group: "apps", Resource: "deployments"}: true, {Group: "other.io", Resource: "deployments"}: false, {Resource: "pods"}: false,
	} {
		if limits.Limited(resource) != want {
			t.Errorf("%s is limited: %t", resource, !want)
		}
	}
	if _, needs := NeedsConfirmation(errors.New("no")); needs {
		t.Error("an error of another kind needs a confirmation")
	}
}

// R32: controllers need no confirmations; collectors, people and agents do.
func TestR32_WhoNeedsConfirmations(t *testing.T) {
	limits := Limits{MoreThan: 1, Controllers: []string{"operator"}}
	for user, want := range map[string]bool{
		"operator": true, "system:coppice:workload-controllers": true, "system:serviceaccount:kube-system:job-controller": true,
		"system:serviceaccount:kube-system:namespace-controller": true, "system:coppice:namespace-controller": true,
		"system:node:a": true, "system:kube-scheduler": true, "system:serviceaccount:kube-system:pod-garbage-collector": true,
		"admin": false, "system:coppice:collector": false, "system:serviceaccount:kube-system:generic-garbage-collector": false,
		"system:serviceaccount:coppice-system:coppice": false, "system:coppice:tools-user": false,
		"system:serviceaccount:kube-system:gitops-controller": false, "system:serviceaccount:kube-system:legacy-service-account-token-cleaner": true,
		"system:serviceaccount:default:job-controller": false, "system:serviceaccount:kube-system:default": false, "system:kube-controller-manager": false,
	} {
		if limits.Exempts(user) != want {
			t.Errorf("%s is exempt: %t", user, !want)
		}
	}
}

// R32: a confirmation counts for one object, one set of objects, and five minutes.
func TestR32_WhatAConfirmationCountsFor(t *testing.T) {
	now, digest := time.Unix(1_800_000_000, 0), DigestOf([]string{"a"})
	good := Confirmation{UID: "u", Digest: digest, At: now}
	for name, test := range map[string]struct {
		change func(*Confirmation)
		want   bool
	}{
		"the same":      {func(*Confirmation) {}, true},
		"a minute old":  {func(c *Confirmation) { c.At = now.Add(-time.Minute) }, true},
		"its last time": {func(c *Confirmation) { c.At = now.Add(-ConfirmedFor) }, true},
		"too old":       {func(c *Confirmation) { c.At = now.Add(-ConfirmedFor - time.Second) }, false},
		"a fast clock":  {func(c *Confirmation) { c.At = now.Add(time.Minute) }, true},
		"of the future": {func(c *Confirmation) { c.At = now.Add(time.Minute + time.Second) }, false},
		"of another":    {func(c *Confirmation) { c.UID = "v" }, false},
		"another set":   {func(c *Confirmation) { c.Digest = DigestOf([]string{"b"}) }, false},
	} {
		c := good
		test.change(&c)
		m := &metav1.ObjectMeta{UID: "u", Annotations: map[string]string{Confirmed: c.String()}}
		if Confirms(m, Closure{Digest: digest}, now) != test.want {
			t.Errorf("%s: counts %t", name, !test.want)
		}
	}
	for _, bad := range []string{"", "x", "u " + digest, "u short 2026-01-01T00:00:00Z", " " + digest + " 2026-01-01T00:00:00Z", "u " + digest + " yesterday"} {
		if c, err := ParseConfirmation(bad); err == nil {
			t.Errorf("%q: %+v", bad, c)
		}
	}
}

// R32: the writes for which a user needs the right to confirm.
func TestR32_WhichWritesConfirm(t *testing.T) {
	confirmation := Confirmation{UID: "u", Digest: DigestOf(nil), At: time.Unix(0, 0)}
	object := func(value string) *metav1.ObjectMeta {
		return &metav1.ObjectMeta{UID: "u", Annotations: map[string]string{Confirmed: value}}
	}
	copied := confirmation
	copied.UID = "owner"
	for name, test := range map[string]struct {
		before, after *metav1.ObjectMeta
		want          bool
	}{
		"confirms":           {&metav1.ObjectMeta{UID: "u"}, object(confirmation.String()), true},
		"confirms again":     {object("before"), object(confirmation.String()), true},
		"keeps it":           {object(confirmation.String()), object(confirmation.String()), false},
		"removes it":         {object(confirmation.String()), &metav1.ObjectMeta{UID: "u"}, false},
		"copies it":          {&metav1.ObjectMeta{UID: "u"}, object(copied.String()), false},
		"is no confirmation": {&metav1.ObjectMeta{UID: "u"}, object("yes"), false},
	} {
		if _, got := NewConfirmation(test.before, test.after); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
