// Package finalizers has the names of finalizers that both a controller and the API server
// need: the controller removes them, admission sets them and restricts their removal.
package finalizers

// The finalizers of volume protection (R23), under the names that Kubernetes gives them.
const (
	// PVCProtection keeps a PersistentVolumeClaim while a pod uses it.
	PVCProtection = "kubernetes.io/pvc-protection"
	// PVProtection keeps a PersistentVolume while it is bound to a PersistentVolumeClaim.
	PVProtection = "kubernetes.io/pv-protection"
	// VACProtection keeps a VolumeAttributesClass while a PersistentVolume or a
	// PersistentVolumeClaim names it.
	VACProtection = "kubernetes.io/vac-protection"
)

// ServiceCIDRProtection keeps a ServiceCIDR while an address of it is in use (R23). The name is
// Kubernetes'.
const ServiceCIDRProtection = "networking.k8s.io/service-cidr-finalizer"
