// Package build tells which build of Coppice runs.
package version

import (
	"runtime/debug"
	"strings"

	"k8s.io/component-base/version"
)

// stamped is set by the linker in a release build (see the Makefile).
var stamped string //nolint:gochecknoglobals // the linker can only set a variable

// apiserverModule is the library whose version tells which Kubernetes API is served.
const apiserverModule = "k8s.io/apiserver"

// Version is Coppice's own version, or "devel" in a build that was not stamped.
func Version() string {
	if stamped != "" {
		return stamped
	}
	return "devel"
}

// Kubernetes is the Kubernetes version that the API server speaks, as a semantic
// version whose build part names Coppice: "v1.37.2+coppice-devel". It is that of
// the library in this binary: k8s.io/apiserver v0.37.2 is Kubernetes 1.37.2.
func Kubernetes() string {
	release := "v" + version.DefaultKubeBinaryVersion + ".0"
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if m.Path == apiserverModule && strings.HasPrefix(m.Version, "v0.") {
				release = "v1." + strings.TrimPrefix(m.Version, "v0.")
			}
		}
	}
	return release + "+coppice-" + strings.TrimPrefix(Version(), "v")
}
