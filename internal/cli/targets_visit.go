package cli

import (
	"fmt"
	"io"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/resource"
	"k8s.io/client-go/rest"

	"github.com/coppice-dev/coppice/internal/tools/terminal"
)

// The media types for metadata, which has the UIDs of objects.
const (
	metadataOfOne  = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io,application/json"
	metadataOfMany = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json"
)

// Find implements ask.Targets.
func (t *targets) Find(notes io.Writer) ([]string, error) {
	var uids []string
	err := t.flags.visit(t.cluster, t.args, notes, func(_ *meta.RESTMapping, m metav1.Object) error {
		uids = append(uids, string(m.GetUID()))
		return nil
	})
	return uids, err
}

// visit calls visit once with the metadata of each object that arguments and flags select. It reads only these
// objects. It notes on w the objects of manifests that do not exist.
func (f *targetFlags) visit(cluster *clusterFlags, args []string, w io.Writer, visit func(*meta.RESTMapping, metav1.Object) error) error {
	namespace, isGiven, err := cluster.kube.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return fmt.Errorf("find the current namespace: %w", err)
	}
	accept := metadataOfMany
	if f.isFiles() || f.selector == "" && !f.all {
		accept = metadataOfOne
	}
	builder := resource.NewBuilder(cluster.kube).Unstructured().
		NamespaceParam(namespace).DefaultNamespace().AllNamespaces(cluster.allNamespaces).
		TransformRequests(func(r *rest.Request) { r.SetHeader("Accept", accept) })
	if f.isFiles() {
		builder.FilenameParam(isGiven, &f.files).Flatten()
	} else {
		builder.LabelSelectorParam(f.selector).ResourceTypeOrNameArgs(f.all, args...)
	}
	seen := map[types.UID]bool{}
	err = builder.Do().Visit(func(info *resource.Info, err error) error {
		if err != nil {
			return err
		}
		if f.isFiles() {
			if there, err := readDescribed(info, w); !there {
				return err
			}
		}
		return eachObject(info.Object, func(o runtime.Object) error {
			m, err := meta.Accessor(o)
			if err != nil {
				return fmt.Errorf("read the metadata of %s: %w", info, err)
			}
			if seen[m.GetUID()] {
				return nil
			}
			seen[m.GetUID()] = true
			return visit(info.Mapping, m)
		})
	})
	if err != nil {
		return fmt.Errorf("find the objects: %w", err)
	}
	return nil
}

// readDescribed reads the object of a manifest. If the object does not exist, it notes that on w.
func readDescribed(info *resource.Info, w io.Writer) (there bool, err error) {
	err = info.Get()
	if apierrors.IsNotFound(err) {
		terminal.Fprintf(w, "does not exist: %s %q in %s\n", info.Mapping.GroupVersionKind.GroupKind(), info.Name, info.Source)
		return false, nil
	}
	return err == nil, err
}

// eachObject calls visit with an object, or with each object of a list.
func eachObject(o runtime.Object, visit func(runtime.Object) error) error {
	if meta.IsListType(o) {
		return meta.EachListItem(o, visit)
	}
	return visit(o)
}
