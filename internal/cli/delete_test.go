package cli

import (
	"errors"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/coppice-dev/coppice/internal/tools/inventory"
)

// TestTargetsThatDependOnEachOtherAreDeleted: a collector may delete one target because another one has gone. That is no
// failure, and any other change is one.
func TestTargetsThatDependOnEachOtherAreDeleted(t *testing.T) {
	resource := schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	seen := &inventory.Object{Resource: &inventory.Resource{GroupVersionResource: resource}}
	seen.Namespace, seen.Name, seen.UID, seen.ResourceVersion = "shop", "a", "u", "1"
	conflict := apierrors.NewConflict(resource.GroupResource(), "a", errors.New("the version is 2"))
	now := metav1.NewTime(time.Unix(1_800_000_000, 0))
	for name, test := range map[string]struct {
		stored metav1.ObjectMeta
		answer error
		want   string // empty for an error
	}{
		"the same":              {metav1.ObjectMeta{UID: "u"}, nil, "configmaps/a deleted"},
		"gone":                  {metav1.ObjectMeta{UID: "u"}, apierrors.NewNotFound(resource.GroupResource(), "a"), "configmaps/a is gone already"},
		"being deleted":         {metav1.ObjectMeta{UID: "u", DeletionTimestamp: &now}, conflict, "configmaps/a is being deleted already"},
		"changed":               {metav1.ObjectMeta{UID: "u"}, conflict, ""},
		"another being deleted": {metav1.ObjectMeta{UID: "v", DeletionTimestamp: &now}, conflict, ""},
		"refused":               {metav1.ObjectMeta{UID: "u", DeletionTimestamp: &now}, apierrors.NewForbidden(resource.GroupResource(), "a", errors.New("no")), ""},
	} {
		t.Run(name, func(t *testing.T) {
			test.stored.Namespace, test.stored.Name = "shop", "a"
			scheme := metadatafake.NewTestScheme()
			if err := metav1.AddMetaToScheme(scheme); err != nil {
				t.Fatal(err)
			}
			stored := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: test.stored}
			client := metadatafake.NewSimpleMetadataClient(scheme, stored)
			client.PrependReactor("delete", "*", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, test.answer })
			line, err := deleteSeen(t.Context(), client, seen, metav1.DeletePropagationBackground)
			if line != test.want || (err == nil) != (test.want != "") || test.want == "" && !strings.Contains(err.Error(), "configmaps/a") {
				t.Errorf("%q, %v; want %q", line, err, test.want)
			}
		})
	}
}
