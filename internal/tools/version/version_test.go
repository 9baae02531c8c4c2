package version

import (
	"strings"
	"testing"
)

func TestOnlyOwnVersionIsOurs(t *testing.T) {
	for kubernetes, want := range map[string]bool{
		Kubernetes(): true, "v1.36.3": false, "v1.36.3+k3s1": false, "v1.36.3-eks-4f4795d": false, "": false,
	} {
		if got := IsOurs(kubernetes); got != want {
			t.Errorf("%q is ours: %t", kubernetes, got)
		}
	}
}

func TestKubernetesOfMinors(t *testing.T) {
	for minor, want := range map[string]string{"": Kubernetes(), "1.37": Kubernetes(), "v1.37": Kubernetes(), "1.36": "v1.36.3+coppice-devel", "v1.34": "v1.34.4+coppice-devel"} {
		if got, err := KubernetesOf(minor); err != nil || got != want {
			t.Errorf("KubernetesOf(%q) is %q, %v; want %q", minor, got, err, want)
		}
	}
	for _, minor := range []string{"1.33", "1.38", "1.36.3", "latest"} {
		if got, err := KubernetesOf(minor); err == nil || !strings.Contains(err.Error(), "choose from 1.34, 1.35, 1.36, 1.37") {
			t.Errorf("KubernetesOf(%q) is %q, %v; want an error with the minors", minor, got, err)
		}
	}
}
