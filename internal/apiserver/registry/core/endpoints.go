package core

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coppice-dev/coppice/internal/apiserver/registry"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/table"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/validate"
)

func endpoints() registry.Resource {
	return registry.Define[corev1.Endpoints, corev1.EndpointsList](registry.Resource{
		GroupVersion:        corev1.SchemeGroupVersion,
		Kind:                "Endpoints",
		Plural:              "endpoints",
		Namespaced:          true,
		ShortNames:          []string{"ep"},
		ValidateName:        apivalidation.NameIsDNSSubdomain,
		CreateOnUpdate:      true,
		UnconditionalUpdate: true,
	}, []table.Column{
		table.Text("Endpoints", "Addresses that are ready.", endpointsText),
		table.Age(),
	}, registry.Strategy[*corev1.Endpoints]{
		Warn: warnOfEndpoints,
		Default: func(e *corev1.Endpoints) {
			for i := range e.Subsets {
				for j := range e.Subsets[i].Ports {
					registry.SetDefault(&e.Subsets[i].Ports[j].Protocol, corev1.ProtocolTCP)
				}
			}
		},
		Validate: func(e *corev1.Endpoints) field.ErrorList {
			return validate.Each(e.Subsets, field.NewPath("subsets"), validateSubset)
		},
	})
}

func validateSubset(s *corev1.EndpointSubset, path *field.Path) field.ErrorList {
	address := func(a *corev1.EndpointAddress, at *field.Path) field.ErrorList {
		errs := append(validate.IP(a.IP, at.Child("ip")), validate.Reachable(a.IP, at.Child("ip"))...)
		errs = append(errs, validate.OptionalLabel(a.Hostname, at.Child("hostname"))...)
		if a.NodeName == nil {
			return errs
		}
		return append(errs, validate.FromMessages(*a.NodeName, at.Child("nodeName"), validation.IsDNS1123Subdomain(*a.NodeName))...)
	}
	errs := slices.Concat(
		validate.Each(s.Addresses, path.Child("addresses"), address),
		validate.Each(s.NotReadyAddresses, path.Child("notReadyAddresses"), address),
		validate.Each(s.Ports, path.Child("ports"), func(p *corev1.EndpointPort, at *field.Path) field.ErrorList {
			errs := append(validate.Port(p.Port, at.Child("port")), validate.Protocol(p.Protocol, at.Child("protocol"))...)
			if p.AppProtocol != nil {
				errs = append(errs, validate.FromMessages(*p.AppProtocol, at.Child("appProtocol"), validation.IsQualifiedName(*p.AppProtocol))...)
			}
			if p.Name == "" && len(s.Ports) > 1 {
				return append(errs, field.Required(at.Child("name"), ""))
			}
			return append(errs, validate.OptionalLabel(p.Name, at.Child("name"))...)
		}),
	)
	if len(s.Addresses)+len(s.NotReadyAddresses) == 0 {
		errs = append(errs, field.Required(path, "must specify `addresses` or `notReadyAddresses`"))
	}
	return errs
}

// endpointsText shows the first few addresses and the number of the others.
func endpointsText(e *corev1.Endpoints) string {
	const shown = 3
	var first []string
	total := 0
	for _, subset := range e.Subsets {
		total += len(subset.Addresses) * max(1, len(subset.Ports))
		for _, address := range subset.Addresses[:min(len(subset.Addresses), shown)] {
			if len(subset.Ports) == 0 {
				first = append(first, address.IP)
			}
			for _, port := range subset.Ports[:min(len(subset.Ports), shown)] {
				first = append(first, fmt.Sprintf("%s:%d", address.IP, port.Port))
			}
		}
	}
	if total > shown {
		return fmt.Sprintf("%s + %d more...", strings.Join(first[:shown], ","), total-shown)
	}
	return table.OrNone(strings.Join(first, ","))
}
