package upstream

import (
	"encoding/json"
	"testing"

	"github.com/coppice-dev/coppice/internal/apiserver/openapi"
	"github.com/coppice-dev/coppice/internal/apiserver/registry"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/builtin"
	"github.com/coppice-dev/coppice/internal/testing/variation"
	"k8s.io/kube-openapi/pkg/builder3"
	"k8s.io/kube-openapi/pkg/util"
)

// describe returns the OpenAPI schemas of our kinds, whose types are also upstream's.
func describe(t *testing.T, schemes registry.Schemes) variation.Document {
	t.Helper()
	var names []string
	for _, row := range builtin.Resources() {
		names = append(names, util.GetCanonicalTypeName(row.New()))
		for _, peer := range row.Peers {
			names = append(names, util.GetCanonicalTypeName(peer.New()))
		}
	}
	described, err := builder3.BuildOpenAPIDefinitionsForResources(openapi.V3Config(schemes.External), names...)
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(described)
	if err != nil {
		t.Fatal(err)
	}
	schemas := map[string]any{}
	if err := json.Unmarshal(data, &schemas); err != nil {
		t.Fatal(err)
	}
	return variation.NewDocument(schemas)
}
