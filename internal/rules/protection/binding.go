package protection

import (
	"errors"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Domain is the domain of Coppice's labels and annotations.
const Domain = "coppice.dev"

// CheckBinding returns an error if a Binding has labels or annotations of coppice.dev. The server copies them onto
// the pod, and the right to bind pods does not include the right to update them. On other servers the policy
// coppice-protect-binding refuses such a Binding with the same message.
func CheckBinding(binding metav1.Object) error {
	isMark := func(key string) bool { return strings.HasPrefix(key, Domain+"/") }
	for _, keys := range []map[string]string{binding.GetLabels(), binding.GetAnnotations()} {
		if slices.ContainsFunc(slices.Collect(maps.Keys(keys)), isMark) {
			return errors.New("a Binding cannot set labels and annotations of coppice.dev on its pod")
		}
	}
	return nil
}
