package apiserver_test

import (
	"testing"

	openapi_v2 "github.com/google/gnostic-models/openapiv2"
	"google.golang.org/protobuf/proto"
	"k8s.io/client-go/discovery"
)

// kubectl reads the binary form of OpenAPI v2, which is valid only with all required fields.
func TestOpenAPIv2InBothForms(t *testing.T) {
	s := sharedServer(t)
	discovered, err := discovery.NewDiscoveryClientForConfig(s.config)
	if err != nil {
		t.Fatal(err)
	}
	client := discovered.RESTClient()
	plain, err := client.Get().AbsPath("/openapi/v2").SetHeader("Accept", "application/json").Do(t.Context()).Raw()
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := openapi_v2.ParseDocument(plain)
	if err != nil {
		t.Fatal(err)
	}
	binary, err := client.Get().AbsPath("/openapi/v2").SetHeader("Accept", "application/com.github.proto-openapi.spec.v2@v1.0+protobuf").Do(t.Context()).Raw()
	if err != nil {
		t.Fatal(err)
	}
	var document openapi_v2.Document
	if err := proto.Unmarshal(binary, &document); err != nil {
		t.Fatal(err)
	}
	for form, d := range map[string]*openapi_v2.Document{"JSON": parsed, "binary": &document} {
		if d.Info.Version == "" || len(d.Definitions.AdditionalProperties) < 100 {
			t.Errorf("%s: version %q, %d definitions", form, d.Info.Version, len(d.Definitions.AdditionalProperties))
		}
	}
}
