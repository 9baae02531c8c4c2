package preview

import (
	authenticationv1 "k8s.io/api/authentication/v1"
	batchv1 "k8s.io/api/batch/v1"

	"github.com/coppice-dev/coppice/internal/rules/inuse"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
)

// Actor is a user or component that deletes objects.
type Actor string

// The actors.
const (
	ByUser                Actor = "User"
	ByCollector           Actor = "Collector"
	ByNamespaceController Actor = "NamespaceController"
	ByServer              Actor = "Server"
	ByNode                Actor = "Node"
	ByPodCollector        Actor = "PodGarbageCollector"
	ByTokensController    Actor = "TokensController"
	ByEndpointsController Actor = "EndpointsController"
	// These remove finalizers.
	ByJobController        Actor = "JobController"
	ByProtectionController Actor = "ProtectionController"
	// byUnknown is a controller whose user is not known: its requests are not judged.
	byUnknown Actor = ""
)

// RemoverOf returns the actor that removes a finalizer; empty for a controller whose user is not known.
func RemoverOf(finalizer string) Actor {
	switch finalizer {
	case ownership.FinalizerForeground, ownership.FinalizerOrphan:
		return ByCollector
	case inuse.PVCProtection, inuse.PVProtection, inuse.VACProtection:
		return ByProtectionController
	case batchv1.JobTrackingFinalizer:
		return ByJobController
	}
	return byUnknown
}

// UserOf returns the user of an actor that changes or deletes an object. pod is the object if it is a pod, and known.
func UserOf(by Actor, o *inventory.Object, pod *inventory.Pod, d inventory.Deleters) authenticationv1.UserInfo {
	switch by {
	case ByCollector:
		return d.Collector
	case ByNamespaceController:
		return d.NamespaceController
	case ByNode:
		node := ""
		if pod != nil {
			node = pod.Node
		}
		return authenticationv1.UserInfo{Username: "system:node:" + node, Groups: []string{"system:nodes", "system:authenticated"}}
	case ByPodCollector:
		return d.PodCollector
	case ByTokensController:
		return d.TokensController
	case ByEndpointsController:
		return d.EndpointsController
	case ByJobController:
		return d.JobController
	case ByProtectionController:
		return protectorOf(o, d)
	case ByUser, ByServer, byUnknown:
	}
	return d.Requester
}

// protectorOf returns the controller that protects an object in use.
func protectorOf(o *inventory.Object, d inventory.Deleters) authenticationv1.UserInfo {
	switch o.Kind.Kind {
	case "PersistentVolumeClaim":
		return d.ClaimProtector
	case "PersistentVolume":
		return d.VolumeProtector
	}
	return d.ClassProtector
}
