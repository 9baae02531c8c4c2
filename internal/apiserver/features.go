package apiserver

import (
	"fmt"

	"k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
)

// SetFeatureGates sets feature gates of k8s.io/apiserver, which are global in a process: the
// command calls it before it starts anything, and tests that start servers in their process
// call it from TestMain. Servers work without it, only slower.
//
// ConcurrentWatchObjectDecode would decode each event of a watch on a goroutine of its own,
// which begins with a small stack and has it grown each time; one goroutine for a watch
// decodes faster.
func SetFeatureGates() error {
	if err := utilfeature.DefaultMutableFeatureGate.Set(string(features.ConcurrentWatchObjectDecode) + "=false"); err != nil {
		return fmt.Errorf("set the feature gates of k8s.io/apiserver: %w", err)
	}
	return nil
}
