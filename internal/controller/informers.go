package controller

import (
	"context"
	"fmt"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	appslisters "k8s.io/client-go/listers/apps/v1"
	batchlisters "k8s.io/client-go/listers/batch/v1"
	certificateslisters "k8s.io/client-go/listers/certificates/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	discoverylisters "k8s.io/client-go/listers/discovery/v1"
	networkinglisters "k8s.io/client-go/listers/networking/v1"
	policylisters "k8s.io/client-go/listers/policy/v1"
	resourcelisters "k8s.io/client-go/listers/resource/v1"
	"k8s.io/client-go/tools/cache"
)

// Informers are the shared informers of the controllers: one cache per process for each resource that
// any of them reads.
//
// The informers are client-go's, from its SharedInformerFactory. Its type does not appear in the types
// here: a package that sees it, even in a field of a field, compiles eight methods for each of the
// three hundred resources of all versions. Twenty controllers each took longer for that than for their
// own code.
type Informers struct {
	ControllerRevisions SharedInformer[appslisters.ControllerRevisionLister]
	DaemonSets          SharedInformer[appslisters.DaemonSetLister]
	Deployments         SharedInformer[appslisters.DeploymentLister]
	ReplicaSets         SharedInformer[appslisters.ReplicaSetLister]
	StatefulSets        SharedInformer[appslisters.StatefulSetLister]

	CronJobs SharedInformer[batchlisters.CronJobLister]
	Jobs     SharedInformer[batchlisters.JobLister]

	CertificateSigningRequests SharedInformer[certificateslisters.CertificateSigningRequestLister]

	Endpoints              SharedInformer[corelisters.EndpointsLister]
	Namespaces             SharedInformer[corelisters.NamespaceLister]
	Nodes                  SharedInformer[corelisters.NodeLister]
	PersistentVolumeClaims SharedInformer[corelisters.PersistentVolumeClaimLister]
	Pods                   SharedInformer[corelisters.PodLister]
	ReplicationControllers SharedInformer[corelisters.ReplicationControllerLister]
	Services               SharedInformer[corelisters.ServiceLister]

	EndpointSlices SharedInformer[discoverylisters.EndpointSliceLister]

	IPAddresses  SharedInformer[networkinglisters.IPAddressLister]
	ServiceCIDRs SharedInformer[networkinglisters.ServiceCIDRLister]

	PodDisruptionBudgets SharedInformer[policylisters.PodDisruptionBudgetLister]

	DeviceTaintRules       SharedInformer[resourcelisters.DeviceTaintRuleLister]
	ResourceClaims         SharedInformer[resourcelisters.ResourceClaimLister]
	ResourceClaimTemplates SharedInformer[resourcelisters.ResourceClaimTemplateLister]
	ResourceSlices         SharedInformer[resourcelisters.ResourceSliceLister]

	start    func(context.Context) // starts the informers that exist, until the context ends
	shutdown func()                // waits until all informers have ended
	made     *madeInformers
}

// madeInformers are the informers that exist. It is safe for concurrent use.
type madeInformers struct {
	mu  sync.Mutex
	all map[schema.GroupResource]cache.SharedIndexInformer // guarded by mu
}

func (m *madeInformers) add(resource schema.GroupResource, informer cache.SharedIndexInformer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.all[resource] = informer
}

// Behind returns the resources whose caches are behind, given the resourceVersion that each cache has reached.
func (i *Informers) Behind(isBehind func(resource schema.GroupResource, resourceVersion string) bool) (behind []string) {
	i.made.mu.Lock()
	defer i.made.mu.Unlock()
	for resource, informer := range i.made.all {
		if isBehind(resource, informer.GetStore().LastStoreSyncResourceVersion()) {
			behind = append(behind, resource.String())
		}
	}
	return behind
}

// newInformers returns informers that pass each object through a transformation before they store it.
func newInformers(client kubernetes.Interface, transform cache.TransformFunc) *Informers {
	shared := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTransform(transform))
	made := &madeInformers{all: map[schema.GroupResource]cache.SharedIndexInformer{}}
	of := informerFactory(func(resource schema.GroupVersionResource) (cache.SharedIndexInformer, error) {
		found, err := shared.ForResource(resource)
		if err != nil {
			return nil, err
		}
		made.add(resource.GroupResource(), found.Informer())
		return found.Informer(), nil
	})
	return &Informers{
		ControllerRevisions: informerOf(of, appsv1.SchemeGroupVersion, "controllerrevisions", appslisters.NewControllerRevisionLister),
		DaemonSets:          informerOf(of, appsv1.SchemeGroupVersion, "daemonsets", appslisters.NewDaemonSetLister),
		Deployments:         informerOf(of, appsv1.SchemeGroupVersion, "deployments", appslisters.NewDeploymentLister),
		ReplicaSets:         informerOf(of, appsv1.SchemeGroupVersion, "replicasets", appslisters.NewReplicaSetLister),
		StatefulSets:        informerOf(of, appsv1.SchemeGroupVersion, "statefulsets", appslisters.NewStatefulSetLister),

		CronJobs: informerOf(of, batchv1.SchemeGroupVersion, "cronjobs", batchlisters.NewCronJobLister),
		Jobs:     informerOf(of, batchv1.SchemeGroupVersion, "jobs", batchlisters.NewJobLister),

		CertificateSigningRequests: informerOf(
			of, certificatesv1.SchemeGroupVersion, "certificatesigningrequests", certificateslisters.NewCertificateSigningRequestLister),

		Endpoints:              informerOf(of, corev1.SchemeGroupVersion, "endpoints", corelisters.NewEndpointsLister),
		Namespaces:             informerOf(of, corev1.SchemeGroupVersion, "namespaces", corelisters.NewNamespaceLister),
		Nodes:                  informerOf(of, corev1.SchemeGroupVersion, "nodes", corelisters.NewNodeLister),
		PersistentVolumeClaims: informerOf(of, corev1.SchemeGroupVersion, "persistentvolumeclaims", corelisters.NewPersistentVolumeClaimLister),
		Pods:                   informerOf(of, corev1.SchemeGroupVersion, "pods", corelisters.NewPodLister),
		ReplicationControllers: informerOf(of, corev1.SchemeGroupVersion, "replicationcontrollers", corelisters.NewReplicationControllerLister),
		Services:               informerOf(of, corev1.SchemeGroupVersion, "services", corelisters.NewServiceLister),

		EndpointSlices: informerOf(of, discoveryv1.SchemeGroupVersion, "endpointslices", discoverylisters.NewEndpointSliceLister),

		IPAddresses:  informerOf(of, networkingv1.SchemeGroupVersion, "ipaddresses", networkinglisters.NewIPAddressLister),
		ServiceCIDRs: informerOf(of, networkingv1.SchemeGroupVersion, "servicecidrs", networkinglisters.NewServiceCIDRLister),

		PodDisruptionBudgets: informerOf(of, policyv1.SchemeGroupVersion, "poddisruptionbudgets", policylisters.NewPodDisruptionBudgetLister),

		DeviceTaintRules:       informerOf(of, resourcev1.SchemeGroupVersion, "devicetaintrules", resourcelisters.NewDeviceTaintRuleLister),
		ResourceClaims:         informerOf(of, resourcev1.SchemeGroupVersion, "resourceclaims", resourcelisters.NewResourceClaimLister),
		ResourceClaimTemplates: informerOf(of, resourcev1.SchemeGroupVersion, "resourceclaimtemplates", resourcelisters.NewResourceClaimTemplateLister),
		ResourceSlices:         informerOf(of, resourcev1.SchemeGroupVersion, "resourceslices", resourcelisters.NewResourceSliceLister),

		start: shared.StartWithContext, shutdown: shared.Shutdown, made: made,
	}
}

// informerFactory returns the informer of a resource, and creates it with the first request.
type informerFactory func(schema.GroupVersionResource) (cache.SharedIndexInformer, error)

// SharedInformer is the informer of a resource, and a lister on its cache. The informer is created, and
// started, once one of the two is requested.
type SharedInformer[L any] struct {
	factory   informerFactory
	resource  schema.GroupVersionResource
	newLister func(cache.Indexer) L
}

func informerOf[L any](f informerFactory, version schema.GroupVersion, resource string, newLister func(cache.Indexer) L) SharedInformer[L] {
	return SharedInformer[L]{f, version.WithResource(resource), newLister}
}

// Informer returns the informer.
func (s SharedInformer[L]) Informer() cache.SharedIndexInformer {
	informer, err := s.factory(s.resource)
	if err != nil {
		panic(fmt.Sprintf("informers: %v", err)) // client-go has informers for all resources that this file names
	}
	return informer
}

// Lister returns the lister.
func (s SharedInformer[L]) Lister() L { return s.newLister(s.Informer().GetIndexer()) }
