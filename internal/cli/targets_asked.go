package cli

import (
	"fmt"
	"io"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/resource"
	"k8s.io/client-go/rest"
)

// The media types that ask for the metadata of objects, which has their UIDs.
const (
	metadataOfOne  = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io,application/json"
	metadataOfMany = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json"
)

// find returns the UIDs of the objects that manifests, labels or --all name, for a collector that is asked
// about them. It reads these objects and no others. What manifests describe and is not there is noted on w.
func (f *targetFlags) find(cluster *clusterFlags, args []string, w io.Writer) ([]string, error) {
	namespace, isGiven, err := cluster.kube.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return nil, fmt.Errorf("find the current namespace: %w", err)
	}
	accept := metadataOfMany
	if f.isFiles() {
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
	var uids []string
	seen := map[string]bool{}
	err = builder.Do().Visit(func(info *resource.Info, err error) error {
		if err != nil {
			return err
		}
		if f.isFiles() {
			if err := info.Get(); apierrors.IsNotFound(err) {
				fmt.Fprintf(w, "not there: %s %q in %s\n", info.Mapping.GroupVersionKind.GroupKind(), info.Name, info.Source)
				return nil
			} else if err != nil {
				return err //nolint:wrapcheck // says all of it
			}
		}
		return eachObject(info.Object, func(o runtime.Object) error {
			m, err := meta.Accessor(o)
			if err != nil {
				return fmt.Errorf("read the metadata of %s: %w", info, err)
			}
			if uid := string(m.GetUID()); !seen[uid] {
				seen[uid] = true
				uids = append(uids, uid)
			}
			return nil
		})
	})
	if err != nil {
		return nil, fmt.Errorf("find the objects: %w", err)
	}
	return uids, nil
}

// eachObject calls visit with an object, or with each of a list.
func eachObject(o runtime.Object, visit func(runtime.Object) error) error {
	if meta.IsListType(o) {
		return meta.EachListItem(o, visit) //nolint:wrapcheck // of visit
	}
	return visit(o)
}
