package pods

import corev1 "k8s.io/api/core/v1"

// ByNode is the name of the index of pods by the node that they are bound to; its keys come from
// NodeKey. The fixed name lets users of a shared pod cache see that it has the index.
const ByNode = "coppice.dev/node"

// NodeKey is the cache.IndexFunc of ByNode.
func NodeKey(obj any) ([]string, error) {
	if pod, ok := obj.(*corev1.Pod); ok && pod.Spec.NodeName != "" {
		return []string{pod.Spec.NodeName}, nil
	}
	return nil, nil
}
