package system

import (
	"cmp"
	"context"
	"fmt"

	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	"github.com/coppice-dev/coppice/internal/apiserver"
	"github.com/coppice-dev/coppice/internal/workloads"
	"github.com/coppice-dev/coppice/internal/workloads/accounts"
	"github.com/coppice-dev/coppice/internal/workloads/cronjob"
	"github.com/coppice-dev/coppice/internal/workloads/daemonset"
	"github.com/coppice-dev/coppice/internal/workloads/deployment"
	"github.com/coppice-dev/coppice/internal/workloads/job"
	"github.com/coppice-dev/coppice/internal/workloads/nodes"
	"github.com/coppice-dev/coppice/internal/workloads/podgc"
	"github.com/coppice-dev/coppice/internal/workloads/replicas"
	"github.com/coppice-dev/coppice/internal/workloads/slices"
	"github.com/coppice-dev/coppice/internal/workloads/statefulset"
)

// newWorld makes what the controllers of workloads share.
func newWorld(o Options, api *apiserver.Server) (*workloads.World, error) {
	config, err := api.Workloads()
	if err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("create the client of the workloads: %w", err)
	}
	return workloads.NewWorld(client, clock.RealClock{}, o.Log)
}

// runWorkloads runs the controllers of workloads until ctx ends.
func runWorkloads(ctx context.Context, o Options, api *apiserver.Server, world *workloads.World) error {
	controllers := []*workloads.Controller{
		replicas.ReplicaSets(world), replicas.ReplicationControllers(world), accounts.New(world, api.Authority()), slices.New(world),
		podgc.New(world, podgc.DefaultLimits()), nodes.New(world, cmp.Or(o.NodeGrace, nodes.DefaultGrace)),
	}
	controllers = append(controllers, job.Controllers(world)...)
	for _, made := range []func(*workloads.World) (*workloads.Controller, error){deployment.New, statefulset.New, daemonset.New, cronjob.New} {
		controller, err := made(world)
		if err != nil {
			return fmt.Errorf("make a controller of workloads: %w", err)
		}
		controllers = append(controllers, controller)
	}
	return world.Run(ctx, controllers...)
}
