package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

// widgets returns a custom resource of a group of the test's own.
func widgets(group string) string {
	return fmt.Sprintf(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: widgets.%[1]s
spec:
  group: %[1]s
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget, shortNames: [wi]}
  versions:
  - name: v1
    served: true
    storage: true
    additionalPrinterColumns:
    - {name: Size, type: integer, jsonPath: .spec.size}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              size: {type: integer, default: 1, description: How big the widget is.}
`, group)
}

func widget(group, name, owners string, finalizers ...string) string {
	m := fmt.Sprintf("---\napiVersion: %s/v1\nkind: Widget\nmetadata:\n  name: %s\n", group, name)
	if len(finalizers) > 0 {
		m += "  finalizers: [" + strings.Join(finalizers, ", ") + "]\n"
	}
	if owners != "" {
		m += "  ownerReferences:\n" + owners
	}
	return m + "spec: {}\n"
}

// defineWidgets creates the definition and waits until its instances are served.
func defineWidgets(t *testing.T, k kubectl, group string) {
	t.Helper()
	k.apply(t, "default", widgets(group))
	k.run(t, "wait", "--for=condition=Established", "crd/widgets."+group, "--timeout=2m")
	eventually.Agrees(t, func() string {
		if _, errs, err := k.try(t, "", "get", "-n", "default", "widgets."+group); err != nil {
			return errs
		}
		return ""
	})
	t.Cleanup(func() { k.try(t, "", "delete", "crd", "widgets."+group, "--ignore-not-found") })
}

// groupFor gives each kubectl an API group of its own: deleting and recreating a definition has a
// test of its own.
func groupFor(k kubectl, test string) string {
	return test + "." + strings.ReplaceAll(k.name, " ", "-") + ".example.com"
}

// TestCustomResources has a custom resource own core objects and the reverse.
func TestCustomResources(t *testing.T) {
	withKubectl(t, func(t *testing.T, k kubectl, _ string) {
		group := groupFor(k, "owners")
		defineWidgets(t, k, group)
		for _, policy := range []string{"background", "foreground", "orphan"} {
			t.Run("custom owns core/"+policy, func(t *testing.T) {
				t.Parallel()
				namespace := newNamespace(t, k)
				k.apply(t, namespace, widget(group, "owner", ""))
				owner := ownerOf(group+"/v1", "Widget", "owner", uidOf(t, k, namespace, "widgets."+group+"/owner"), true)
				k.apply(t, namespace, pod("dependent", owner))
				k.run(t, "delete", "-n", namespace, "widgets."+group, "owner", "--cascade="+policy)
				k.eventuallyNames(t, namespace, "widgets."+group)
				if policy == "orphan" {
					k.eventuallyNames(t, namespace, "pods", "pod/dependent")
				} else {
					k.eventuallyNames(t, namespace, "pods")
				}
			})
			t.Run("core owns custom/"+policy, func(t *testing.T) {
				t.Parallel()
				namespace := newNamespace(t, k)
				k.apply(t, namespace, configMap("owner", ""))
				owner := ownerOf("v1", "ConfigMap", "owner", uidOf(t, k, namespace, "configmap/owner"), true)
				k.apply(t, namespace, widget(group, "dependent", owner))
				k.run(t, "delete", "-n", namespace, "configmap", "owner", "--cascade="+policy)
				k.eventuallyNames(t, namespace, "configmaps")
				if policy == "orphan" {
					k.eventuallyNames(t, namespace, "widgets."+group, "widget."+group+"/dependent")
				} else {
					k.eventuallyNames(t, namespace, "widgets."+group)
				}
			})
		}
		t.Run("finalizer of its own", func(t *testing.T) {
			t.Parallel()
			namespace := newNamespace(t, k)
			k.apply(t, namespace, widget(group, "held", "", "example.com/hold"))
			k.run(t, "delete", "-n", namespace, "widgets."+group, "held", "--wait=false")
			if at := k.get(t, namespace, "widgets."+group+"/held", "{.metadata.deletionTimestamp}"); at == "" {
				t.Error("a widget with a finalizer is not marked as being deleted")
			}
			_, errs, err := k.try(t, "", "patch", "-n", namespace, "widgets."+group, "held", "--type=merge", "-p", `{"metadata":{"finalizers":["example.com/hold","example.com/late"]}}`)
			if err == nil || !strings.Contains(errs, "no new finalizers can be added if the object is being deleted") {
				t.Errorf("a finalizer was added to an object that is being deleted: %v %s", err, errs)
			}
			k.run(t, "patch", "-n", namespace, "widgets."+group, "held", "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
			k.eventuallyNames(t, namespace, "widgets."+group)
		})
	})
}

// TestCustomResourceDefinitionGoesAndComesBack deletes a definition with instances
// that own core objects, twice (CR-03).
func TestCustomResourceDefinitionGoesAndComesBack(t *testing.T) {
	withKubectl(t, func(t *testing.T, k kubectl, namespace string) {
		group := groupFor(k, "again")
		for range 2 {
			defineWidgets(t, k, group)
			k.apply(t, namespace, widget(group, "owner", ""))
			owner := ownerOf(group+"/v1", "Widget", "owner", uidOf(t, k, namespace, "widgets."+group+"/owner"), true)
			k.apply(t, namespace, configMap("dependent", owner))
			k.run(t, "delete", "crd", "widgets."+group)
			k.eventuallyNames(t, namespace, "configmaps")
		}
	})
}
