package cli

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coppice-dev/coppice/internal/apiserver/recyclebin"
	"github.com/coppice-dev/coppice/internal/undo"
)

// recycleBounds parses --recycle; the zero value if it is not set.
func recycleBounds(values []string) (recyclebin.Bounds, error) {
	if len(values) == 0 {
		return recyclebin.Bounds{}, nil
	}
	if len(values) != 2 {
		return recyclebin.Bounds{}, fmt.Errorf("--recycle is %q: it is a size and an age, such as 1Gi,168h", strings.Join(values, ","))
	}
	size, err := resource.ParseQuantity(values[0])
	if err != nil || size.Value() <= 0 {
		return recyclebin.Bounds{}, fmt.Errorf("--recycle: the size is %q, not one such as 1Gi", values[0])
	}
	age, err := time.ParseDuration(values[1])
	if err != nil || age <= 0 {
		return recyclebin.Bounds{}, fmt.Errorf("--recycle: the age is %q, not one such as 168h", values[1])
	}
	return recyclebin.Bounds{Bytes: size.Value(), Age: age}, nil
}

// fromBin returns what a server of coppice up has kept of the deletion of an object, which is named as TYPE/NAME or by
// its UID. unread says what the user may not get.
func (f *undoFlags) fromBin(ctx context.Context, arg string) (kept []undo.Kept, unread []string, err error) {
	asker, err := (&askFlags{cluster: f.cluster}).asker()
	if err != nil {
		return nil, nil, err
	}
	uid := types.UID(arg)
	if kind, name, isName := strings.Cut(arg, "/"); isName {
		if uid, err = f.latest(ctx, asker, kind, name); err != nil {
			return nil, nil, err
		}
	}
	var list recyclebin.List
	if err := asker.get(ctx, recyclebin.Path, url.Values{"uid": {string(uid)}}, &list); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", arg, err)
	}
	for n := range list.Items {
		kept = append(kept, list.Items[n].Kept())
	}
	return undo.Closure(kept, uid), list.Unread, nil
}

// latest returns the UID of the last removed object of a name.
func (f *undoFlags) latest(ctx context.Context, asker *asker, kind, name string) (types.UID, error) {
	var list recyclebin.List
	if err := asker.get(ctx, recyclebin.Path, url.Values{"name": {name}}, &list); err != nil {
		return "", err
	}
	resource := f.resource(kind)
	uid, revision := types.UID(""), int64(-1)
	for n := range list.Items {
		i := &list.Items[n]
		group := schema.GroupResource{Group: i.Group, Resource: i.Resource}
		isOfKind := group == resource || kind == group.String() || resource.Resource == "" && (strings.EqualFold(kind, i.Kind) || kind == i.Resource)
		if isOfKind && (i.Namespace == "" || i.Namespace == asker.namespace) && i.Revision > revision {
			uid, revision = i.UID, i.Revision
		}
	}
	if uid == "" {
		return "", errors.New("nothing is kept of " + kind + "/" + name + " in namespace " + asker.namespace + ", or you may not get it")
	}
	return uid, nil
}

// resource returns the resource that a user calls by one of its names; empty if the server does not serve it, any
// more.
func (f *undoFlags) resource(kind string) schema.GroupResource {
	mapper, err := f.cluster.kube.ToRESTMapper()
	if err != nil {
		return schema.GroupResource{}
	}
	resource, err := mapper.ResourceFor(schema.ParseGroupResource(kind).WithVersion(""))
	if err != nil {
		return schema.GroupResource{}
	}
	return resource.GroupResource()
}
