package undo

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// madeByControllers has the kinds whose objects controllers create by themselves, with the reason for the report.
var madeByControllers = map[schema.GroupKind]string{
	{Kind: "Event"}:                                                   "it is a record of the past",
	{Group: "events.k8s.io", Kind: "Event"}:                           "it is a record of the past",
	{Group: "coordination.k8s.io", Kind: "Lease"}:                     "its holder creates it again",
	{Group: "networking.k8s.io", Kind: "IPAddress"}:                   "it is created again with its Service",
	{Group: "storage.k8s.io", Kind: "VolumeAttachment"}:               "it is created again when a pod uses the volume",
	{Group: "certificates.k8s.io", Kind: "CertificateSigningRequest"}: "its requester requests a new certificate",
	{Group: "certificates.k8s.io", Kind: "PodCertificateRequest"}:     "the node of its pod requests a new certificate",
}

// LeavesOut reports whether an undo never recreates objects of a kind, so that they need not be kept.
func LeavesOut(kind schema.GroupKind) bool { return madeByControllers[kind] != "" }

// remadeByItself returns the reason why a controller recreates an object, or why it must not be recreated; empty if
// the undo has to create it. services are the kept Services that have a selector.
func remadeByItself(k *Kept, services map[Place]bool) string {
	o := k.Object
	place := k.Place()
	if why := madeByControllers[place.Kind]; why != "" {
		return why
	}
	switch place.Kind {
	case schema.GroupKind{Group: "discovery.k8s.io", Kind: "EndpointSlice"}:
		if by := o.GetLabels()["endpointslice.kubernetes.io/managed-by"]; strings.HasSuffix(by, "-controller.k8s.io") {
			return "it is created again by the " + strings.TrimSuffix(by, ".k8s.io")
		}
	case schema.GroupKind{Kind: "Endpoints"}:
		if services[Place{serviceKind, place.Namespace, place.Name}] {
			return "it is created again with its Service"
		}
	case schema.GroupKind{Kind: "ConfigMap"}:
		if place.Name == "kube-root-ca.crt" {
			return "it is created again in every namespace"
		}
	case schema.GroupKind{Group: "certificates.k8s.io", Kind: "ClusterTrustBundle"}:
		if strings.HasPrefix(place.Name, "kubernetes.io:kube-apiserver-serving:") {
			return "it is created again by the controllers"
		}
	case schema.GroupKind{Kind: "Secret"}:
		if kind, _, _ := unstructured.NestedString(o.Object, "type"); kind == "kubernetes.io/service-account-token" {
			return "its token belongs to a service account with another UID: create a new token"
		}
	case serviceKind:
		if place.Namespace == metav1.NamespaceDefault && place.Name == "kubernetes" {
			return "the API server creates it again"
		}
	case schema.GroupKind{Group: "apiregistration.k8s.io", Kind: "APIService"}:
		if o.GetLabels()["kube-aggregator.kubernetes.io/automanaged"] != "" {
			return "the API server creates it again"
		}
	case podKind:
		return podEnded(o)
	case jobKind:
		if hasFinished(o) {
			return "it had finished, and would run again"
		}
	}
	return ""
}

func podEnded(o *unstructured.Unstructured) string {
	if o.GetAnnotations()["kubernetes.io/config.mirror"] != "" {
		return "it mirrors a static pod, and its node creates it again"
	}
	switch phase, _, _ := unstructured.NestedString(o.Object, "status", "phase"); phase {
	case "Succeeded", "Failed":
		return "it had finished, and would run again"
	}
	return ""
}

// hasFinished reports whether a Job is complete or has failed.
func hasFinished(o *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	return slices.ContainsFunc(conditions, func(c any) bool {
		condition, _ := c.(map[string]any)
		return (condition["type"] == "Complete" || condition["type"] == "Failed") && condition["status"] == "True"
	})
}

// servicesWithSelector returns the Services whose endpoints controllers create.
func servicesWithSelector(kept []Kept) map[Place]bool {
	services := map[Place]bool{}
	for n := range kept {
		if selector, _, _ := unstructured.NestedMap(kept[n].Object.Object, "spec", "selector"); kept[n].Place().Kind == serviceKind && len(selector) > 0 {
			services[kept[n].Place()] = true
		}
	}
	return services
}

// leaveOut leaves out pods that a controller replaces, and objects whose owners are all left out.
func (p *Plan) leaveOut() {
	for _, s := range p.Steps {
		controller := metav1.GetControllerOf(s.kept.Object)
		if s.Outcome == Made && s.place.Kind == podKind && controller != nil && p.comes(controller.UID) {
			s.end(LeftOut, "it ran; "+controller.Kind+" "+controller.Name+" makes another one")
		}
	}
	for changed := true; changed; {
		changed = false
		for _, s := range p.Steps {
			if s.Outcome == Made && !s.kept.Requested && p.onlyOwnedByLeftOut(s) {
				s.end(LeftOut, "its owner is not restored with the same UID")
				changed = true
			}
		}
	}
}

// comes reports whether an owner exists or will exist, or whether a controller has created another one, according to
// its owner reference.
func (p *Plan) comes(uid types.UID) bool {
	s := p.steps[uid]
	return p.present[uid] != "" || s != nil && (s.Outcome == Made || s.comesFromMaker)
}

// onlyOwnedByLeftOut reports whether an object has owners, and all are left out: the controller that recreates such
// an owner also recreates its dependents.
func (p *Plan) onlyOwnedByLeftOut(s *Step) bool {
	owners := s.kept.Object.GetOwnerReferences()
	return len(owners) > 0 && !slices.ContainsFunc(owners, func(r metav1.OwnerReference) bool {
		owner := p.steps[r.UID]
		return owner == nil || owner.Outcome != LeftOut
	})
}

// guardsInside has the finalizers of Kubernetes that guard only something inside the cluster.
var guardsInside = map[string]bool{
	"kubernetes": true, "kubernetes.io/pvc-protection": true, "kubernetes.io/pv-protection": true,
	"batch.kubernetes.io/job-tracking": true, "customresourcecleanup.apiextensions.k8s.io": true,
}

// warn adds notes about the parts of an object that the undo cannot restore.
func (p *Plan) warn(s *Step, cluster Cluster) {
	for _, f := range s.kept.finalizers() {
		if !guardsInside[f] {
			s.note("it had the finalizer " + f + ": its controller may have destroyed resources outside of the cluster")
		}
	}
	if s.kept.OrphansUnknown {
		s.note("its deletion orphaned its dependents, which have no reference to it now")
	}
	if s.kept.Earlier {
		s.note("it has the contents that an earlier attempt to delete it has read")
	}
	switch s.place.Kind {
	case podKind:
		s.note("it starts again")
		if debugged, _, _ := unstructured.NestedSlice(s.kept.Object.Object, "spec", "ephemeralContainers"); len(debugged) > 0 {
			s.note("without its ephemeral containers, which only a running pod can get")
		}
	case jobKind:
		s.note("it runs again, from the beginning")
	case volumeKind:
		if policy, _, _ := unstructured.NestedString(s.kept.Object.Object, "spec", "persistentVolumeReclaimPolicy"); policy == "Delete" {
			s.note("its storage may have been deleted with it")
		}
		if p.isReleased(s) {
			p.noteReleased(s)
		}
	case claimKind:
		name := volumeOf(s.kept)
		volume := Place{Kind: volumeKind, Name: name}
		_, there := cluster.Existing[volume]
		switch why := cluster.unread(volume); {
		case name == "" || there || p.at[volume] != nil:
		case why != "":
			p.VolumeUnread(name, why)
		default:
			s.note("its volume " + name + " is gone, with its data")
		}
	}
}
