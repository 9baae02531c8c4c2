package system

import (
	"context"
	"fmt"

	certificatesv1 "k8s.io/api/certificates/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagemigrationv1 "k8s.io/api/storagemigration/v1"
	apiextensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/utils/clock"

	"github.com/coppice-dev/coppice/internal/apiserver"
	"github.com/coppice-dev/coppice/internal/controller"
	"github.com/coppice-dev/coppice/internal/controller/certificates"
	"github.com/coppice-dev/coppice/internal/controller/cronjob"
	"github.com/coppice-dev/coppice/internal/controller/daemonset"
	"github.com/coppice-dev/coppice/internal/controller/deployment"
	"github.com/coppice-dev/coppice/internal/controller/devicetainteviction"
	"github.com/coppice-dev/coppice/internal/controller/disruption"
	"github.com/coppice-dev/coppice/internal/controller/endpoints"
	"github.com/coppice-dev/coppice/internal/controller/job"
	"github.com/coppice-dev/coppice/internal/controller/nodelifecycle"
	"github.com/coppice-dev/coppice/internal/controller/podautoscaler"
	"github.com/coppice-dev/coppice/internal/controller/replicaset"
	"github.com/coppice-dev/coppice/internal/controller/resourceclaim"
	"github.com/coppice-dev/coppice/internal/controller/resourcequota"
	"github.com/coppice-dev/coppice/internal/controller/serviceaccount"
	"github.com/coppice-dev/coppice/internal/controller/servicecidrs"
	"github.com/coppice-dev/coppice/internal/controller/statefulset"
	"github.com/coppice-dev/coppice/internal/controller/storageversionmigrator"
)

// newControllerContext returns the shared context of the workload controllers.
func newControllerContext(o completedOptions, api *apiserver.Server) (*controller.Context, error) {
	config, err := api.Workloads()
	if err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("create the client of the workloads: %w", err)
	}
	shared, err := controller.NewContext(client, clock.RealClock{}, o.Log)
	if err != nil {
		return nil, err
	}
	if err := shared.Informers.Pods.Informer().SetTransform(api.SharePod); err != nil {
		return nil, fmt.Errorf("share pods with the API server: %w", err)
	}
	return shared, nil
}

// newResourceQuotas returns the ResourceQuota controller. It uses the caches of the workload controllers,
// and a user of its own to read the metadata of all objects, which these controllers may not read.
func newResourceQuotas(o completedOptions, api *apiserver.Server, shared *controller.Context) (*resourcequota.Controller, error) {
	config, err := api.ResourceQuotaController()
	if err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("create the client of the resource quotas: %w", err)
	}
	objects, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("create the metadata client of the resource quotas: %w", err)
	}
	return resourcequota.New(resourcequota.Config{
		Client: client, Metadata: objects, Clock: shared.Clock, Log: o.Log,
		Pods: shared.Informers.Pods.Informer(), Services: shared.Informers.Services.Informer(), Claims: shared.Informers.PersistentVolumeClaims.Informer(),
	})
}

// newServiceAddresses returns a function that maintains the IPAddresses of services until its context ends.
func newServiceAddresses(o completedOptions, api *apiserver.Server) (func(context.Context) error, error) {
	config, err := api.Workloads()
	if err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("create the client of the addresses of services: %w", err)
	}
	shared := controller.NewPodlessContext(client, clock.RealClock{}, o.Log)
	addresses, err := servicecidrs.Addresses(shared)
	if err != nil {
		return nil, fmt.Errorf("make the controller of the addresses of services: %w", err)
	}
	return func(ctx context.Context) error { return shared.Run(ctx, addresses) }, nil
}

// newPodAutoscaler returns the HorizontalPodAutoscaler controller.
func newPodAutoscaler(api *apiserver.Server, shared *controller.Context) (*controller.Controller, error) {
	config, err := api.HorizontalPodAutoscaler()
	if err != nil {
		return nil, err
	}
	return podautoscaler.New(shared, config)
}

// newTokens returns the controller of service account tokens in Secrets. It has its own user, because the
// workload controllers may not read Secrets.
func newTokens(api *apiserver.Server) (*controller.Controller, error) {
	config, err := api.TokensController()
	if err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("create the client of the tokens controller: %w", err)
	}
	return serviceaccount.NewTokens(serviceaccount.TokensConfig{Client: client, Authority: api.Authority(), Sign: api.SignForSecret}), nil
}

// newStorageVersionMigrator returns the controller that rewrites stored objects. It has its own user, who may patch
// any object, but change none.
func newStorageVersionMigrator(api *apiserver.Server, shared *controller.Context) (*controller.Controller, error) {
	config, err := api.StorageVersionMigrator()
	if err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("create the client of the storage version migrator: %w", err)
	}
	objects, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("create the metadata client of the storage version migrator: %w", err)
	}
	definitions, err := apiextensionsclient.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("create the client for definitions of the storage version migrator: %w", err)
	}
	return storageversionmigrator.New(storageversionmigrator.Config{
		Client: client, Metadata: objects, Definitions: definitions, Now: shared.Clock.Now,
	})
}

// runWorkloads runs the workload controllers until ctx ends.
func runWorkloads(ctx context.Context, o completedOptions, api *apiserver.Server, shared *controller.Context) error {
	controllers := []*controller.Controller{
		replicaset.ReplicaSets(shared), replicaset.ReplicationControllers(shared), serviceaccount.New(shared, api.Authority()),
		nodelifecycle.NewPodGC(shared, nodelifecycle.DefaultPodLimits()), nodelifecycle.New(shared, o.NodeGrace),
		certificates.New(shared, api.Signer()),
	}
	if api.Serves(certificatesv1.SchemeGroupVersion, "clustertrustbundles") {
		controllers = append(controllers, certificates.NewTrustBundlePublisher(shared, api.Authority()), certificates.NewPodRequestCleaner(shared))
	}
	claims, err := resourceclaim.Controllers(shared)
	if err != nil {
		return fmt.Errorf("make the controllers of resource claims: %w", err)
	}
	controllers = append(controllers, claims...)
	if api.Serves(resourcev1.SchemeGroupVersion, "devicetaintrules") {
		evictions, err := devicetainteviction.Controllers(shared)
		if err != nil {
			return fmt.Errorf("make the controllers of the taints of devices: %w", err)
		}
		controllers = append(controllers, evictions...)
	}
	addresses, err := servicecidrs.Controllers(shared)
	if err != nil {
		return fmt.Errorf("make the controllers of the addresses of services: %w", err)
	}
	controllers = append(controllers, addresses...)
	controllers = append(controllers, endpoints.Controllers(shared)...)
	controllers = append(controllers, job.Controllers(shared)...)
	controllers = append(controllers, disruption.Controllers(shared)...)
	for _, made := range []func(*controller.Context) (*controller.Controller, error){deployment.New, statefulset.New, daemonset.New, cronjob.New} {
		controller, err := made(shared)
		if err != nil {
			return fmt.Errorf("make a controller of workloads: %w", err)
		}
		controllers = append(controllers, controller)
	}
	autoscaler, err := newPodAutoscaler(api, shared)
	if err != nil {
		return err
	}
	tokens, err := newTokens(api)
	if err != nil {
		return err
	}
	controllers = append(controllers, autoscaler, tokens)
	if api.Serves(storagemigrationv1.SchemeGroupVersion, "storageversionmigrations") {
		migrator, err := newStorageVersionMigrator(api, shared)
		if err != nil {
			return err
		}
		controllers = append(controllers, migrator)
	}
	return shared.Run(ctx, controllers...)
}
