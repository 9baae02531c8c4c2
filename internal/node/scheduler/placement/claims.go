package placement

import corev1 "k8s.io/api/core/v1"

// noDevices is why no node fits a pod that claims devices. The first words are those of
// kube-scheduler.
const noDevices = "cannot allocate all claims (this scheduler allocates no devices)"

// needsDevices reports whether a pod claims devices. Who allocates them also chooses the node.
func needsDevices(pod *corev1.Pod) bool { return len(pod.Spec.ResourceClaims) > 0 }
