package builtin

import (
	"strings"

	storagemigrationv1 "k8s.io/api/storagemigration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coppice-dev/coppice/internal/apiserver/registry"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/table"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/validate"
)

func storageMigrationGroup() registry.Group {
	return registry.Group{
		GroupVersion: storagemigrationv1.SchemeGroupVersion,
		AddToScheme:  storagemigrationv1.AddToScheme,
		Resources:    []registry.Resource{storageVersionMigrations()},
	}
}

// storageVersionMigrations ask for all objects of a resource to be written anew, so that they are stored in its current
// storage version.
func storageVersionMigrations() registry.Resource {
	type migration = storagemigrationv1.StorageVersionMigration
	return registry.Define[migration, storagemigrationv1.StorageVersionMigrationList](registry.Resource{
		GroupVersion: storagemigrationv1.SchemeGroupVersion,
		Kind:         "StorageVersionMigration",
		Plural:       "storageversionmigrations",
		ValidateName: apivalidation.NameIsDNSSubdomain,
	}, []table.Column{
		table.Text("Resource", "The resource whose objects are written.", func(m *migration) string { return m.Spec.Resource.String() }),
		table.Text("Status", "How far the migration is.", migrationText),
	}, registry.Strategy[*migration]{
		Validate: func(m *migration) field.ErrorList {
			return validateMigrated(m.Spec.Resource, field.NewPath("spec", "resource"))
		},
		ValidateUpdate: func(m, old *migration) field.ErrorList {
			return validate.Immutable(m.Spec, old.Spec, field.NewPath("spec"))
		},
		CopyStatus:           registry.CopyField(func(m *migration) *storagemigrationv1.StorageVersionMigrationStatus { return &m.Status }),
		ValidateStatusUpdate: validateMigrationStatus,
	})
}

func migrationText(m *storagemigrationv1.StorageVersionMigration) string {
	text := "Unknown"
	for _, c := range m.Status.Conditions {
		switch storagemigrationv1.MigrationConditionType(c.Type) {
		case storagemigrationv1.MigrationRunning, storagemigrationv1.MigrationFailed, storagemigrationv1.MigrationSucceeded:
			if c.Status == metav1.ConditionTrue {
				text = c.Type
			}
		}
	}
	return text
}

// validateMigrated checks the name of the resource of a migration.
func validateMigrated(r metav1.GroupResource, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if r.Resource == "" {
		errs = append(errs, field.Required(at.Child("resource"), "resource is required to be set"))
	} else if complaints := validation.IsDNS1035Label(r.Resource); len(complaints) > 0 {
		errs = append(errs, field.Invalid(at.Child("resource"), r.Resource, strings.Join(complaints, ",")))
	}
	if r.Group != "" {
		if complaints := validation.IsDNS1123Subdomain(r.Group); len(complaints) > 0 {
			errs = append(errs, field.Invalid(at.Child("group"), r.Group, strings.Join(complaints, ",")))
		}
	}
	return errs
}

// validateMigrationStatus checks that a migration that has ended stays so, and that it ends in one way.
func validateMigrationStatus(m, old *storagemigrationv1.StorageVersionMigration) field.ErrorList {
	version, conditions := field.NewPath("status", "resourceVersion"), field.NewPath("status", "conditions")
	var errs field.ErrorList
	if v := m.Status.ResourceVersion; v != "" {
		if _, err := resourceversion.CompareResourceVersion(v, v); err != nil {
			errs = append(errs, field.Invalid(version, v, err.Error()))
		}
	}
	errs = append(errs, metav1validation.ValidateConditions(m.Status.Conditions, conditions)...)
	if was := old.Status.ResourceVersion; was != "" && was != m.Status.ResourceVersion {
		errs = append(errs, field.Invalid(version, m.Status.ResourceVersion, "field is immutable"))
	}
	invalid := func(detail string) { errs = append(errs, field.Invalid(conditions, m.Status.Conditions, detail)) }
	is := func(of *storagemigrationv1.StorageVersionMigration, t storagemigrationv1.MigrationConditionType) bool {
		return meta.IsStatusConditionTrue(of.Status.Conditions, string(t))
	}
	const succeeded, failed = storagemigrationv1.MigrationSucceeded, storagemigrationv1.MigrationFailed
	if is(m, succeeded) && is(m, failed) {
		invalid("Both success and failed conditions cannot be true at the same time")
	}
	if is(old, succeeded) && !is(m, succeeded) {
		invalid("Success condition cannot be set to false once it is true")
	}
	if is(old, failed) && !is(m, failed) {
		invalid("Failed condition cannot be set to false once it is true")
	}
	return errs
}
