package inventory

import "github.com/coppice-dev/coppice/internal/rules/ownership"

// WorkloadKinds returns the kinds of workloads that run controllers.
func WorkloadKinds() []ownership.Kind {
	return []ownership.Kind{
		{Group: "apps", Kind: "Deployment"}, {Group: "apps", Kind: "StatefulSet"}, {Group: "apps", Kind: "DaemonSet"},
	}
}

// PodKind returns the kind of pods.
func PodKind() ownership.Kind { return ownership.Kind{Kind: "Pod"} }

// NodeKind returns the kind of nodes.
func NodeKind() ownership.Kind { return ownership.Kind{Kind: "Node"} }

// LeaseKind returns the kind of Leases.
func LeaseKind() ownership.Kind {
	return ownership.Kind{Group: "coordination.k8s.io", Kind: "Lease"}
}

func definitionKind() ownership.Kind {
	return ownership.Kind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}
}
