package core

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func TestValidateDeclaredFeatures(t *testing.T) {
	for name, test := range map[string]struct {
		features string
		want     string
	}{
		"none":           {"", ""},
		"some":           {"Alpha Beta/part/of2", ""},
		"a small letter": {"alpha", `status[0]: Invalid value: "alpha": invalid feature name "alpha": must start with an UpperCamelCase segment`},
		"an empty part":  {"Alpha/", `status[0]: Invalid value: "Alpha/": invalid feature name`},
		"a long one":     {strings.Repeat("A", 254), "must be no more than 253 characters"},
		"twice":          {"Alpha Alpha", `status[1]: Duplicate value: "Alpha"`},
		"not sorted":     {"Beta Alpha", `status[1]: Invalid value: "Alpha": list must be sorted alphabetically`},
	} {
		errs := validateDeclaredFeatures(strings.Fields(test.features), field.NewPath("status"))
		if len(errs) == 0 != (test.want == "") || len(errs) > 0 && (len(errs) > 1 || !strings.Contains(errs[0].Error(), test.want)) {
			t.Errorf("%s: %v, want %q", name, errs, test.want)
		}
	}
}

func TestValidateNodeStatusUpdate(t *testing.T) {
	a, b := corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: "192.0.2.1"}, corev1.NodeAddress{Type: corev1.NodeExternalIP, Address: "192.0.2.1"}
	for name, test := range map[string]struct {
		status corev1.NodeStatus
		want   string // the field
	}{
		"right":                 {corev1.NodeStatus{Addresses: []corev1.NodeAddress{a, b}, DeclaredFeatures: []string{"Alpha"}}, ""},
		"an address twice":      {corev1.NodeStatus{Addresses: []corev1.NodeAddress{a, b, a}}, "status.addresses[2]"},
		"a feature ill written": {corev1.NodeStatus{DeclaredFeatures: []string{"alpha"}}, "status.declaredFeatures[0]"},
	} {
		errs := validateNodeStatusUpdate(&corev1.Node{Status: test.status}, nil)
		if len(errs) == 0 != (test.want == "") || len(errs) > 0 && errs[0].Field != test.want {
			t.Errorf("%s: %v, want %q", name, errs, test.want)
		}
	}
}
