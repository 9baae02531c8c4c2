package pods

import corev1 "k8s.io/api/core/v1"

// ByNode is the name of the index of pods by the node that they are bound to, whose keys
// are those of NodeKey. Whoever shares a cache of pods knows by the name that it is there.
const ByNode = "coppice.dev/node"

// NodeKey is the index function of ByNode. It fits cache.IndexFunc.
func NodeKey(obj any) ([]string, error) {
	if pod, ok := obj.(*corev1.Pod); ok && pod.Spec.NodeName != "" {
		return []string{pod.Spec.NodeName}, nil
	}
	return nil, nil
}
