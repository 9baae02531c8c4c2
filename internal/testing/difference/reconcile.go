package difference

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Reconcile replaces values that a server chooses freely: the addresses and ports of
// services, and generated names; the writes and conditions of its own controllers; and the user
// of the requests.
func Reconcile(kind string, ours, theirs map[string]any) {
	for _, object := range []map[string]any{ours, theirs} {
		reconcileName(object)
		reconcileManagers(object)
		switch kind { // conditions that a server's own controllers set, each server in its own time
		case "APIService":
			reconcileConditions(object, "Available")
		case "FlowSchema":
			reconcileConditions(object, "Dangling")
		}
		if spec, ok := nested(object, "spec"); ok && kind == "CertificateSigningRequest" {
			for _, requester := range []string{"username", "groups", "uid", "extra"} {
				delete(spec, requester)
			}
		}
		if object != nil && kind == "Service" {
			reconcileService(object)
		}
	}
}

// reconcileService replaces the addresses and ports of a service.
func reconcileService(object map[string]any) {
	spec, _ := nested(object, "spec")
	if isAddress(spec["clusterIP"]) {
		spec["clusterIP"] = "(address)"
	}
	for i, address := range asList(spec["clusterIPs"]) {
		if isAddress(address) {
			asList(spec["clusterIPs"])[i] = "(address)"
		}
	}
	for _, port := range asList(spec["ports"]) {
		if port, ok := port.(map[string]any); ok && port["nodePort"] != nil {
			port["nodePort"] = "(port)"
		}
	}
	if spec["healthCheckNodePort"] != nil {
		_ = unstructured.SetNestedField(object, "(port)", "spec", "healthCheckNodePort")
	}
}

func isAddress(value any) bool {
	_, err := netip.ParseAddr(fmt.Sprint(value))
	return err == nil
}

// reconcileName replaces the part of a name that the server has made up.
func reconcileName(object map[string]any) {
	meta, _ := nested(object, "metadata")
	prefix, _ := meta["generateName"].(string)
	name, _ := meta["name"].(string)
	if prefix == "" || len(name) != len(prefix)+5 || !strings.HasPrefix(name, prefix) {
		return
	}
	meta["name"] = prefix + "(made up)"
	if labels, ok := nested(meta, "labels"); ok && labels["kubernetes.io/metadata.name"] == name {
		labels["kubernetes.io/metadata.name"] = meta["name"]
	}
}

// reconcileManagers removes the fields that the servers themselves manage: upstream runs controllers in the
// server's process, and we run them in the test's process.
func reconcileManagers(object map[string]any) {
	meta, _ := nested(object, "metadata")
	entries := asList(meta["managedFields"])
	if len(entries) == 0 {
		return
	}
	meta["managedFields"] = slices.DeleteFunc(entries, func(entry any) bool {
		e, _ := entry.(map[string]any)
		return e["subresource"] == "status" && (e["manager"] == "kube-apiserver" || e["manager"] == filepath.Base(os.Args[0]))
	})
}

// reconcileConditions removes the conditions of a type.
func reconcileConditions(object map[string]any, conditionType string) {
	status, _ := nested(object, "status")
	conditions := asList(status["conditions"])
	if len(conditions) == 0 {
		return
	}
	rest := slices.DeleteFunc(slices.Clone(conditions), func(c any) bool {
		condition, _ := c.(map[string]any)
		return condition["type"] == conditionType
	})
	if status["conditions"] = rest; len(rest) == 0 {
		delete(status, "conditions")
	}
}

// nested returns the object below a key of an object.
func nested(value any, key string) (map[string]any, bool) {
	object, _ := value.(map[string]any)
	below, ok := object[key].(map[string]any)
	return below, ok
}

func asList(value any) []any {
	list, _ := value.([]any)
	return list
}
