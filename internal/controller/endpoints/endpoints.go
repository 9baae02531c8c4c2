// Package endpoints keeps the endpoints of Services, by three controllers of Kubernetes:
//
//	endpoint                 pods that a Service selects ──▶ Endpoints
//	endpointslice            pods that a Service selects ──▶ EndpointSlices
//	endpointslicemirroring   Endpoints that a user wrote ──▶ EndpointSlices
//
// Each has a pair of a plan (pure) and a controller, except that the rules of endpointslice are those of
// k8s.io/endpointslice.
package endpoints

import "github.com/coppice-dev/coppice/internal/controller"

// Controllers returns the controllers.
func Controllers(shared *controller.Context) []*controller.Controller {
	return []*controller.Controller{newEndpointsController(shared), newSlicesController(shared), newMirroringController(shared)}
}
