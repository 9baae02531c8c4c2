package storageversionmigrator

import (
	"errors"
	"testing"
	"time"

	storagemigrationv1 "k8s.io/api/storagemigration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// migration returns a migration that was made some seconds after the epoch, with true conditions.
func migration(name string, second int, version string, conditions ...storagemigrationv1.MigrationConditionType) *storagemigrationv1.StorageVersionMigration {
	m := &storagemigrationv1.StorageVersionMigration{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, UID: types.UID("uid-of-" + name), ResourceVersion: "7", CreationTimestamp: metav1.NewTime(epoch.Add(time.Duration(second) * time.Second)),
		},
		Spec:   storagemigrationv1.StorageVersionMigrationSpec{Resource: metav1.GroupResource{Group: "example.com", Resource: "widgets"}},
		Status: storagemigrationv1.StorageVersionMigrationStatus{ResourceVersion: version},
	}
	for _, t := range conditions {
		m.Status.Conditions = append(m.Status.Conditions, condition(t, "A", ""))
	}
	return m
}

const (
	running   = storagemigrationv1.MigrationRunning
	succeeded = storagemigrationv1.MigrationSucceeded
	failed    = storagemigrationv1.MigrationFailed
)

func TestDecide(t *testing.T) {
	terminating := migration("a", 1, "")
	terminating.DeletionTimestamp = new(metav1.NewTime(epoch))
	for name, test := range map[string]struct {
		m      *storagemigrationv1.StorageVersionMigration
		others []*storagemigrationv1.StorageVersionMigration
		want   Step
	}{
		"new":                         {migration("a", 1, ""), nil, Start},
		"an older one waits, too":     {migration("a", 1, ""), []*storagemigrationv1.StorageVersionMigration{migration("b", 0, "")}, Wait},
		"a younger one waits, too":    {migration("a", 1, ""), []*storagemigrationv1.StorageVersionMigration{migration("b", 2, "")}, Start},
		"one of the same age, before": {migration("b", 1, ""), []*storagemigrationv1.StorageVersionMigration{migration("a", 1, "")}, Wait},
		"one of the same age, behind": {migration("a", 1, ""), []*storagemigrationv1.StorageVersionMigration{migration("b", 1, "")}, Start},
		"a younger one runs":          {migration("a", 1, ""), []*storagemigrationv1.StorageVersionMigration{migration("b", 2, "", running)}, Wait},
		"one that has to finish":      {migration("a", 1, ""), []*storagemigrationv1.StorageVersionMigration{migration("b", 0, "3", running, succeeded)}, Wait},
		"an older one has ended":      {migration("a", 1, ""), []*storagemigrationv1.StorageVersionMigration{migration("b", 0, "3", succeeded)}, Start},
		"an older one has failed":     {migration("a", 1, ""), []*storagemigrationv1.StorageVersionMigration{migration("b", 0, "3", failed)}, Start},
		"an older one is deleted":     {migration("b", 2, ""), []*storagemigrationv1.StorageVersionMigration{terminating}, Start},
		"deleted before it began":     {terminating, nil, Wait},
		"runs":                        {migration("a", 1, "", running), nil, Observe},
		"runs, with a version":        {migration("a", 1, "3", running), nil, Migrate},
		"has succeeded":               {migration("a", 1, "3", running, succeeded), nil, Finish},
		"has failed":                  {migration("a", 1, "3", running, failed), nil, Finish},
		"has failed at once":          {migration("a", 1, "", failed), nil, Wait},
		"is finished":                 {migration("a", 1, "3", succeeded), nil, Wait},
	} {
		all := append(test.others, test.m)
		if got := Decide(test.m, all); got != test.want {
			t.Errorf("%s: %d, want %d", name, got, test.want)
		}
	}
}

// TestTextsOfConditionsEnqueueNothing: a migration that could not rewrite an object writes why, and goes on after a back-off.
// Its own write must not end that. Changes that lead to another step do.
func TestTextsOfConditionsEnqueueNothing(t *testing.T) {
	before := migration("a", 1, "3", running)
	for name, test := range map[string]struct {
		change func(m *storagemigrationv1.StorageVersionMigration)
		want   bool
	}{
		"another failure": {func(m *storagemigrationv1.StorageVersionMigration) {
			m.ResourceVersion, m.Status.Conditions[0].Message = "8", progress(2, 3, errors.New("read tcp 10.1.2.3:41234: connection reset"))
		}, true},
		"success": {func(m *storagemigrationv1.StorageVersionMigration) {
			m.Status.Conditions = append(m.Status.Conditions, condition(succeeded, "A", ""))
		}, false},
		"it does not run": {func(m *storagemigrationv1.StorageVersionMigration) {
			m.Status.Conditions[0].Status = metav1.ConditionFalse
		}, false},
		"a version":           {func(m *storagemigrationv1.StorageVersionMigration) { m.Status.ResourceVersion = "4" }, false},
		"a deletion":          {func(m *storagemigrationv1.StorageVersionMigration) { m.DeletionTimestamp = new(metav1.NewTime(epoch)) }, false},
		"another one":         {func(m *storagemigrationv1.StorageVersionMigration) { m.UID = "other" }, false},
		"one of another kind": {func(m *storagemigrationv1.StorageVersionMigration) { m.Spec.Resource.Resource = "gadgets" }, false},
	} {
		now := before.DeepCopy()
		test.change(now)
		if got := sameStep(before, now); got != test.want {
			t.Errorf("%s: %t, want %t", name, got, test.want)
		}
	}
}

func TestOlderObjectsAreRewritten(t *testing.T) {
	found, err := older([]storedObject{{version: "9"}, {version: "10"}, {version: "11"}}, "10")
	if err != nil || len(found) != 2 || found[0].version != "9" || found[1].version != "10" {
		t.Errorf("%v (%v), want 9 and 10", found, err)
	}
	if _, err := older([]storedObject{{version: "x"}}, "10"); err == nil {
		t.Error("x is a resource version")
	}
}

func TestProgress(t *testing.T) {
	for _, test := range []struct {
		left, total int
		err         error
		want        string
	}{
		{0, 0, nil, "The migration is running"},
		{2, 3, nil, "The migration is running, 2/3 objects not yet migrated"},
		{0, 3, nil, "The migration is running, 3 objects verified migrated"},
		{2, 3, errors.New("busy"), "The migration is running, 2/3 objects not yet migrated; transient error: busy"},
	} {
		if got := progress(test.left, test.total, test.err); got != test.want {
			t.Errorf("%q, want %q", got, test.want)
		}
	}
}
