package storageversionmigrator

import (
	"context"
	"encoding/json"
	"fmt"

	storagemigrationv1 "k8s.io/api/storagemigration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// definitionManager owns the fields in the status of CustomResourceDefinitions. It has upstream's name.
const definitionManager = "migration-runner-controller"

// markDefinition makes the definition of a custom resource say that a migration runs, and remember the generation with
// which it began.
func (c *reconciler) markDefinition(ctx context.Context, m *storagemigrationv1.StorageVersionMigration) error {
	definition, err := c.definitionOf(ctx, m.Spec.Resource)
	if err != nil || definition == nil {
		return err
	}
	return c.applyStatus(ctx, definition, apiextensionsv1.CustomResourceDefinitionCondition{
		Type: apiextensionsv1.StorageMigrating, Status: apiextensionsv1.ConditionTrue, Reason: reasonRunning,
		Message: fmt.Sprintf("Migration %s is running", m.Name), ObservedGeneration: definition.Generation,
	}, nil)
}

// finishDefinition makes the definition of a custom resource say how the migration ended. If it has succeeded, and the
// definition has not changed since it began, the only stored version is the storage version.
func (c *reconciler) finishDefinition(ctx context.Context, m *storagemigrationv1.StorageVersionMigration) error {
	definition, err := c.definitionOf(ctx, m.Spec.Resource)
	if err != nil || definition == nil {
		return err
	}
	ended := apiextensionsv1.CustomResourceDefinitionCondition{
		Type: apiextensionsv1.StorageMigrating, Status: apiextensionsv1.ConditionFalse, ObservedGeneration: definition.Generation,
	}
	var stored []string
	switch {
	case !is(m, storagemigrationv1.MigrationSucceeded):
		ended.Reason, ended.Message = "MigrationFailed", "The migration has failed"
	case beganWith(definition) != definition.Generation:
		ended.Reason = "MigrationSucceeded"
		ended.Message = "The migration has succeeded but the stored versions have not been updated due to a generation mismatch"
	default:
		ended.Reason, ended.Message = "MigrationSucceeded", "The migration has succeeded and the stored versions have been updated"
		stored = []string{storageVersionOf(definition)}
	}
	return c.applyStatus(ctx, definition, ended, stored)
}

// beganWith returns the generation with which the running migration began, or a negative number.
func beganWith(definition *apiextensionsv1.CustomResourceDefinition) int64 {
	for _, c := range definition.Status.Conditions {
		if c.Type == apiextensionsv1.StorageMigrating {
			return c.ObservedGeneration
		}
	}
	return -1
}

func storageVersionOf(definition *apiextensionsv1.CustomResourceDefinition) string {
	for _, v := range definition.Spec.Versions {
		if v.Storage {
			return v.Name
		}
	}
	return ""
}

// definitionOf returns the definition of a custom resource, or nil.
func (c *reconciler) definitionOf(ctx context.Context, resource metav1.GroupResource) (*apiextensionsv1.CustomResourceDefinition, error) {
	if resource.Group == "" {
		return nil, nil
	}
	definition, err := c.Definitions.CustomResourceDefinitions().Get(ctx, resource.String(), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read the CustomResourceDefinition %s: %w", resource.String(), err)
	}
	return definition, nil
}

// applyStatus applies a condition and, unless nil, the stored versions, to the definition as it was read.
func (c *reconciler) applyStatus(
	ctx context.Context, definition *apiextensionsv1.CustomResourceDefinition, condition apiextensionsv1.CustomResourceDefinitionCondition, stored []string,
) error {
	condition.LastTransitionTime = metav1.NewTime(c.Now())
	status := map[string]any{"conditions": []any{condition}}
	if stored != nil {
		status["storedVersions"] = stored
	}
	patch, err := json.Marshal(map[string]any{
		"apiVersion": apiextensionsv1.SchemeGroupVersion.String(), "kind": "CustomResourceDefinition", "status": status,
		"metadata": map[string]any{"name": definition.Name, "uid": definition.UID, "resourceVersion": definition.ResourceVersion},
	})
	if err != nil {
		return fmt.Errorf("encode the status: %w", err)
	}
	force := true
	_, err = c.Definitions.CustomResourceDefinitions().Patch(ctx, definition.Name, types.ApplyPatchType, patch,
		metav1.PatchOptions{FieldManager: definitionManager, Force: &force}, "status")
	if err != nil {
		return fmt.Errorf("write the status of the CustomResourceDefinition %s: %w", definition.Name, err)
	}
	return nil
}
