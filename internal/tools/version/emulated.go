package version

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	utilversion "k8s.io/apimachinery/pkg/util/version"
)

// emulated are the older minors of Kubernetes whose API the server can serve, with the release that its
// API is compared with.
func emulated() map[string]string {
	return map[string]string{"1.34": "v1.34.4", "1.35": "v1.35.4", "1.36": "v1.36.3"}
}

// Minors returns the minors of Kubernetes whose API the server can serve, the oldest first.
func Minors() []string {
	return append(slices.Sorted(maps.Keys(emulated())), minorOf(Kubernetes()))
}

// KubernetesOf returns the Kubernetes version of a server with the API of a minor: for "1.35"
// "v1.35.4+coppice-devel", and for the minor of this binary, or an empty one, what [Kubernetes] returns.
func KubernetesOf(minor string) (string, error) {
	if minor = strings.TrimPrefix(minor, "v"); minor == "" || minor == minorOf(Kubernetes()) {
		return Kubernetes(), nil
	}
	if release, ok := emulated()[minor]; ok {
		return release + ours + strings.TrimPrefix(Version(), "v"), nil
	}
	return "", fmt.Errorf("%q is not a minor of Kubernetes that this binary serves: choose from %s", minor, strings.Join(Minors(), ", "))
}

// minorOf returns "1.37" of "v1.37.2+coppice-devel".
func minorOf(kubernetes string) string {
	v := utilversion.MustParseSemantic(kubernetes) // Kubernetes() returns semantic versions only
	return fmt.Sprintf("%d.%d", v.Major(), v.Minor())
}
