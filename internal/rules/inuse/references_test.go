package inuse

import (
	"encoding/json"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// notNeeds are the fields that look as if they named an object that is needed, with the reason why they are not in the
// table: patterns of "Kind.field".
var notNeeds = []struct{ fields, reason string }{
	{`\.status\.`, "a status reports what was observed"},
	{`^(Event|Endpoints|EndpointSlice|CSINode|CSIStorageCapacity|ResourceSlice|Lease|ComponentStatus)\.`, "it reports the state of something else, and goes with that"},
	{`^(Binding|TokenRequest|\w+Review|Scale|Eviction|NodeProxyOptions|PodStatusResult|SerializedReference|RangeAllocation)\.`, "it is not stored"},
	{`^(PodCertificateRequest|CertificateSigningRequest|ClusterTrustBundle)\.`, "it names who asked, who is to sign, and what for"},
	{`^IPAddress\.spec\.parentRef`, "the address is the Service's, which does not need it"},
	{`^PersistentVolume\.spec\.claimRef`, "the claim needs the volume, and not the volume the claim"},
	{`\.(dataSource|dataSourceRef)`, "it is read once, when the volume is made"},
	{`^VolumeAttachment\.spec\.source\.inlineVolumeSpec`, "it is a copy of a volume of a pod"},
	{`^Node\.spec\.(configSource|externalID|providerID)`, "no node acts on it"},
	{`\.subjects\.`, "a binding gives rights to its subjects, and works without them"},
	{`\.resourceNames$`, "the names in a rule are rights"},
	{`\.paramRef\.`, "the kind is in another object, the policy"},
	{`\.serviceAccount$`, "an old name of serviceAccountName, which the server sets, too"},
	{`\.schedulingGroup\.`, "its kind is not served by default"},
	{`\.(signerName|hostname|schedulerName|containerName|targetContainerName|initiatorName|diskName|shareName|pdName|storagePolicyName|datasetName|runAsUserName|gmsaCredentialSpecName|loadBalancerClass|externalName|apiVersion|fieldRef|resourceFieldRef|extendedResourceName|interfaceName)$`, "it names something else than an object of the API"},
	{`\.(fieldRef|resourceFieldRef|fileKeyRef|configMapKeyRef|secretKeyRef)\.(apiVersion|containerName|volumeName|resource|key|path|fieldPath)$`, "it names a part of the object"},
	{`\.(scaleIO|storageos)\.(volumeName|volumeNamespace)$|\.flexVolume\.driver$`, "it names something of the storage"},
	{`\.csi\.(volumeHandle|fsType)$|\.opaque\.driver$|\.image\.reference$`, "it names something of a driver"},
	{`\.deviceSelector\.driver$|\.scopeName$|\.resourceName$|\.shortNames$|\.openAPIV3Schema\.`, "it selects or describes something else than an object"},
	{`\.port\.name$|\.metrics\.(resource|containerResource)\.name$`, "it is the name of a port or of a metric"},
	{`\.hostAliases\.hostnames|\.hostnameOverride$|\.nameservers$`, "it names hosts"},
}

// looksLikeAName reports whether a field of a type may name an object. A field that is only called name has the name of a part,
// such as a container, except in a type that is about another object.
func looksLikeAName(in reflect.Type, field string) bool {
	if field == "name" || field == "names" {
		return regexp.MustCompile(`Ref|Backend|Source|Projection|Subject|Target`).MatchString(in.Name())
	}
	return regexp.MustCompile(`(?i)(name|names|ref|class|account|driver|provisioner|attacher|reference|endpoints)$`).MatchString(field)
}

// TestReferencesAreInTheTable compares the table with the types of all kinds: a field that looks like the name of an object
// is in the table, or in notNeeds with a reason; and a row of the table is a field.
func TestReferencesAreInTheTable(t *testing.T) {
	unused := map[string]bool{}
	for i := range notNeeds {
		unused[notNeeds[i].fields] = true
	}
	covered, all := map[string]bool{}, ReadFields()
	for kind, typ := range kindsOfAPI() {
		walk(typ, nil, nil, func(path []string, in reflect.Type) {
			field := kind.Kind + "." + strings.Join(path, ".")
			got := all.References(kind.GroupKind(), "here", sample(path).(map[string]any))
			switch {
			case len(got) > 0:
				covered[field] = true
				if want := strings.Join(path, "."); !strings.HasPrefix(want, strings.NewReplacer("[0]", "").Replace(got[0].Field)) {
					t.Errorf("%s is found as %s", field, got[0].Field)
				}
			case looksLikeAName(in, path[len(path)-1]):
				i := slices.IndexFunc(notNeeds, func(n struct{ fields, reason string }) bool { return regexp.MustCompile(n.fields).MatchString(field) })
				if i < 0 {
					t.Errorf("%s (in %s) may name an object: put it into references.txt, or into notNeeds with the reason", field, in)
					return
				}
				delete(unused, notNeeds[i].fields)
			}
		})
	}
	for fields := range unused {
		t.Errorf("no field matches %s any more: remove it from notNeeds", fields)
	}
	for kind, root := range all.kinds {
		for _, path := range root.paths() {
			if field := kind.Kind + "." + path; !covered[field] && !covered[field+".name"] {
				t.Errorf("references.txt has %s of %s, which is no field", path, kind)
			}
		}
	}
}

// paths returns the paths of all references below a node.
func (n *node) paths() (all []string) {
	for field := range n.targets {
		all = append(all, field)
	}
	for field, child := range n.children {
		for _, path := range child.paths() {
			all = append(all, field+"."+path)
		}
	}
	for _, also := range n.also {
		all = append(all, also.paths()...)
	}
	return all
}

// kindsOfAPI returns the types of all stable kinds. Others are not served by default.
func kindsOfAPI() map[schema.GroupVersionKind]reflect.Type {
	kinds := map[schema.GroupVersionKind]reflect.Type{
		{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}: reflect.TypeFor[apiextensionsv1.CustomResourceDefinition](),
		{Group: "apiregistration.k8s.io", Version: "v1", Kind: "APIService"}:             reflect.TypeFor[apiregistrationv1.APIService](),
	}
	for gvk, typ := range scheme.Scheme.AllKnownTypes() {
		_, hasMetadata := typ.FieldByName("ObjectMeta")
		if hasMetadata && !strings.Contains(gvk.Version, "alpha") && !strings.Contains(gvk.Version, "beta") {
			kinds[gvk] = typ
		}
	}
	return kinds
}

// walk calls found for each field with text: its path of JSON names, and the type that it is a field of.
func walk(t reflect.Type, path []string, within []reflect.Type, found func(path []string, in reflect.Type)) {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Map {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || t == reflect.TypeFor[metav1.ObjectMeta]() || slices.Contains(within, t) {
		return
	}
	within = append(slices.Clone(within), t)
	for field := range t.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case field.Anonymous && name == "":
			walk(field.Type, path, within, found)
		case name != "" && name != "-":
			below := append(slices.Clone(path), name)
			if isText(field.Type) {
				found(below, t)
			}
			walk(field.Type, below, within, found)
		}
	}
}

// isText reports whether a field has text, or a list of texts.
func isText(t reflect.Type) bool {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	return t.Kind() == reflect.String
}

// sample returns an object with a value at the end of the path, and with what a reference has beside its name.
func sample(path []string) any {
	if len(path) == 0 {
		return "x"
	}
	object := map[string]any{path[0]: sample(path[1:])}
	if len(path) == 1 && path[0] == "name" {
		object["kind"] = "Thing"
	}
	return object
}

func TestReferencesHavePathsKindsAndNamespaces(t *testing.T) {
	secret := func(namespace, name string) Object { return Object{schema.GroupKind{Kind: "Secret"}, namespace, name} }
	for _, c := range []struct {
		kind, object string
		want         []Reference
	}{
		{"Pod", `{"spec":{"volumes":[{"emptyDir":{}},{"secret":{"secretName":"a"}}],"imagePullSecrets":[{"name":"b"},{}]}}`, []Reference{
			{"spec.imagePullSecrets[0].name", secret("here", "b")},
			{"spec.volumes[1].secret.secretName", secret("here", "a")},
		}},
		{"CronJob.batch", `{"spec":{"jobTemplate":{"spec":{"template":{"spec":{"initContainers":[{"envFrom":[{"secretRef":{"name":"a"}}]}]}}}}}}`, []Reference{
			{"spec.jobTemplate.spec.template.spec.initContainers[0].envFrom[0].secretRef.name", secret("here", "a")},
		}},
		{"PersistentVolume", `{"spec":{"azureFile":{"secretName":"a","secretNamespace":"there"}}}`, []Reference{{"spec.azureFile.secretName", secret("there", "a")}}},
		{"HorizontalPodAutoscaler.autoscaling", `{"spec":{"scaleTargetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"web"}}}`, []Reference{
			{"spec.scaleTargetRef", Object{schema.GroupKind{Group: "apps", Kind: "Deployment"}, "here", "web"}},
		}},
		{"RoleBinding.rbac.authorization.k8s.io", `{"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"view"},"subjects":[{"kind":"User","name":"eve"}]}`, []Reference{
			{"roleRef", Object{schema.GroupKind{Group: "rbac.authorization.k8s.io", Kind: "ClusterRole"}, "here", "view"}},
		}},
		// Fields of other types than those of Kubernetes.
		{"Pod", `{"spec":{"volumes":"a","nodeName":3,"imagePullSecrets":{"name":["b"]},"containers":[[],null]}}`, nil},
		{"Secret", `{"spec":{"nodeName":"a"}}`, nil},
	} {
		var object map[string]any
		if err := json.Unmarshal([]byte(c.object), &object); err != nil {
			t.Fatal(err)
		}
		if got := ReadFields().References(schema.ParseGroupKind(c.kind), "here", object); !slices.Equal(got, c.want) {
			t.Errorf("%s %s: %v, want %v", c.kind, c.object, got, c.want)
		}
	}
}

// TestReferenceNamesAnObject: a kind without namespaces has the same name everywhere.
func TestReferenceNamesAnObject(t *testing.T) {
	reference := Reference{To: Object{schema.GroupKind{Kind: "Secret"}, "here", "a"}}
	for o, want := range map[Object]bool{
		reference.To:                               true,
		{reference.To.Kind, "", "a"}:               true,
		{reference.To.Kind, "there", "a"}:          false,
		{reference.To.Kind, "here", "b"}:           false,
		{schema.GroupKind{Kind: "X"}, "here", "a"}: false,
	} {
		if reference.Names(o) != want {
			t.Errorf("%v: %t", o, !want)
		}
	}
}

func TestUserKinds(t *testing.T) {
	const anything = "HorizontalPodAutoscaler.autoscaling Ingress.networking.k8s.io IngressClass.networking.k8s.io"
	for of, more := range map[string]string{
		"Node":                                  "CronJob.batch DaemonSet.apps Deployment.apps Job.batch Pod PodTemplate ReplicaSet.apps ReplicationController StatefulSet.apps VolumeAttachment.storage.k8s.io",
		"Widget.acme.io":                        "",
		"ClusterRole.rbac.authorization.k8s.io": "ClusterRoleBinding.rbac.authorization.k8s.io RoleBinding.rbac.authorization.k8s.io",
	} {
		var got []string
		for _, kind := range ReadFields().UserKinds(schema.ParseGroupKind(of)) {
			got = append(got, kind.String())
		}
		want := strings.Fields(anything + " " + more)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", of, got, want)
		}
	}
}
