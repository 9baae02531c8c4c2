package system

import (
	"context"
	"errors"
	"fmt"
	"testing"

	storagemigrationv1 "k8s.io/api/storagemigration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
)

// TestStorageVersionMigration checks that a migration makes the server store custom resources in the current storage
// version, that the definition then says so, and that a second migration rewrites nothing.
func TestStorageVersionMigration(t *testing.T) {
	runWithPlane(t, ephemeral(t), migrateWidgets)
}

func migrateWidgets(ctx context.Context, p Plane) error {
	client, err := kubernetes.NewForConfig(p.Config)
	if err != nil {
		return err
	}
	objects, err := dynamic.NewForConfig(p.Config)
	if err != nil {
		return err
	}
	definitions, err := apiextensionsclient.NewForConfig(p.Config)
	if err != nil {
		return err
	}
	d, err := definitions.CustomResourceDefinitions().Create(ctx, widgetsDefinition(), metav1.CreateOptions{})
	if err != nil {
		return err
	}
	widgets := objects.Resource(schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}).Namespace("default")
	widget := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Widget", "metadata": map[string]any{"name": "a"}}}
	created, err := widgets.Create(ctx, widget, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	if d, err = definitions.CustomResourceDefinitions().Get(ctx, d.Name, metav1.GetOptions{}); err != nil {
		return err
	}
	d.Spec.Versions[0].Storage, d.Spec.Versions[1].Storage = false, true
	if _, err = definitions.CustomResourceDefinitions().Update(ctx, d, metav1.UpdateOptions{}); err != nil {
		return err
	}
	if err := runMigration(ctx, client, "first"); err != nil {
		return err
	}
	rewritten, err := widgets.Get(ctx, "a", metav1.GetOptions{})
	if err != nil {
		return err
	}
	if rewritten.GetResourceVersion() == created.GetResourceVersion() {
		return errors.New("the first migration has not rewritten the object")
	}
	if d, err = definitions.CustomResourceDefinitions().Get(ctx, d.Name, metav1.GetOptions{}); err != nil {
		return err
	}
	if stored := d.Status.StoredVersions; len(stored) != 1 || stored[0] != "v2" {
		return fmt.Errorf("stored versions %v, want v2; conditions %v", stored, d.Status.Conditions)
	}
	if err := runMigration(ctx, client, "second"); err != nil {
		return err
	}
	again, err := widgets.Get(ctx, "a", metav1.GetOptions{})
	if err == nil && again.GetResourceVersion() != rewritten.GetResourceVersion() {
		err = errors.New("the second migration has rewritten the object")
	}
	return err
}

// runMigration creates a migration of widgets, and waits until it has succeeded and does not run any more.
func runMigration(ctx context.Context, client kubernetes.Interface, name string) error {
	migrations := client.StoragemigrationV1().StorageVersionMigrations()
	created, err := migrations.Create(ctx, &storagemigrationv1.StorageVersionMigration{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       storagemigrationv1.StorageVersionMigrationSpec{Resource: metav1.GroupResource{Group: "example.com", Resource: "widgets"}},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	events, err := migrations.Watch(ctx, metav1.ListOptions{
		ResourceVersion: created.ResourceVersion, FieldSelector: fields.OneTermEqualSelector("metadata.name", name).String(),
	})
	if err != nil {
		return err
	}
	defer events.Stop()
	for event := range events.ResultChan() {
		m, ok := event.Object.(*storagemigrationv1.StorageVersionMigration)
		if !ok {
			return fmt.Errorf("watch: %v", event.Object)
		}
		conditions := m.Status.Conditions
		if meta.IsStatusConditionTrue(conditions, string(storagemigrationv1.MigrationFailed)) {
			return fmt.Errorf("migration %s: %v", name, conditions)
		}
		if meta.IsStatusConditionTrue(conditions, string(storagemigrationv1.MigrationSucceeded)) &&
			meta.IsStatusConditionFalse(conditions, string(storagemigrationv1.MigrationRunning)) {
			return nil
		}
	}
	return errors.New("the watch has ended")
}

// widgetsDefinition defines widgets in two versions that are stored differently only in their apiVersion.
func widgetsDefinition() *apiextensionsv1.CustomResourceDefinition {
	version := func(name string, storage bool) apiextensionsv1.CustomResourceDefinitionVersion {
		return apiextensionsv1.CustomResourceDefinitionVersion{
			Name: name, Served: true, Storage: storage,
			Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object"}},
		}
	}
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "widgets.example.com"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "example.com", Scope: apiextensionsv1.NamespaceScoped,
			Names:    apiextensionsv1.CustomResourceDefinitionNames{Plural: "widgets", Singular: "widget", Kind: "Widget", ListKind: "WidgetList"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{version("v1", true), version("v2", false)},
		},
	}
}
