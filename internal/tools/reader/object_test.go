package reader

import (
	"math"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/internal/tools/inventory"
)

// The managers of blocking owner references are kept, except for Kubernetes' own controllers.
func TestManagersOfBlockingReferencesAreKept(t *testing.T) {
	entry := func(manager, fields string) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Manager: manager, FieldsV1: metav1.NewFieldsV1(fields)}
	}
	const owners, labels = `{"f:metadata":{"f:ownerReferences":{}}}`, `{"f:metadata":{"f:labels":{}}}`
	fields := []metav1.ManagedFieldsEntry{
		entry("kube-controller-manager", owners), entry("operator", owners), entry("operator", owners), entry("kubectl-label", labels), {Manager: "empty"},
	}
	yes := true
	for _, test := range []struct {
		name   string
		blocks *bool
		want   []string
	}{
		{"blocking", &yes, []string{"operator"}},
		{"not blocking", nil, nil},
	} {
		meta := &metav1.ObjectMeta{
			UID: "u", Name: "x", ManagedFields: fields,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "o", UID: "o", BlockOwnerDeletion: test.blocks}},
		}
		var got []string
		if by := newConverter(&inventory.Resource{Kind: "ConfigMap"}).object(meta).SetBy; by != nil {
			got = by.Owners
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}

// A grace period that is longer than a duration can be stays long: multiplied, it would be negative, and the deletion of
// an object that is still to come would be in the past.
func TestGraceIsNeverNegative(t *testing.T) {
	meta := &metav1.ObjectMeta{UID: "u", Name: "x", DeletionGracePeriodSeconds: new(int64(math.MaxInt64))}
	if got := newConverter(&inventory.Resource{Kind: "Pod"}).object(meta).Grace; got < 291*365*24*time.Hour {
		t.Errorf("the grace period is %s", got)
	}
}

// TestWhatCannotBeListed: a resource that cannot be listed but may have objects is not ignored.
func TestWhatCannotBeListed(t *testing.T) {
	for _, test := range []struct {
		verbs []string
		want  bool
	}{
		{[]string{"create"}, false},
		{[]string{"create", "get"}, true},
		{[]string{"delete"}, true},
		{[]string{"list", "watch"}, true},
		{nil, false},
	} {
		if got := isKept(test.verbs); got != test.want {
			t.Errorf("%v: %v", test.verbs, got)
		}
	}
}
