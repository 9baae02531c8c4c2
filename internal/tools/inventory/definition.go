package inventory

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/coppice-dev/coppice/internal/rules/refusal"
)

// Definition is what a CustomResourceDefinition says about the versions of its instances.
type Definition struct {
	// Kind is the kind of the instances, with its group, such as Widget.example.com.
	Kind string
	// Storage is the version in which instances are written; Stored are all those in which there may be some.
	Storage string
	Stored  []string
	// Converts is true if a webhook converts instances. Service is its service; empty for a webhook with a URL. Endpoints
	// is the number of ready endpoints of the service; negative if it is unknown.
	Converts  bool
	Service   types.NamespacedName
	Endpoints int
}

// Conversion is whether requests for instances in a version need the conversion webhook.
type Conversion int

// The conversions.
const (
	// Never: all instances are stored in this version.
	Never Conversion = iota
	// Sometimes: some of the instances may be stored in another version.
	Sometimes
	// Always: no instance is stored in this version.
	Always
)

// Needs returns whether requests for instances in a version need the webhook.
func (d *Definition) Needs(version string) Conversion {
	switch {
	case !d.Converts || len(d.Stored) == 1 && d.Stored[0] == version && d.Storage == version:
		return Never
	case slices.Contains(d.Stored, version):
		return Sometimes
	}
	return Always
}

// IsDead reports whether the webhook is known not to answer: its service has no endpoints.
func (d *Definition) IsDead() bool { return d.Converts && d.Service.Name != "" && d.Endpoints == 0 }

// Dead returns the refusal of requests for instances that a dead webhook has to convert.
func (d *Definition) Dead() *refusal.Refusal {
	return &refusal.Refusal{By: refusal.ByConversion, Name: d.Kind, Message: fmt.Sprintf("failed: its service %s has no endpoints", d.Service)}
}
