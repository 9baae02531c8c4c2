package reader

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	"github.com/coppice-dev/coppice/internal/tools/inventory"
)

// mostDefinitions bounds the CustomResourceDefinitions that a question reads: each may have a megabyte.
const mostDefinitions = 200

var errTooManyDefinitions = errors.New("too many definitions would have to be read")

// readDefinitions adds what CustomResourceDefinitions say about versions.
func (r *Facts) readDefinitions(ctx context.Context, needs inventory.Needs, facts *inventory.Facts) {
	for _, o := range sorted(needs.Definitions) {
		if len(facts.Definitions) >= mostDefinitions {
			facts.Definitions[o.UID] = inventory.Fact[inventory.Definition]{Unread: errTooManyDefinitions.Error()}
			continue
		}
		facts.Definitions[o.UID] = inventory.FactOf(r.definition(ctx, o.Name))
	}
}

// definition reads a CustomResourceDefinition, and the endpoints of its conversion webhook.
func (r *Facts) definition(ctx context.Context, name string) (inventory.Definition, error) {
	body, err := r.client.CoreV1().RESTClient().Get().AbsPath("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", name).
		SetHeader("Accept", "application/json").Do(ctx).Raw()
	if err != nil {
		return inventory.Definition{}, err
	}
	var read struct {
		Spec struct {
			Group string `json:"group"`
			Names struct {
				Kind string `json:"kind"`
			} `json:"names"`
			Versions []struct {
				Name    string `json:"name"`
				Storage bool   `json:"storage"`
			} `json:"versions"`
			Conversion struct {
				Strategy string `json:"strategy"`
				Webhook  struct {
					ClientConfig struct {
						Service *struct{ Namespace, Name string } `json:"service"`
					} `json:"clientConfig"`
				} `json:"webhook"`
			} `json:"conversion"`
		} `json:"spec"`
		Status struct {
			StoredVersions []string `json:"storedVersions"`
		} `json:"status"`
	}
	if err := json.Unmarshal(body, &read); err != nil {
		return inventory.Definition{}, fmt.Errorf("decode CustomResourceDefinition %s: %w", name, err)
	}
	d := inventory.Definition{
		Kind: read.Spec.Names.Kind + "." + read.Spec.Group, Stored: read.Status.StoredVersions,
		Converts: read.Spec.Conversion.Strategy == "Webhook", Endpoints: -1,
	}
	for _, v := range read.Spec.Versions {
		if v.Storage {
			d.Storage = v.Name
		}
	}
	if service := read.Spec.Conversion.Webhook.ClientConfig.Service; d.Converts && service != nil {
		d.Service = types.NamespacedName{Namespace: service.Namespace, Name: service.Name}
		d.Endpoints = r.endpoints(ctx, d.Service)
	}
	return d, nil
}
