package informers

import (
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	appslisters "k8s.io/client-go/listers/apps/v1"
	batchlisters "k8s.io/client-go/listers/batch/v1"
	certificateslisters "k8s.io/client-go/listers/certificates/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	discoverylisters "k8s.io/client-go/listers/discovery/v1"
	networkinglisters "k8s.io/client-go/listers/networking/v1"
	policylisters "k8s.io/client-go/listers/policy/v1"
	resourcelisters "k8s.io/client-go/listers/resource/v1"
)

// The methods have the names of client-go's factory: Factory.Apps().V1().Deployments().

type (
	// Apps is the group apps.
	Apps struct{ f *Factory }
	// AppsV1 has the resources of its version v1.
	AppsV1 struct{ f *Factory }
	// Batch is the group batch.
	Batch struct{ f *Factory }
	// BatchV1 has the resources of its version v1.
	BatchV1 struct{ f *Factory }
	// Certificates is the group certificates.k8s.io.
	Certificates struct{ f *Factory }
	// CertificatesV1 has the resources of its version v1.
	CertificatesV1 struct{ f *Factory }
	// Core is the core group.
	Core struct{ f *Factory }
	// CoreV1 has the resources of its version v1.
	CoreV1 struct{ f *Factory }
	// Discovery is the group discovery.k8s.io.
	Discovery struct{ f *Factory }
	// DiscoveryV1 has the resources of its version v1.
	DiscoveryV1 struct{ f *Factory }
	// Networking is the group networking.k8s.io.
	Networking struct{ f *Factory }
	// NetworkingV1 has the resources of its version v1.
	NetworkingV1 struct{ f *Factory }
	// Policy is the group policy.
	Policy struct{ f *Factory }
	// PolicyV1 has the resources of its version v1.
	PolicyV1 struct{ f *Factory }
	// Resource is the group resource.k8s.io.
	Resource struct{ f *Factory }
	// ResourceV1 has the resources of its version v1.
	ResourceV1 struct{ f *Factory }
)

// Apps returns the group apps.
func (f *Factory) Apps() Apps { return Apps{f} }

// V1 returns its version v1.
func (g Apps) V1() AppsV1 { return AppsV1(g) }

// ControllerRevisions returns the informer of that resource.
func (v AppsV1) ControllerRevisions() Source[appslisters.ControllerRevisionLister] {
	return source(v.f, appsv1.SchemeGroupVersion, "controllerrevisions", appslisters.NewControllerRevisionLister)
}

// DaemonSets returns the informer of that resource.
func (v AppsV1) DaemonSets() Source[appslisters.DaemonSetLister] {
	return source(v.f, appsv1.SchemeGroupVersion, "daemonsets", appslisters.NewDaemonSetLister)
}

// Deployments returns the informer of that resource.
func (v AppsV1) Deployments() Source[appslisters.DeploymentLister] {
	return source(v.f, appsv1.SchemeGroupVersion, "deployments", appslisters.NewDeploymentLister)
}

// ReplicaSets returns the informer of that resource.
func (v AppsV1) ReplicaSets() Source[appslisters.ReplicaSetLister] {
	return source(v.f, appsv1.SchemeGroupVersion, "replicasets", appslisters.NewReplicaSetLister)
}

// StatefulSets returns the informer of that resource.
func (v AppsV1) StatefulSets() Source[appslisters.StatefulSetLister] {
	return source(v.f, appsv1.SchemeGroupVersion, "statefulsets", appslisters.NewStatefulSetLister)
}

// Batch returns the group batch.
func (f *Factory) Batch() Batch { return Batch{f} }

// V1 returns its version v1.
func (g Batch) V1() BatchV1 { return BatchV1(g) }

// CronJobs returns the informer of that resource.
func (v BatchV1) CronJobs() Source[batchlisters.CronJobLister] {
	return source(v.f, batchv1.SchemeGroupVersion, "cronjobs", batchlisters.NewCronJobLister)
}

// Jobs returns the informer of that resource.
func (v BatchV1) Jobs() Source[batchlisters.JobLister] {
	return source(v.f, batchv1.SchemeGroupVersion, "jobs", batchlisters.NewJobLister)
}

// Certificates returns the group certificates.k8s.io.
func (f *Factory) Certificates() Certificates { return Certificates{f} }

// V1 returns its version v1.
func (g Certificates) V1() CertificatesV1 { return CertificatesV1(g) }

// CertificateSigningRequests returns the informer of that resource.
func (v CertificatesV1) CertificateSigningRequests() Source[certificateslisters.CertificateSigningRequestLister] {
	return source(v.f, certificatesv1.SchemeGroupVersion, "certificatesigningrequests", certificateslisters.NewCertificateSigningRequestLister)
}

// Core returns the core group.
func (f *Factory) Core() Core { return Core{f} }

// V1 returns its version v1.
func (g Core) V1() CoreV1 { return CoreV1(g) }

// Endpoints returns the informer of that resource.
func (v CoreV1) Endpoints() Source[corelisters.EndpointsLister] {
	return source(v.f, corev1.SchemeGroupVersion, "endpoints", corelisters.NewEndpointsLister)
}

// Namespaces returns the informer of that resource.
func (v CoreV1) Namespaces() Source[corelisters.NamespaceLister] {
	return source(v.f, corev1.SchemeGroupVersion, "namespaces", corelisters.NewNamespaceLister)
}

// Nodes returns the informer of that resource.
func (v CoreV1) Nodes() Source[corelisters.NodeLister] {
	return source(v.f, corev1.SchemeGroupVersion, "nodes", corelisters.NewNodeLister)
}

// PersistentVolumeClaims returns the informer of that resource.
func (v CoreV1) PersistentVolumeClaims() Source[corelisters.PersistentVolumeClaimLister] {
	return source(v.f, corev1.SchemeGroupVersion, "persistentvolumeclaims", corelisters.NewPersistentVolumeClaimLister)
}

// Pods returns the informer of that resource.
func (v CoreV1) Pods() Source[corelisters.PodLister] {
	return source(v.f, corev1.SchemeGroupVersion, "pods", corelisters.NewPodLister)
}

// ReplicationControllers returns the informer of that resource.
func (v CoreV1) ReplicationControllers() Source[corelisters.ReplicationControllerLister] {
	return source(v.f, corev1.SchemeGroupVersion, "replicationcontrollers", corelisters.NewReplicationControllerLister)
}

// Services returns the informer of that resource.
func (v CoreV1) Services() Source[corelisters.ServiceLister] {
	return source(v.f, corev1.SchemeGroupVersion, "services", corelisters.NewServiceLister)
}

// Discovery returns the group discovery.k8s.io.
func (f *Factory) Discovery() Discovery { return Discovery{f} }

// V1 returns its version v1.
func (g Discovery) V1() DiscoveryV1 { return DiscoveryV1(g) }

// EndpointSlices returns the informer of that resource.
func (v DiscoveryV1) EndpointSlices() Source[discoverylisters.EndpointSliceLister] {
	return source(v.f, discoveryv1.SchemeGroupVersion, "endpointslices", discoverylisters.NewEndpointSliceLister)
}

// Networking returns the group networking.k8s.io.
func (f *Factory) Networking() Networking { return Networking{f} }

// V1 returns its version v1.
func (g Networking) V1() NetworkingV1 { return NetworkingV1(g) }

// IPAddresses returns the informer of that resource.
func (v NetworkingV1) IPAddresses() Source[networkinglisters.IPAddressLister] {
	return source(v.f, networkingv1.SchemeGroupVersion, "ipaddresses", networkinglisters.NewIPAddressLister)
}

// ServiceCIDRs returns the informer of that resource.
func (v NetworkingV1) ServiceCIDRs() Source[networkinglisters.ServiceCIDRLister] {
	return source(v.f, networkingv1.SchemeGroupVersion, "servicecidrs", networkinglisters.NewServiceCIDRLister)
}

// Policy returns the group policy.
func (f *Factory) Policy() Policy { return Policy{f} }

// V1 returns its version v1.
func (g Policy) V1() PolicyV1 { return PolicyV1(g) }

// PodDisruptionBudgets returns the informer of that resource.
func (v PolicyV1) PodDisruptionBudgets() Source[policylisters.PodDisruptionBudgetLister] {
	return source(v.f, policyv1.SchemeGroupVersion, "poddisruptionbudgets", policylisters.NewPodDisruptionBudgetLister)
}

// Resource returns the group resource.k8s.io.
func (f *Factory) Resource() Resource { return Resource{f} }

// V1 returns its version v1.
func (g Resource) V1() ResourceV1 { return ResourceV1(g) }

// ResourceClaims returns the informer of that resource.
func (v ResourceV1) ResourceClaims() Source[resourcelisters.ResourceClaimLister] {
	return source(v.f, resourcev1.SchemeGroupVersion, "resourceclaims", resourcelisters.NewResourceClaimLister)
}

// ResourceClaimTemplates returns the informer of that resource.
func (v ResourceV1) ResourceClaimTemplates() Source[resourcelisters.ResourceClaimTemplateLister] {
	return source(v.f, resourcev1.SchemeGroupVersion, "resourceclaimtemplates", resourcelisters.NewResourceClaimTemplateLister)
}
