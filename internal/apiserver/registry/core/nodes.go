package core

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"

	"github.com/coppice-dev/coppice/internal/apiserver/registry"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/podspec"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/table"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/validate"
)

func nodes() registry.Resource {
	return registry.Define[corev1.Node, corev1.NodeList](registry.Resource{
		GroupVersion:        corev1.SchemeGroupVersion,
		Kind:                "Node",
		Plural:              "nodes",
		ShortNames:          []string{"no"},
		ValidateName:        apivalidation.NameIsDNSSubdomain,
		UnconditionalUpdate: true,
	}, nodeColumns(), registry.Strategy[*corev1.Node]{
		Warn:                   warnOfNode,
		Default:                defaultNode,
		PrepareForCreate:       func(n *corev1.Node) { dropNodeFields(&n.Spec, &n.Status) },
		PrepareForUpdate:       func(n, _ *corev1.Node) { dropNodeFields(&n.Spec, &corev1.NodeStatus{}) },
		PrepareForStatusUpdate: func(n, _ *corev1.Node) { dropNodeFields(&corev1.NodeSpec{}, &n.Status) },
		Validate: func(n *corev1.Node) field.ErrorList {
			spec := field.NewPath("spec")
			return slices.Concat(
				validateTaints(n.Spec.Taints, field.NewPath("metadata", "taints")), // Kubernetes reports them there
				validatePodCIDRs(n.Spec.PodCIDRs, spec.Child("podCIDRs")),
				validateNodeStatus(&n.Status, field.NewPath("status")),
			)
		},
		ValidateUpdate:       validateNodeUpdate,
		ValidateStatusUpdate: validateNodeStatusUpdate,
		CopyStatus:           registry.CopyField(func(n *corev1.Node) *corev1.NodeStatus { return &n.Status }),
		KeepStatusOnCreate:   true,
		SelectableFields: func(n *corev1.Node) fields.Set {
			return fields.Set{"spec.unschedulable": strconv.FormatBool(n.Spec.Unschedulable)}
		},
	})
}

// defaultNode keeps podCIDR and podCIDRs in agreement.
func defaultNode(n *corev1.Node) {
	switch spec := &n.Spec; {
	case spec.PodCIDR != "" && (len(spec.PodCIDRs) == 0 || spec.PodCIDRs[0] != spec.PodCIDR):
		spec.PodCIDRs = []string{spec.PodCIDR}
	case spec.PodCIDR == "" && len(spec.PodCIDRs) > 0:
		spec.PodCIDR = spec.PodCIDRs[0]
	}
	if len(n.Status.Allocatable) == 0 {
		n.Status.Allocatable = n.Status.Capacity.DeepCopy()
	}
}

// dropNodeFields drops the dynamic configuration of kubelets, which Kubernetes has removed, and the field of a feature
// gate that it disables by default.
func dropNodeFields(spec *corev1.NodeSpec, status *corev1.NodeStatus) {
	spec.ConfigSource, status.Config = nil, nil //nolint:staticcheck // SA1019: kube-apiserver drops the deprecated field
	spec.PodPreemptionPolicy = nil
}

func nodeColumns() []table.Column {
	return append([]table.Column{
		table.Text("Status", "Whether the node is ready, and accepts new pods.", nodeStatusText),
		table.Text("Roles", "Roles of the node, from its labels.", nodeRolesText),
		table.Age(),
		table.Text("Version", "Version of the node agent.", func(n *corev1.Node) string { return n.Status.NodeInfo.KubeletVersion }),
	}, table.Wide(
		table.Text("Internal-IP", "Address within the cluster.", func(n *corev1.Node) string { return nodeAddress(n, corev1.NodeInternalIP) }),
		table.Text("External-IP", "Address outside of the cluster.", func(n *corev1.Node) string { return nodeAddress(n, corev1.NodeExternalIP) }),
		table.Text("OS-Image", "Operating system.", func(n *corev1.Node) string { return orUnknown(n.Status.NodeInfo.OSImage) }),
		table.Text("Kernel-Version", "Version of the kernel.", func(n *corev1.Node) string { return orUnknown(n.Status.NodeInfo.KernelVersion) }),
		table.Text("Container-Runtime", "Container runtime and its version.", func(n *corev1.Node) string {
			return orUnknown(n.Status.NodeInfo.ContainerRuntimeVersion)
		}),
	)...)
}

func orUnknown(s string) string {
	if s == "" {
		return "<unknown>"
	}
	return s
}

func nodeStatusText(n *corev1.Node) string {
	status := "Unknown"
	for _, c := range n.Status.Conditions {
		if c.Type != corev1.NodeReady {
			continue
		}
		status = "NotReady"
		if c.Status == corev1.ConditionTrue {
			status = "Ready"
		}
	}
	if n.Spec.Unschedulable {
		status += ",SchedulingDisabled"
	}
	return status
}

func nodeRolesText(n *corev1.Node) string {
	var roles []string
	for label, value := range n.Labels {
		if role, ok := strings.CutPrefix(label, "node-role.kubernetes.io/"); ok && role != "" {
			roles = append(roles, role)
		}
		if label == "kubernetes.io/role" && value != "" {
			roles = append(roles, value)
		}
	}
	slices.Sort(roles)
	return table.OrNone(strings.Join(slices.Compact(roles), ","))
}

func nodeAddress(n *corev1.Node, of corev1.NodeAddressType) string {
	for _, address := range n.Status.Addresses {
		if address.Type == of {
			return address.Address
		}
	}
	return table.None
}

func validateTaints(taints []corev1.Taint, path *field.Path) field.ErrorList {
	type pair struct {
		key    string
		effect corev1.TaintEffect
	}
	seen := map[pair]bool{}
	return validate.Each(taints, path, func(t *corev1.Taint, at *field.Path) field.ErrorList {
		errs := slices.Concat(
			metav1validation.ValidateLabelName(t.Key, at.Child("key")),
			podspec.ValidateTaintEffect(t.Effect, at.Child("effect")),
		)
		if complaints := validation.IsValidLabelValue(t.Value); len(complaints) > 0 {
			errs = append(errs, field.Invalid(at.Child("value"), t.Value, strings.Join(complaints, ";")))
		}
		if seen[pair{t.Key, t.Effect}] {
			duplicate := field.Duplicate(at, *t)
			duplicate.Detail = "taints must be unique by key and effect pair"
			errs = append(errs, duplicate)
		}
		seen[pair{t.Key, t.Effect}] = true
		return errs
	})
}

// validatePodCIDRs checks the ranges of the addresses of a node's pods: at most one of each family.
func validatePodCIDRs(cidrs []string, path *field.Path) field.ErrorList {
	errs := validate.Each(cidrs, path, func(cidr *string, at *field.Path) field.ErrorList { return validate.CIDR(*cidr, at) })
	if len(cidrs) <= 1 {
		return errs
	}
	dual, err := netutils.IsDualStackCIDRStrings(cidrs)
	if err != nil {
		errs = append(errs, field.InternalError(path, fmt.Errorf("invalid PodCIDRs. failed to check with dual stack with error:%w", err)))
	}
	if !dual || len(cidrs) > 2 {
		errs = append(errs, field.Invalid(path, cidrs, "may specify no more than one CIDR for each IP family"))
	}
	return errs
}

// validateNodeStatus checks the status of a node.
func validateNodeStatus(s *corev1.NodeStatus, path *field.Path) field.ErrorList {
	return slices.Concat(
		validateNodeAmounts(s.Capacity, path.Child("capacity")),
		validateNodeAmounts(s.Allocatable, path.Child("allocatable")),
		validateDeclaredFeatures(s.DeclaredFeatures, path.Child("declaredFeatures")),
	)
}

func validateNodeAmounts(list corev1.ResourceList, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, name := range slices.Sorted(maps.Keys(list)) {
		amount := list[name]
		at := path.Child(string(name))
		if amount.Sign() < 0 {
			errs = append(errs, field.Invalid(at, amount.String(), "must be greater than or equal to 0"))
		}
		if podspec.IsExtended(name) && amount.MilliValue()%1000 != 0 {
			errs = append(errs, field.Invalid(at, amount.String(), "must be an integer"))
		}
	}
	return errs
}

func validateNodeStatusUpdate(n, _ *corev1.Node) field.ErrorList {
	status := field.NewPath("status")
	return append(validateNodeStatus(&n.Status, status), validate.Distinct(n.Status.Addresses, status.Child("addresses"))...)
}

// validateDeclaredFeatures checks the features that a node agent declares: their names must be sorted and unique.
func validateDeclaredFeatures(features []string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, feature := range features {
		switch at := path.Index(i); {
		case len(feature) > validation.DNS1123SubdomainMaxLength:
			errs = append(errs, field.Invalid(at, feature, fmt.Sprintf("invalid feature name %q: must be no more than %d characters", feature, validation.DNS1123SubdomainMaxLength)))
		case !declaredFeature.MatchString(feature):
			errs = append(errs, field.Invalid(at, feature, fmt.Sprintf("invalid feature name %q: must start with an UpperCamelCase segment, with subsequent segments "+
				"separated by '/' (e.g., MyFeature or MyFeature/mySubFeature), and contain only alphanumeric characters and slashes", feature)))
		}
		switch {
		case i == 0 || features[i-1] < feature:
		case features[i-1] == feature:
			errs = append(errs, field.Duplicate(path.Index(i), feature))
		default:
			errs = append(errs, field.Invalid(path.Index(i), feature, "list must be sorted alphabetically"))
		}
	}
	return errs
}

var declaredFeature = regexp.MustCompile(`^[A-Z][a-zA-Z0-9]*(/[a-zA-Z][a-zA-Z0-9]*)*$`)

// validateNodeUpdate checks that a Node still names the same machine.
func validateNodeUpdate(n, old *corev1.Node) field.ErrorList {
	spec := field.NewPath("spec")
	var errs field.ErrorList
	if len(old.Spec.PodCIDRs) > 0 && !slices.Equal(n.Spec.PodCIDRs, old.Spec.PodCIDRs) {
		errs = append(errs, field.Forbidden(spec.Child("podCIDRs"), "node updates may not change podCIDR except from \"\" to valid"))
	}
	errs = append(errs, validate.SetOnce(n.Spec.ProviderID, old.Spec.ProviderID, spec.Child("providerID"))...)
	if n.Spec.DoNotUseExternalID != old.Spec.DoNotUseExternalID {
		errs = append(errs, field.Forbidden(spec.Child("externalID"), "may not be updated"))
	}
	return errs
}
