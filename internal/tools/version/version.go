// Package version returns the version of this build of Coppice, and the Kubernetes version that it
// serves.
package version

import (
	"runtime/debug"
	"strings"

	"k8s.io/component-base/version"
)

// ours begins the build part of the Kubernetes version of a server of coppice up.
const ours = "+coppice-"

// stamped is set by the linker in a release build (see the Makefile).
var stamped string //nolint:gochecknoglobals // the linker can only set a variable

// apiserverModule is the module whose version determines the Kubernetes API that is served.
const apiserverModule = "k8s.io/apiserver"

// Version returns the version of Coppice, or "devel" in a build that was not stamped.
func Version() string {
	if stamped != "" {
		return stamped
	}
	return "devel"
}

// Kubernetes returns the Kubernetes version that the API server serves, as a semantic
// version whose build part names Coppice: "v1.37.2+coppice-devel". It follows from the version
// of k8s.io/apiserver in this binary: v0.37.2 is Kubernetes 1.37.2.
func Kubernetes() string {
	release := "v" + version.DefaultKubeBinaryVersion + ".0"
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if m.Path == apiserverModule && strings.HasPrefix(m.Version, "v0.") {
				release = "v1." + strings.TrimPrefix(m.Version, "v0.")
			}
		}
	}
	return release + ours + strings.TrimPrefix(Version(), "v")
}

// IsOurs reports whether the Kubernetes version of a server is from coppice up.
func IsOurs(kubernetes string) bool { return strings.Contains(kubernetes, ours) }
