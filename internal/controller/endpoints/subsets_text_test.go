package endpoints

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// subsetsText writes subsets as "ready, addresses | those not ready : ports; the next subset".
func subsetsText(subsets []corev1.EndpointSubset) string {
	var all []string
	for _, s := range subsets {
		var line strings.Builder
		for _, a := range s.Addresses {
			line.WriteString(a.IP + " ")
		}
		line.WriteString("|")
		for _, a := range s.NotReadyAddresses {
			line.WriteString(" " + a.IP)
		}
		line.WriteString(" :")
		for _, p := range s.Ports {
			fmt.Fprintf(&line, " %s=%d", p.Name, p.Port)
		}
		all = append(all, line.String())
	}
	return strings.Join(all, "; ")
}
