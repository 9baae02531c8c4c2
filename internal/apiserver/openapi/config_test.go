package openapi

import (
	"runtime"
	"testing"
	"weak"

	corev1 "k8s.io/api/core/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/kube-openapi/pkg/builder3"
	"k8s.io/kube-openapi/pkg/util"
)

// The configuration lives as long as the server. Definitions, which take megabytes, live no longer than the
// documents that are built from them.
func TestConfigurationKeepsNoDefinitions(t *testing.T) {
	scheme := apiruntime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	config := V3Config(scheme)
	name := util.GetCanonicalTypeName(&corev1.Pod{})
	definition := weak.Make(&config.Definitions[name].Dependencies[0])
	if schemas, err := builder3.BuildOpenAPIDefinitionsForResources(config, name); err != nil || len(schemas) == 0 {
		t.Fatalf("%d schemas, %v", len(schemas), err)
	}
	config.Definitions = nil
	runtime.GC()
	if definition.Value() != nil {
		t.Error("the definition of a Pod is kept")
	}
	runtime.KeepAlive(config)
}
