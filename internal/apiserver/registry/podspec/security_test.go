package podspec

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func TestNameOfAppArmorProfileIsNoLongerThanAPath(t *testing.T) {
	for length, want := range map[int]string{longestProfile: "", longestProfile + 1: "p.localhostProfile: Too long: may not be more than 4095 bytes"} {
		name := strings.Repeat("a", length)
		err := validateAppArmor(&corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeLocalhost, LocalhostProfile: &name}, field.NewPath("p")).ToAggregate()
		got := ""
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%d bytes: %q, want %q", length, got, want)
		}
	}
}
