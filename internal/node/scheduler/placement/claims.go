package placement

import corev1 "k8s.io/api/core/v1"

// noDevices is the reason why no node fits a pod that claims devices. It begins like the message of
// kube-scheduler.
const noDevices = "cannot allocate all claims (this scheduler allocates no devices)"

// needsDevices reports whether a pod claims devices. The scheduler that allocates them also chooses the node.
func needsDevices(pod *corev1.Pod) bool { return len(pod.Spec.ResourceClaims) > 0 }
