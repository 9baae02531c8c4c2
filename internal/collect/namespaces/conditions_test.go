package namespaces

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var then, now = metav1.NewTime(time.Unix(100, 0)), metav1.NewTime(time.Unix(200, 0))

// condition returns a condition of a namespace.
func condition(t corev1.NamespaceConditionType, status corev1.ConditionStatus, reason, message string, since metav1.Time) corev1.NamespaceCondition {
	return corev1.NamespaceCondition{Type: t, Status: status, Reason: reason, Message: message, LastTransitionTime: since}
}

// allFine returns the five conditions of a namespace without problems.
func allFine(since metav1.Time) []corev1.NamespaceCondition {
	return []corev1.NamespaceCondition{
		condition("NamespaceDeletionDiscoveryFailure", "False", "ResourcesDiscovered", "All resources successfully discovered", since),
		condition("NamespaceDeletionGroupVersionParsingFailure", "False", "ParsedGroupVersions", "All legacy kube types successfully parsed", since),
		condition("NamespaceDeletionContentFailure", "False", "ContentDeleted", "All content successfully deleted, may be waiting on finalization", since),
		condition("NamespaceContentRemaining", "False", "ContentRemoved", "All content successfully removed", since),
		condition("NamespaceFinalizersRemaining", "False", "ContentHasNoFinalizers", "All content-preserving finalizers finished", since),
	}
}

// replaced returns conditions with some of them replaced by others of the same type.
func replaced(conditions []corev1.NamespaceCondition, by ...corev1.NamespaceCondition) []corev1.NamespaceCondition {
	for _, c := range by {
		for i := range conditions {
			if conditions[i].Type == c.Type {
				conditions[i] = c
			}
		}
	}
	return conditions
}

func TestR22_ConditionsReplaceWhatStood(t *testing.T) {
	unknown := condition("Unrelated", "True", "Because", "of something", then)
	failed := condition("NamespaceDeletionContentFailure", "True", "ContentDeletionFailed",
		"Failed to delete all resource types, 1 remaining: list configmaps: broken webhook", then)
	tests := map[string]struct {
		old         []corev1.NamespaceCondition
		survey      *Survey
		want        []corev1.NamespaceCondition
		wantChanged bool
	}{
		"NS-10 first sync":                     {nil, surveyOf(), allFine(now), true},
		"NS-10 unknown kept":                   {append([]corev1.NamespaceCondition{unknown}, allFine(then)...), surveyOf(), append([]corev1.NamespaceCondition{unknown}, allFine(then)...), false},
		"NS-10 success replaces failure":       {replaced(allFine(then), failed), surveyOf(), replaced(allFine(then), at(allFine(then)[2], now)), true},
		"NS-10 failure overwrites":             {allFine(then), surveyOf(unreadable(configMaps)), replaced(allFine(then), at(failed, now)), true},
		"NS-10 failure added":                  {allFine(then)[:2], surveyOf(unreadable(configMaps)), append(allFine(then)[:2:2], replaced(allFine(now), at(failed, now))[2:]...), true},
		"NS-10 order preserved":                {reversed(allFine(then)), surveyOf(), reversed(allFine(then)), false},
		"NS-10 the same trouble writes once":   {replaced(allFine(then), failed), surveyOf(unreadable(configMaps)), replaced(allFine(then), failed), false},
		"NS-06 no discovery: nothing is known": {nil, &Survey{Discovery: errors.New("down")}, unknownContents("down"), true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, changed := Conditions(test.old, test.survey, now)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("conditions (-want +got):\n%s", diff)
			}
			if changed != test.wantChanged {
				t.Errorf("changed = %v, want %v", changed, test.wantChanged)
			}
		})
	}
}

// unknownContents returns the conditions after a sync that knows no resource type.
func unknownContents(why string) []corev1.NamespaceCondition {
	conditions := allFine(now)
	for i := range conditions {
		conditions[i] = condition(conditions[i].Type, "Unknown", "ResourcesUnknown", "No resource type could be discovered, so that nothing was looked at", now)
	}
	conditions[0] = condition(conditions[0].Type, "True", "DiscoveryFailed", "Discovery failed for some groups, 1 failing: "+why, now)
	return conditions
}

func at(c corev1.NamespaceCondition, since metav1.Time) corev1.NamespaceCondition {
	c.LastTransitionTime = since
	return c
}

func reversed(conditions []corev1.NamespaceCondition) []corev1.NamespaceCondition {
	for i, j := 0, len(conditions)-1; i < j; i, j = i+1, j-1 {
		conditions[i], conditions[j] = conditions[j], conditions[i]
	}
	return conditions
}

// NS-11 and NS-12: the messages that people search for.
func TestR22_ConditionMessages(t *testing.T) {
	down := errors.New("the server is currently unable to handle the request")
	withDiscovery := func(err error) *Survey { s := surveyOf(); s.Discovery = err; return s }
	withFailure := func(after Content) *Survey {
		s := surveyOf(active(configMaps, "a"))
		s.Sweep(configMaps, errors.New("delete configmaps a: denied"))
		s.Record([]Content{after})
		return s
	}
	tests := map[string]struct {
		survey *Survey
		want   []corev1.NamespaceCondition // those that are not fine
	}{
		"NS-11 nothing": {surveyOf(), nil},
		"NS-11 remaining": {surveyOf(active(pods, "a", "b"), active(deployments, "d")), []corev1.NamespaceCondition{
			condition("NamespaceContentRemaining", "True", "SomeResourcesRemain", "Some resources are remaining: deployments.apps has 1 resource instances, pods. has 2 resource instances", now),
		}},
		"NS-11 finalizers, NS-12 a deployment that hangs": {surveyOf(hanging(deployments, "custom.io/finalizer")), []corev1.NamespaceCondition{
			condition("NamespaceContentRemaining", "True", "SomeResourcesRemain", "Some resources are remaining: deployments.apps has 1 resource instances", now),
			condition("NamespaceFinalizersRemaining", "True", "SomeFinalizersRemain", "Some content in the namespace has finalizers remaining: custom.io/finalizer in 1 resource instances", now),
		}},
		"NS-11 both": {surveyOf(hanging(deployments, "a/b", "c/d"), hanging(pods, "a/b")), []corev1.NamespaceCondition{
			condition("NamespaceContentRemaining", "True", "SomeResourcesRemain", "Some resources are remaining: deployments.apps has 2 resource instances, pods. has 1 resource instances", now),
			condition("NamespaceFinalizersRemaining", "True", "SomeFinalizersRemain", "Some content in the namespace has finalizers remaining: a/b in 2 resource instances, c/d in 1 resource instances", now),
		}},
		"NS-06 a group is down": {withDiscovery(&Incomplete{Groups: map[schema.GroupVersion]error{{Group: "metrics.k8s.io", Version: "v1beta1"}: down}}), []corev1.NamespaceCondition{
			condition("NamespaceDeletionDiscoveryFailure", "True", "DiscoveryFailed", "Discovery failed for some groups, 1 failing: unable to retrieve the complete list of server APIs: metrics.k8s.io/v1beta1: the server is currently unable to handle the request", now),
		}},
		"a group version is not well formed": {withDiscovery(&Incomplete{Unparsed: []error{errors.New("unexpected GroupVersion string: a/b/c")}}), []corev1.NamespaceCondition{
			condition("NamespaceDeletionGroupVersionParsingFailure", "True", "GroupVersionParsingFailed", "unexpected GroupVersion string: a/b/c", now),
		}},
		"a DELETE is denied": {withFailure(active(configMaps, "a")), []corev1.NamespaceCondition{
			condition("NamespaceDeletionContentFailure", "True", "ContentDeletionFailed", "Failed to delete all resource types, 1 remaining: delete configmaps a: denied", now),
			condition("NamespaceContentRemaining", "True", "SomeResourcesRemain", "Some resources are remaining: configmaps. has 1 resource instances", now),
		}},
		"a DELETE failed, the object is gone": {withFailure(Content{Resource: configMaps}), nil},
		"two types cannot be read": {surveyOf(unreadable(deployments), unreadable(configMaps)), []corev1.NamespaceCondition{
			condition("NamespaceDeletionContentFailure", "True", "ContentDeletionFailed", "Failed to delete all resource types, 2 remaining: list configmaps: broken webhook, list deployments: broken webhook", now),
		}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, _ := Conditions(nil, test.survey, now)
			if diff := cmp.Diff(replaced(allFine(now), test.want...), got); diff != "" {
				t.Errorf("conditions (-want +got):\n%s", diff)
			}
		})
	}
}

// Conditions name a hundred finalizers and a kilobyte of each error, and count the rest.
func TestConditionsAreBounded(t *testing.T) {
	content := Content{Resource: configMaps, Remaining: 1, Finalizers: map[string]int{}}
	for i := range 60_000 {
		content.Finalizers[fmt.Sprintf("example.com/finalizer-%05d", i)] = 1
	}
	survey := surveyOf(content)
	survey.failures = map[Resource]error{configMaps: errors.New(strings.Repeat("x", 1<<20))}
	conditions, _ := Conditions(nil, survey, now)
	for _, c := range conditions {
		if len(c.Message) > 10*maxText {
			t.Errorf("%s has %d bytes", c.Type, len(c.Message))
		}
		if c.Type == corev1.NamespaceFinalizersRemaining && !strings.HasSuffix(c.Message, "finalizer-00099 in 1 resource instances, more finalizers: 59900") {
			t.Errorf("the message ends with %q", c.Message[max(0, len(c.Message)-100):])
		}
	}
}
