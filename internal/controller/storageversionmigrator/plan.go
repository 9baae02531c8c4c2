// Package storageversionmigrator rewrites all objects of a resource, so that they are stored in its current storage
// version. A StorageVersionMigration asks for it.
//
//	migration, others of its resource ──▶ plan.go: start, observe, migrate, finish, or wait
//	    start    ──▶ Running; only one migration of a resource runs at a time
//	    observe  ──▶ status.resourceVersion: objects that change after it are written in the new version anyway
//	    migrate  ──▶ an empty patch of each older object, then Succeeded or Failed
//	    finish   ──▶ no longer Running
//
// Of a custom resource, the CustomResourceDefinition says that a migration runs, and which versions are stored after it.
// If the definition has changed meanwhile, the stored versions stay: objects may have been written in another one.
package storageversionmigrator

import (
	"cmp"
	"fmt"

	storagemigrationv1 "k8s.io/api/storagemigration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// The reasons of the conditions, as in Kubernetes.
const (
	reasonRunning   = "MigrationRunning"
	reasonCompleted = "MigrationCompleted"
	reasonSucceeded = "StorageVersionMigrationSucceeded"
	reasonFailed    = "StorageVersionMigrationFailed"
)

// Step is the next step of a migration.
type Step int

const (
	// Wait means that no step is due.
	Wait Step = iota
	// Start marks the migration as running.
	Start
	// Observe records the resource version from which on objects need not be rewritten.
	Observe
	// Migrate rewrites the objects.
	Migrate
	// Finish ends a migration that has succeeded or failed.
	Finish
)

// Decide returns the next step of a migration. all are the migrations of the same resource, with or without it.
func Decide(m *storagemigrationv1.StorageVersionMigration, all []*storagemigrationv1.StorageVersionMigration) Step {
	running, ended := is(m, storagemigrationv1.MigrationRunning), hasEnded(m)
	switch {
	case m.DeletionTimestamp != nil && !ended && !running:
		return Wait
	case ended && running:
		return Finish
	case ended:
		return Wait
	case !running && isNext(m, all):
		return Start
	case !running:
		return Wait
	case m.Status.ResourceVersion == "":
		return Observe
	}
	return Migrate
}

// isNext reports whether a migration may start: none of the same resource runs, and none is older.
func isNext(m *storagemigrationv1.StorageVersionMigration, all []*storagemigrationv1.StorageVersionMigration) bool {
	for _, other := range all {
		switch {
		case other.UID == m.UID:
		case is(other, storagemigrationv1.MigrationRunning):
			return false
		case hasEnded(other) || other.DeletionTimestamp != nil:
		case cmp.Or(other.CreationTimestamp.Compare(m.CreationTimestamp.Time), cmp.Compare(other.Name, m.Name)) < 0:
			return false
		}
	}
	return true
}

func is(m *storagemigrationv1.StorageVersionMigration, t storagemigrationv1.MigrationConditionType) bool {
	return meta.IsStatusConditionTrue(m.Status.Conditions, string(t))
}

func hasEnded(m *storagemigrationv1.StorageVersionMigration) bool {
	return is(m, storagemigrationv1.MigrationSucceeded) || is(m, storagemigrationv1.MigrationFailed)
}

// condition returns a true condition of a type.
func condition(t storagemigrationv1.MigrationConditionType, reason, message string) metav1.Condition {
	return metav1.Condition{Type: string(t), Status: metav1.ConditionTrue, Reason: reason, Message: message}
}

// storedObject is the part of an object that a patch needs. A migration keeps it for each object of the resource.
type storedObject struct {
	namespace, name string
	uid             types.UID
	version         string // the resource version
}

// older returns the objects that have not been written since a resource version.
func older(all []storedObject, version string) ([]storedObject, error) {
	var found []storedObject
	for _, o := range all {
		order, err := resourceversion.CompareResourceVersion(o.version, version)
		if err != nil {
			return nil, fmt.Errorf("compare the resource version of %s: %w", o.name, err)
		}
		if order <= 0 {
			found = append(found, o)
		}
	}
	return found, nil
}

// progress returns the message of a running migration.
func progress(left, total int, err error) string {
	text := "The migration is running"
	switch {
	case total == 0:
	case left > 0:
		text += fmt.Sprintf(", %d/%d objects not yet migrated", left, total)
	default:
		text += fmt.Sprintf(", %d objects verified migrated", total)
	}
	if err != nil {
		text += fmt.Sprintf("; transient error: %v", err)
	}
	return text
}
