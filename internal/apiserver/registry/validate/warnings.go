package validate

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// DeprecatedNodeLabel returns the warning about a deprecated label of nodes, or "" for any other label.
func DeprecatedNodeLabel(key string) string {
	switch key {
	case "beta.kubernetes.io/arch":
		return `deprecated since v1.14; use "kubernetes.io/arch" instead`
	case "beta.kubernetes.io/os":
		return `deprecated since v1.14; use "kubernetes.io/os" instead`
	case corev1.LabelFailureDomainBetaRegion:
		return `deprecated since v1.17; use "topology.kubernetes.io/region" instead`
	case corev1.LabelFailureDomainBetaZone:
		return `deprecated since v1.17; use "topology.kubernetes.io/zone" instead`
	case corev1.LabelInstanceType:
		return `deprecated since v1.17; use "node.kubernetes.io/instance-type" instead`
	case "app.kubernetes.io/created-by":
		return `deprecated since v1.9`
	case "scheduler.alpha.kubernetes.io/preferAvoidPods":
		return `deprecated since v1.22; use Taints and Tolerations instead`
	case "node-role.kubernetes.io/master":
		return `use "node-role.kubernetes.io/control-plane" instead`
	}
	return ""
}

// WarnOfNodeTerm warns about deprecated labels of nodes in a node selector term.
func WarnOfNodeTerm(term corev1.NodeSelectorTerm, at *field.Path) []string {
	var all []string
	for i, expression := range term.MatchExpressions {
		if text := DeprecatedNodeLabel(expression.Key); text != "" {
			all = append(all, fmt.Sprintf("%s: %s is %s", at.Child("matchExpressions").Index(i).Child("key"), expression.Key, text))
		}
	}
	return all
}

// WarnOfIPs warns about addresses that other programs parse or write differently. It skips empty ones.
func WarnOfIPs(at *field.Path, addresses ...string) []string {
	return warnOfEach(at, addresses, validation.GetWarningsForIP)
}

// WarnOfCIDRs is WarnOfIPs for ranges of addresses.
func WarnOfCIDRs(at *field.Path, ranges ...string) []string {
	return warnOfEach(at, ranges, validation.GetWarningsForCIDR)
}

func warnOfEach(at *field.Path, all []string, warn func(*field.Path, string) []string) []string {
	var found []string
	for i, text := range all {
		if text != "" {
			found = append(found, warn(at.Index(i), text)...)
		}
	}
	return found
}
