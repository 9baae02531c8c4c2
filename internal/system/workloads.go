package system

import (
	"cmp"
	"context"
	"fmt"

	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	"github.com/coppice-dev/coppice/internal/apiserver"
	"github.com/coppice-dev/coppice/internal/controller"
	"github.com/coppice-dev/coppice/internal/controller/cronjob"
	"github.com/coppice-dev/coppice/internal/controller/daemonset"
	"github.com/coppice-dev/coppice/internal/controller/deployment"
	"github.com/coppice-dev/coppice/internal/controller/endpoint"
	"github.com/coppice-dev/coppice/internal/controller/endpointslice"
	"github.com/coppice-dev/coppice/internal/controller/endpointslicemirroring"
	"github.com/coppice-dev/coppice/internal/controller/job"
	"github.com/coppice-dev/coppice/internal/controller/nodelifecycle"
	"github.com/coppice-dev/coppice/internal/controller/podgc"
	"github.com/coppice-dev/coppice/internal/controller/replicaset"
	"github.com/coppice-dev/coppice/internal/controller/serviceaccount"
	"github.com/coppice-dev/coppice/internal/controller/statefulset"
)

// newControllerContext returns what the workload controllers share.
func newControllerContext(o Options, api *apiserver.Server) (*controller.Context, error) {
	config, err := api.Workloads()
	if err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("create the client of the workloads: %w", err)
	}
	return controller.NewContext(client, clock.RealClock{}, o.Log)
}

// runWorkloads runs the workload controllers until ctx ends.
func runWorkloads(ctx context.Context, o Options, api *apiserver.Server, shared *controller.Context) error {
	controllers := []*controller.Controller{
		replicaset.ReplicaSets(shared), replicaset.ReplicationControllers(shared), serviceaccount.New(shared, api.Authority()),
		endpoint.New(shared), endpointslice.New(shared), endpointslicemirroring.New(shared),
		podgc.New(shared, podgc.DefaultLimits()), nodelifecycle.New(shared, cmp.Or(o.NodeGrace, nodelifecycle.DefaultGrace)),
	}
	controllers = append(controllers, job.Controllers(shared)...)
	for _, made := range []func(*controller.Context) (*controller.Controller, error){deployment.New, statefulset.New, daemonset.New, cronjob.New} {
		controller, err := made(shared)
		if err != nil {
			return fmt.Errorf("make a controller of workloads: %w", err)
		}
		controllers = append(controllers, controller)
	}
	return shared.Run(ctx, controllers...)
}
