package ask

import (
	"errors"
	"testing"
	"time"

	"github.com/coppice-dev/coppice/internal/testing/wireserver"
	"github.com/coppice-dev/coppice/internal/tools/cascade"
	"github.com/coppice-dev/coppice/internal/tools/preview"
)

// A wait for a previewed deletion does not end well if a requested object is not being deleted, whatever the answer to its
// DELETE was.
func TestUntouchedRootIsNotGone(t *testing.T) {
	cluster := wireserver.New(wireserver.Resource{Name: "configmaps", Kind: "ConfigMap"})
	cluster.Put("configmaps", wireserver.Owned("a", "a"))
	cluster.Put("configmaps", wireserver.Owned("b", "b"))
	sources := &Sources{Config: cluster.Config(), Address: NoCollector, Now: time.Now}
	predicted := &preview.Report{Objects: []preview.ObjectReport{
		{Kind: "ConfigMap", Namespace: "default", Name: "gone", UID: "gone", Requested: true, Fate: preview.Deleted},
		{Kind: "ConfigMap", Namespace: "default", Name: "a", UID: "a", Requested: true, Fate: preview.Deleted},
		{Kind: "ConfigMap", Namespace: "default", Name: "b", UID: "b", Fate: preview.Kept},
	}}
	report, err := sources.Wait(t.Context(), Ending{Predicted: predicted}, func(cascade.Report) error { return nil })
	if kept, ok := errors.AsType[*NotDeletedError](err); !ok || kept.Object.UID != "a" {
		t.Errorf("%+v, %v", report, err)
	}
}
