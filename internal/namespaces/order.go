package namespaces

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Wave is a stage of the order in which contents go (R22). A wave begins when
// the one before it is empty.
type Wave int

// The waves of the default order.
const (
	// WavePods goes first, while everything that pods need and that fences them in still stands.
	WavePods Wave = iota
	// WaveContents is everything else.
	WaveContents
	// WaveAccess goes last: RBAC, by which people can look at what hangs and
	// mend it, and NetworkPolicies (CVE-2024-7598).
	WaveAccess
)

// rest stands, in an order, for all resources that no wave names.
const rest = "*"

// Order is the order in which the contents of a namespace go, wave after wave. The
// zero value is the default: pods; everything else; RBAC and NetworkPolicies.
type Order struct {
	waves [][]schema.GroupResource // the wave of the rest names none
	rest  Wave
}

// ParseOrder reads an order: waves, separated by semicolons, each of them resources
// ("pods", "roles.rbac.authorization.k8s.io"), separated by commas; one of the waves is
// "*", all other resources. An empty text is the default order.
func ParseOrder(text string) (Order, error) {
	if strings.TrimSpace(text) == "" {
		return Order{}, nil
	}
	o := Order{rest: -1}
	seen := map[schema.GroupResource]bool{}
	for i, wave := range strings.Split(text, ";") {
		if strings.TrimSpace(wave) == rest {
			if o.rest >= 0 {
				return Order{}, errors.New("two waves are *: there is one rest")
			}
			o.rest = Wave(i)
			o.waves = append(o.waves, nil)
			continue
		}
		var resources []schema.GroupResource
		for name := range strings.SplitSeq(wave, ",") {
			r := schema.ParseGroupResource(strings.TrimSpace(name))
			if r.Resource == "" || r.Resource == rest {
				return Order{}, fmt.Errorf("wave %d, %q, names no resource: write resource.group, or * for a wave of all others", i+1, wave)
			}
			if seen[r] {
				return Order{}, fmt.Errorf("%s is in two waves", r)
			}
			seen[r] = true
			resources = append(resources, r)
		}
		o.waves = append(o.waves, resources)
	}
	if o.rest < 0 {
		return Order{}, errors.New("no wave is *: the resources that no wave names would never go")
	}
	return o, nil
}

// all are the waves.
func (o Order) all() [][]schema.GroupResource {
	if o.waves != nil {
		return o.waves
	}
	return [][]schema.GroupResource{
		WavePods:     {corev1.Resource("pods")},
		WaveContents: nil,
		WaveAccess:   {rbacv1.Resource("roles"), rbacv1.Resource("rolebindings"), networkingv1.Resource("networkpolicies")},
	}
}

// end is the wave of a namespace in which all waves are over.
func (o Order) end() Wave { return Wave(len(o.all())) }

// WaveOf gives the wave of a resource type.
func (o Order) WaveOf(r schema.GroupResource) Wave {
	for wave, resources := range o.all() {
		if slices.Contains(resources, r) {
			return Wave(wave)
		}
	}
	if o.waves == nil {
		return WaveContents
	}
	return o.rest
}

// Name names a wave in logs, by what is in it.
func (o Order) Name(w Wave) string {
	if w == o.end() {
		return "over"
	}
	var names []string
	for _, r := range o.all()[w] {
		names = append(names, r.String())
	}
	if names == nil {
		return rest
	}
	return strings.Join(names, ",")
}
