package inuse

// The finalizers, under the names that Kubernetes gives them. Admission sets them and restricts their removal, and a
// controller removes them.
const (
	// PVCProtection keeps a PersistentVolumeClaim while a pod uses it.
	PVCProtection = "kubernetes.io/pvc-protection"
	// PVProtection keeps a PersistentVolume while it is bound to a PersistentVolumeClaim.
	PVProtection = "kubernetes.io/pv-protection"
	// VACProtection keeps a VolumeAttributesClass while a PersistentVolume or a
	// PersistentVolumeClaim names it.
	VACProtection = "kubernetes.io/vac-protection"
	// ServiceCIDRProtection keeps a ServiceCIDR while an address of it is in use.
	ServiceCIDRProtection = "networking.k8s.io/service-cidr-finalizer"
)
