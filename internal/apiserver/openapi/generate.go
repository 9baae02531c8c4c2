// Package openapi describes the served kinds: the documents v2 and v3 to clients, and the types for merging objects to
// mutating policies (mergetypes.go). It builds all of them when they are first requested, not when the server starts as
// in k8s.io/apiserver: most servers never get a request for them, and v2 alone is a quarter of the heap of an idle
// server.
//
// The generated file has the OpenAPI definitions of the types of the built-in resources, in the groups
// that package registry/builtin serves (k8s.io/api, and APIServices of k8s.io/kube-aggregator), and of the
// types of their fields (metadata, quantities, int-or-string, raw extensions, Scale). kubectl explain and
// client-side validation use them, and server-side apply cannot merge a type without one.
//
// k8s.io/api has the names and documentation of these types, but not their definitions, so they are
// generated. After a change of the k8s.io versions in go.mod, or when a group is added to package
// registry/builtin, run
//
//	go generate ./internal/apiserver/openapi
//
// A test runs the generator and compares. The generator is a tool of tools/go.mod, at the version of
// k8s.io/kube-openapi in go.mod; a test keeps the two in sync. The definition of CustomResourceDefinition
// is in k8s.io/apiextensions-apiserver.
package openapi

//go:generate go tool -modfile=../../../tools/go.mod openapi-gen --output-dir . --output-pkg github.com/coppice-dev/coppice/internal/apiserver/openapi --output-file zz_generated.openapi.go --report-filename /dev/null k8s.io/api/admissionregistration/v1 k8s.io/api/apps/v1 k8s.io/api/apps/v1beta1 k8s.io/api/apps/v1beta2 k8s.io/api/authentication/v1 k8s.io/api/authorization/v1 k8s.io/api/autoscaling/v1 k8s.io/api/autoscaling/v2 k8s.io/api/batch/v1 k8s.io/api/certificates/v1 k8s.io/api/coordination/v1 k8s.io/api/core/v1 k8s.io/api/discovery/v1 k8s.io/api/events/v1 k8s.io/api/extensions/v1beta1 k8s.io/api/flowcontrol/v1 k8s.io/api/networking/v1 k8s.io/api/node/v1 k8s.io/api/policy/v1 k8s.io/api/rbac/v1 k8s.io/api/resource/v1 k8s.io/api/scheduling/v1 k8s.io/api/scheduling/v1alpha3 k8s.io/api/storage/v1 k8s.io/api/storagemigration/v1 k8s.io/apimachinery/pkg/api/resource k8s.io/apimachinery/pkg/apis/meta/v1 k8s.io/apimachinery/pkg/runtime k8s.io/apimachinery/pkg/util/intstr k8s.io/apimachinery/pkg/version k8s.io/kube-aggregator/pkg/apis/apiregistration/v1
