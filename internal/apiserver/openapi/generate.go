// Package openapi holds the OpenAPI definitions of all types that the API server
// serves for its built-in kinds: the k8s.io/api groups of package kinds, and what
// these are made of (metadata, quantities, int-or-string, raw extensions, Scale).
// From them come kubectl explain, client-side validation, and server-side apply,
// which cannot merge a type that is not described here.
//
// The staging libraries ship names and documentation of these types, but not their
// definitions; so they are generated. After a change of the k8s.io versions in
// go.mod, or when a group is added to package kinds, run
//
//	go generate ./internal/apiserver/openapi
//
// The tool's version below is the one of k8s.io/kube-openapi in go.mod; a test holds
// the two together. The definitions of CustomResourceDefinition are not here: the
// library that serves them has its own.
package openapi

//go:generate go run k8s.io/kube-openapi/cmd/openapi-gen@v0.0.0-20260721132016-d427ff9ee9ad --output-dir . --output-pkg github.com/coppice-dev/coppice/internal/apiserver/openapi --output-file zz_generated.openapi.go --report-filename /dev/null k8s.io/api/admissionregistration/v1 k8s.io/api/apps/v1 k8s.io/api/apps/v1beta1 k8s.io/api/apps/v1beta2 k8s.io/api/authentication/v1 k8s.io/api/authorization/v1 k8s.io/api/autoscaling/v1 k8s.io/api/autoscaling/v2 k8s.io/api/batch/v1 k8s.io/api/coordination/v1 k8s.io/api/core/v1 k8s.io/api/discovery/v1 k8s.io/api/extensions/v1beta1 k8s.io/api/flowcontrol/v1 k8s.io/api/networking/v1 k8s.io/api/policy/v1 k8s.io/api/rbac/v1 k8s.io/api/scheduling/v1 k8s.io/api/scheduling/v1alpha3 k8s.io/api/storage/v1 k8s.io/apimachinery/pkg/api/resource k8s.io/apimachinery/pkg/apis/meta/v1 k8s.io/apimachinery/pkg/runtime k8s.io/apimachinery/pkg/util/intstr k8s.io/apimachinery/pkg/version
