package apiserver_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/coppice-dev/coppice/internal/apiserver/auth/bootstrappolicy"
	"github.com/coppice-dev/coppice/internal/rules/protection"
	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

// manifest is an object of a test: its collection, and its content in YAML. NS stands for the namespace of the test, and ID
// for a name without one.
type manifest struct{ collection, content string }

// TestR28_UsedObjectsStay: an object in mode unused is deleted when the last object that needs it is gone, and not before,
// neither by a user nor by a cascade.
func TestR28_UsedObjectsStay(t *testing.T) {
	s := sharedServer(t)
	const pod = "{metadata: {name: user}, spec: {containers: [{name: c, image: i}], "
	for name, test := range map[string]struct {
		used, user manifest
		by         string // in the refusal
	}{
		"Secret of a pod": {
			manifest{"/api/v1/namespaces/NS/secrets", "{metadata: {name: used}}"},
			manifest{"/api/v1/namespaces/NS/pods", pod + "volumes: [{name: v, secret: {secretName: used}}]}}"},
			"Pod NS/user (spec.volumes[0].secret.secretName)",
		},
		"ConfigMap of a template": {
			manifest{"/api/v1/namespaces/NS/configmaps", "{metadata: {name: used}}"},
			manifest{"/apis/apps/v1/namespaces/NS/deployments", `{metadata: {name: user}, spec: {selector: {matchLabels: {app: a}}, template: {metadata: {labels: {app: a}},
				spec: {containers: [{name: c, image: i, envFrom: [{configMapRef: {name: used}}]}]}}}}`},
			"Deployment.apps NS/user (spec.template.spec.containers[0].envFrom[0].configMapRef.name)",
		},
		"volume claim": {
			manifest{"/api/v1/namespaces/NS/persistentvolumeclaims", "{metadata: {name: used}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}"},
			manifest{"/api/v1/namespaces/NS/pods", pod + "volumes: [{name: v, persistentVolumeClaim: {claimName: used}}]}}"},
			"Pod NS/user (spec.volumes[0].persistentVolumeClaim.claimName)",
		},
		"class of a claim": {
			manifest{"/apis/storage.k8s.io/v1/storageclasses", "{metadata: {name: ID}, provisioner: acme.io/disk}"},
			manifest{"/api/v1/namespaces/NS/persistentvolumeclaims", "{metadata: {name: user}, spec: {storageClassName: ID, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}"},
			"PersistentVolumeClaim NS/user (spec.storageClassName)",
		},
		"role of a binding": {
			manifest{"/apis/rbac.authorization.k8s.io/v1/namespaces/NS/roles", "{metadata: {name: used}}"},
			manifest{"/apis/rbac.authorization.k8s.io/v1/namespaces/NS/rolebindings", "{metadata: {name: user}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: used}}"},
			"RoleBinding.rbac.authorization.k8s.io NS/user (roleRef)",
		},
		"Secret of a volume, in no namespace": {
			manifest{"/api/v1/namespaces/NS/secrets", "{metadata: {name: used}}"},
			manifest{"/api/v1/persistentvolumes", `{metadata: {name: ID}, spec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce],
				csi: {driver: acme.io, volumeHandle: v, nodeStageSecretRef: {name: used, namespace: NS}}}}`},
			"PersistentVolume ID (spec.csi.nodeStageSecretRef.name)",
		},
		"Service of a webhook": {
			manifest{"/api/v1/namespaces/NS/services", "{metadata: {name: used}, spec: {ports: [{port: 443}]}}"},
			manifest{"/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations", `{metadata: {name: ID}, webhooks: [{name: a.acme.io, sideEffects: None, admissionReviewVersions: [v1],
				failurePolicy: Ignore, rules: [], clientConfig: {service: {namespace: NS, name: used}}}]}`},
			"ValidatingWebhookConfiguration.admissionregistration.k8s.io ID (webhooks[0].clientConfig.service.name)",
		},
		"Service of a conversion": {
			manifest{"/api/v1/namespaces/NS/services", "{metadata: {name: used}, spec: {ports: [{port: 443}]}}"},
			manifest{"/apis/apiextensions.k8s.io/v1/customresourcedefinitions", `{metadata: {name: widgets.ID.io}, spec: {group: ID.io, scope: Namespaced, names: {plural: widgets, singular: widget, kind: Widget, listKind: WidgetList},
				conversion: {strategy: Webhook, webhook: {conversionReviewVersions: [v1], clientConfig: {service: {namespace: NS, name: used}}}},
				versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]}}`},
			"CustomResourceDefinition.apiextensions.k8s.io widgets.ID.io (spec.conversion.webhook.clientConfig.service.name)",
		},
		"Service of an APIService": {
			manifest{"/api/v1/namespaces/NS/services", "{metadata: {name: used}, spec: {ports: [{port: 443}]}}"},
			manifest{"/apis/apiregistration.k8s.io/v1/apiservices", `{metadata: {name: v1.ID.io}, spec: {group: ID.io, version: v1, groupPriorityMinimum: 10, versionPriority: 10, insecureSkipTLSVerify: true,
				service: {namespace: NS, name: used}}}`},
			"APIService.apiregistration.k8s.io v1.ID.io (spec.service.name)",
		},
		"content of a namespace": {
			manifest{"/api/v1/namespaces", "{metadata: {name: ID}}"},
			manifest{"/api/v1/namespaces/ID/configmaps", "{metadata: {name: user}}"},
			"ConfigMap ID/user",
		},
		"instance of a definition": {
			manifest{"/apis/apiextensions.k8s.io/v1/customresourcedefinitions", `{metadata: {name: widgets.ID.io}, spec: {group: ID.io, scope: Namespaced, names: {plural: widgets, singular: widget, kind: Widget, listKind: WidgetList},
				versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]}}`},
			manifest{"/apis/ID.io/v1/namespaces/NS/widgets", "{apiVersion: ID.io/v1, kind: Widget, metadata: {name: user}}"},
			"Widget.ID.io NS/user",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			names := strings.NewReplacer("NS", s.namespace(t), "ID", unique("id"))
			client := s.client(t)
			used := post(t, client, names, test.used, map[string]string{protection.Label: "unused"})
			user := post(t, client, names, test.user, nil)
			want := "it is in use by " + names.Replace(test.by)
			eventually.Agrees(t, func() string { // a definition of another test may go while the contents of the namespace are listed
				_, err := client.send(http.MethodDelete, used, "", nil)
				switch {
				case !apierrors.HasStatusCause(err, protection.Cause):
					t.Fatalf("deleted while in use: %v, want %s", err, want)
				case !strings.Contains(err.Error(), want):
					return fmt.Sprintf("%v, want %s", err, want)
				}
				return ""
			})
			collector, err := newClient(s.acting(bootstrappolicy.Collector))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := collector.send(http.MethodDelete, used, "", nil); !apierrors.HasStatusCause(err, protection.Cause) || strings.Contains(err.Error(), "/user") {
				t.Errorf("the answer to a cascade is %v", err)
			}
			if _, err := client.send(http.MethodDelete, user+"?gracePeriodSeconds=0", "", nil); err != nil {
				t.Fatal(err)
			}
			// No controller of this server ends the protection of volumes and claims.
			if _, err := client.send(http.MethodPatch, user, string(types.MergePatchType), mergeFinalizers()); err != nil && !apierrors.IsNotFound(err) {
				t.Fatal(err)
			}
			eventually.Succeeds(t, func() error {
				_, err := client.send(http.MethodDelete, used, "", nil)
				return err
			})
		})
	}
}

// post creates an object with labels, and returns its path.
func post(t *testing.T, client *client, names *strings.Replacer, m manifest, labels map[string]string) (path string) {
	t.Helper()
	o := &object{}
	if err := yaml.Unmarshal([]byte(names.Replace(m.content)), &o.Object); err != nil {
		t.Fatal(err)
	}
	o.SetLabels(labels)
	path = names.Replace(m.collection)
	eventually.Succeeds(t, func() error { // a definition is established in a moment
		_, err := client.send(http.MethodPost, path, "application/json", o.Object)
		return err
	})
	return path + "/" + o.GetName()
}

// TestR28_WhoMayNotListUsersLearnsNoNames: the object stays all the same.
func TestR28_WhoMayNotListUsersLearnsNoNames(t *testing.T) {
	s := sharedServer(t)
	client, namespace := s.client(t), s.namespace(t)
	names := strings.NewReplacer("NS", namespace)
	used := post(t, client, names, manifest{"/api/v1/namespaces/NS/secrets", "{metadata: {name: used}}"}, map[string]string{protection.Label: "unused"})
	post(t, client, names, manifest{"/api/v1/namespaces/NS/serviceaccounts", "{metadata: {name: user}, imagePullSecrets: [{name: used}]}"}, nil)
	user, role := unique("user"), unique("secrets")
	_, err := typed(t, s.config).RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: role}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"secrets", "pods"}, Verbs: []string{"*"}},
	}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s.bind(t, namespace, role, user)
	acting, err := newClient(s.acting(user))
	if err != nil {
		t.Fatal(err)
	}
	_, err = acting.send(http.MethodDelete, used, "", nil)
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "in use by objects that you may not list;") {
		t.Error(err)
	}
}

// TestR28_CreationRacesDeletionOfUnused: of a creation in a namespace, or of an instance, and the deletion of the unused
// namespace, or definition, exactly one succeeds. COPPICE_TEST_RACES makes it longer (make races).
func TestR28_CreationRacesDeletionOfUnused(t *testing.T) {
	s := sharedServer(t)
	unused := map[string]string{protection.Label: "unused"}
	namespace := s.namespace(t)
	for name, begin := range map[string]func(name string) (container, contents collection){
		"namespace": func(name string) (container, contents collection) {
			namespaces := s.namespaces(t)
			o := namespaces.named(name)
			o.SetLabels(unused)
			namespaces.post(o)
			return namespaces, s.configMaps(t, name)
		},
		"definition": func(name string) (container, contents collection) {
			d := definition(name+".io", "things", "Thing")
			d["metadata"].(map[string]any)["labels"] = map[string]any{protection.Label: "unused"}
			s.define(t, d)
			return s.definitions(t), s.collection(t, gvk(name+".io", "v1", "Thing"), "things", namespace, nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			var outcomes tally
			race(t, &outcomes, []string{"created", "deleted"}, func(name string, turn int) {
				container, contents := begin(name)
				self := name
				if contents.resource.Resource == "things" {
					self = "things." + name + ".io"
				}
				var created, deleted error
				concurrently(turn,
					func() { _, created = contents.tryPost(contents.named(name)) },
					func() { _, deleted = container.remove(self, nil) })
				switch {
				case created == nil && apierrors.HasStatusCause(deleted, protection.Cause):
					outcomes.add("created")
					contents.mustRemove(name, nil)
					eventually.Succeeds(t, func() error {
						_, err := container.remove(self, nil)
						return err
					})
				case created != nil && deleted == nil:
					outcomes.add("deleted")
				default:
					t.Errorf("%s: the creation got %v, the deletion %v", name, created, deleted)
				}
			})
		})
	}
}

// TestR21_NoInstanceOfADefinitionThatGoes: from the moment at which a definition is marked, no instance can be created, although
// a server that learns of it later would still serve the kind.
func TestR21_NoInstanceOfADefinitionThatGoes(t *testing.T) {
	s := sharedServer(t)
	name, instances := s.things(t)
	for i := range 20 {
		instances.create(fmt.Sprintf("early-%d", i), foreign)
	}
	crds := s.definitions(t)
	crds.mustRemove(name, nil)
	_, err := instances.tryPost(instances.named("late"))
	if !apierrors.IsForbidden(err) && !apierrors.IsNotFound(err) {
		t.Errorf("the answer to the creation is %v", err)
	}
	for _, o := range instances.names() {
		if _, err := instances.patch(o, types.MergePatchType, mergeFinalizers()); err != nil {
			t.Error(err)
		}
	}
}
