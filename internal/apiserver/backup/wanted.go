package backup

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coppice-dev/coppice/internal/tools/preview"
	"github.com/coppice-dev/coppice/internal/tools/undo"
)

// Wanted is an object to save, in the version that was previewed.
type Wanted struct {
	Resource        schema.GroupVersionResource
	Namespace, Name string
	UID             types.UID
	Version         string // the resourceVersion
	// Requested is true if the deletion names the object, Stays if the object only loses owner references.
	Requested, Stays bool
}

func (w *Wanted) String() string {
	if w.Namespace == "" {
		return w.Resource.GroupResource().String() + " " + w.Name
	}
	return w.Resource.GroupResource().String() + " " + w.Namespace + "/" + w.Name
}

// Of returns the objects of a preview that are deleted, may be deleted, or lose owner references; an object with an owner
// that could not be read may be deleted. Of omits objects that undo never restores, because controllers create and change
// them all the time. unserved lists the kinds that cannot be read.
func Of(r preview.Report, kinds map[schema.GroupKind]undo.Kind) (wanted []Wanted, unserved []string) {
	for n := range r.Objects {
		o := &r.Objects[n]
		kind := schema.ParseGroupKind(o.Kind)
		goes := o.Fate == preview.Deleted || o.Fate == preview.Waiting || o.Fate == preview.Unknown || o.Race
		if !goes && o.Fate != preview.Detached || undo.LeavesOut(kind) {
			continue
		}
		served, known := kinds[kind]
		if !known {
			unserved = append(unserved, fmt.Sprintf("%s %s/%s: its kind is not served any more", o.Kind, o.Namespace, o.Name))
			continue
		}
		wanted = append(wanted, Wanted{
			Resource: served.Resource, Namespace: o.Namespace, Name: o.Name, UID: types.UID(o.UID), Version: o.ResourceVersion,
			Requested: o.Requested, Stays: !goes,
		})
	}
	return wanted, unserved
}

// Unseen returns the resources that could not be read, and of which the deletion may remove objects that undo would
// restore. These objects are missing in the result of Of.
func Unseen(r preview.Report) []preview.UnseenReport {
	return slices.DeleteFunc(slices.Clone(r.Unseen), func(u preview.UnseenReport) bool {
		return undo.LeavesOut(schema.ParseGroupKind(u.Kind))
	})
}
