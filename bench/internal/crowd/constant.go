package crowd

import (
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// constantOf returns the encoded metadata that all objects of a cohort have: labels, annotations and managed fields, of the
// size that they have in clusters.
func constantOf(c *cohort) []byte {
	meta := metav1.ObjectMeta{
		Labels: map[string]string{
			"app.kubernetes.io/name": c.root.word, "app.kubernetes.io/component": c.word, "app.kubernetes.io/managed-by": "Helm",
		},
		Annotations:   annotationsOf(c),
		ManagedFields: []metav1.ManagedFieldsEntry{managed(c, "", managerOf(c))},
	}
	if c.root != c || c.kind.Resource == "deployments" { // a controller writes the status, too
		meta.ManagedFields = append(meta.ManagedFields, managed(c, "status", "kube-controller-manager"))
	}
	if c.owner != nil || c.kind.Resource == "deployments" {
		meta.Generation = 1
	}
	return withoutEmpty(encodedMeta(&meta))
}

func annotationsOf(c *cohort) map[string]string {
	switch {
	case c.kind.Resource == "deployments" || c.kind.Resource == "replicasets":
		return map[string]string{"deployment.kubernetes.io/revision": "3", "deployment.kubernetes.io/desired-replicas": "2"}
	case c.kind.Resource == "pods":
		return map[string]string{"prometheus.io/scrape": "true", "prometheus.io/port": "9102"}
	case c.owner == nil:
		return map[string]string{"meta.helm.sh/release-name": c.word, "meta.helm.sh/release-namespace": "platform"}
	}
	return nil
}

func managerOf(c *cohort) string {
	if c.owner == nil {
		return "helm"
	}
	return strings.ToLower(c.owner.kind.Kind) + "-controller"
}

// managed returns an entry of the managed fields of some hundred bytes.
func managed(c *cohort, subresource, manager string) metav1.ManagedFieldsEntry {
	fields := `{"f:metadata":{"f:labels":{".":{},"f:app.kubernetes.io/instance":{},"f:app.kubernetes.io/name":{}}},"f:spec":{"f:template":{},"f:selector":{}}}`
	switch {
	case subresource != "":
		fields = `{"f:status":{"f:conditions":{"k:{\"type\":\"Ready\"}":{".":{},"f:status":{},"f:type":{}}},"f:phase":{}}}`
	case c.owner != nil:
		fields = `{"f:metadata":{"f:labels":{".":{},"f:app.kubernetes.io/instance":{}},"f:ownerReferences":{".":{},"k:{\"uid\":\"\"}":{}}},"f:spec":{}}`
	}
	at := metav1.NewTime(time.Unix(created, 0))
	return metav1.ManagedFieldsEntry{
		Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: c.kind.APIVersion(), Time: &at,
		FieldsType: "FieldsV1", FieldsV1: &metav1.FieldsV1{Raw: []byte(fields)}, Subresource: subresource,
	}
}

// withoutEmpty removes the fields before the labels, which each object has with a value of its own. Their encoding is
// empty here: a tag and a zero, or for the time an empty message.
func withoutEmpty(encoded []byte) []byte {
	kept := make([]byte, 0, len(encoded))
	for rest := encoded; len(rest) > 0; {
		number, value, n := consumeField(rest)
		if n < 0 {
			panic(fmt.Sprintf("metadata of %d bytes cannot be parsed", len(encoded)))
		}
		if len(value) > 0 || number > metaCreated {
			kept = append(kept, rest[:n]...)
		}
		rest = rest[n:]
	}
	return kept
}
