package version

import "testing"

func TestOnlyOwnVersionIsOurs(t *testing.T) {
	for kubernetes, want := range map[string]bool{
		Kubernetes(): true, "v1.36.3": false, "v1.36.3+k3s1": false, "v1.36.3-eks-4f4795d": false, "": false,
	} {
		if got := IsOurs(kubernetes); got != want {
			t.Errorf("%q is ours: %t", kubernetes, got)
		}
	}
}
