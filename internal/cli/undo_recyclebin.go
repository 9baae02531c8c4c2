package cli

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/utils/clock"

	"github.com/coppice-dev/coppice/internal/apiserver/recyclebin"
	"github.com/coppice-dev/coppice/internal/collect/story"
	"github.com/coppice-dev/coppice/internal/tools/ask"
	"github.com/coppice-dev/coppice/internal/tools/undo"
)

// recycleBounds parses --recycle; it returns the zero value if the flag is not set.
func recycleBounds(values []string) (recyclebin.Bounds, error) {
	if len(values) == 0 {
		return recyclebin.Bounds{}, nil
	}
	if len(values) != 2 {
		return recyclebin.Bounds{}, fmt.Errorf("--recycle %q is not a size and an age, such as 1Gi,168h", strings.Join(values, ","))
	}
	size, err := resource.ParseQuantity(values[0])
	if err != nil || size.Value() <= 0 {
		return recyclebin.Bounds{}, fmt.Errorf("--recycle: %q is not a size, such as 1Gi", values[0])
	}
	age, err := time.ParseDuration(values[1])
	if err != nil || age <= 0 {
		return recyclebin.Bounds{}, fmt.Errorf("--recycle: %q is not an age, such as 168h", values[1])
	}
	return recyclebin.Bounds{Bytes: size.Value(), Age: age}, nil
}

// fromBin returns the objects of a deletion that the recycle bin of coppice up has kept. arg is the deleted object's
// TYPE/NAME, or its UID, which is the ID of the deletion's story. unread lists objects that the user may not get.
func (f *undoFlags) fromBin(ctx context.Context, arg string) (kept []undo.Kept, unread []string, err error) {
	server, err := (&collectorFlags{cluster: f.cluster}).client()
	if err != nil {
		return nil, nil, err
	}
	roots := []types.UID{types.UID(arg)}
	if kind, name, isName := strings.Cut(arg, "/"); !isName {
		roots = server.Requested(ctx, arg)
	} else if roots[0], err = f.latest(ctx, server, kind, name); err != nil {
		return nil, nil, err
	}
	for some := range slices.Chunk(roots, rootsAtOnce) {
		query := url.Values{}
		for _, uid := range some {
			query.Add("uid", string(uid))
		}
		list, err := readBin(ctx, server, query)
		if err != nil {
			if one, lookup := server.Story(ctx, arg); lookup == nil && !one.Done {
				err = stillDeleted(one.Root.String())
			}
			return nil, nil, fmt.Errorf("%s: %w", arg, err)
		}
		for n := range list.Items {
			kept = append(kept, list.Items[n].Kept())
		}
		unread = append(unread, list.Unread...)
	}
	kept = undo.Merge(kept)
	kept = undo.Closure(kept, roots...)
	if missing := len(roots) - requested(kept); missing > 0 {
		unread = append(unread, fmt.Sprintf("%d of %d requested objects are not in the recycle bin, or you may not get them", missing, len(roots)))
	}
	return kept, slices.Compact(slices.Sorted(slices.Values(unread))), nil
}

// rootsAtOnce bounds the number of UIDs in one request.
const rootsAtOnce = 1000

func requested(kept []undo.Kept) (n int) {
	for i := range kept {
		if kept[i].Requested {
			n++
		}
	}
	return n
}

// binAttempts bounds the number of equal requests to a recycle bin that is behind.
const binAttempts = 5

// readBin reads the recycle bin. It repeats the request if the bin does not have the last deletions yet.
func readBin(ctx context.Context, server *ask.Collector, query url.Values) (recyclebin.List, error) {
	for attempt := 1; ; attempt++ {
		list, err := readBinOnce(ctx, server, query)
		busy, isBusy := errors.AsType[ask.BusyError](err)
		if !isBusy || attempt == binAttempts {
			return list, err
		}
		select {
		case <-clock.RealClock{}.After(busy.After):
		case <-ctx.Done():
			return list, ctx.Err()
		}
	}
}

func readBinOnce(ctx context.Context, server *ask.Collector, query url.Values) (recyclebin.List, error) {
	var list recyclebin.List
	err := server.Get(ctx, recyclebin.Path, query, &list)
	if err == nil && list.Off != "" {
		err = errors.New(list.Off)
	}
	return list, err
}

// keeps reports whether the recycle bin has the object of a story.
func keeps(ctx context.Context, server *ask.Collector, one *story.Summary) bool {
	list, err := readBinOnce(ctx, server, url.Values{"name": {one.Root.Name}, "namespace": {one.Root.Namespace}})
	return err == nil && slices.ContainsFunc(list.Items, func(i recyclebin.Item) bool { return i.UID == types.UID(one.ID) })
}

// latest returns the UID of the object with a name that was removed last.
func (f *undoFlags) latest(ctx context.Context, server *ask.Collector, kind, name string) (types.UID, error) {
	mapping := f.mapping(kind)
	if server.Namespace == "" && (mapping == nil || mapping.Scope.Name() == meta.RESTScopeNameNamespace) {
		return "", usageError{errors.New("a name needs a namespace: leave out --all-namespaces")}
	}
	list, err := readBin(ctx, server, url.Values{"name": {name}})
	if err != nil {
		return "", err
	}
	uid, revision := types.UID(""), int64(-1)
	for n := range list.Items {
		i := &list.Items[n]
		group := schema.GroupResource{Group: i.Group, Resource: i.Resource}
		isOfKind := mapping != nil && group == mapping.Resource.GroupResource() || kind == group.String() ||
			mapping == nil && (strings.EqualFold(kind, i.Kind) || kind == i.Resource)
		if isOfKind && (i.Namespace == "" || i.Namespace == server.Namespace) && i.Revision > revision {
			uid, revision = i.UID, i.Revision
		}
	}
	if uid != "" {
		return uid, nil
	}
	what := kind + "/" + name
	if mapping == nil || mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		what += " in namespace " + server.Namespace
	}
	if err := f.existing(ctx, mapping, server.Namespace, name); err != nil {
		return "", err
	}
	return "", errors.New("the recycle bin does not have " + what + ", or you may not get it")
}

// existing returns an error about an object that exists; nil if it does not, or cannot be read.
func (f *undoFlags) existing(ctx context.Context, mapping *meta.RESTMapping, namespace, name string) error {
	if mapping == nil {
		return nil
	}
	config, err := f.cluster.config()
	if err != nil {
		return err
	}
	client, err := metadata.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	if mapping.Scope.Name() != meta.RESTScopeNameNamespace {
		namespace = ""
	}
	named := mapping.Resource.GroupResource().String() + "/" + name
	o, err := client.Resource(mapping.Resource).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case err == nil && o.DeletionTimestamp != nil:
		return stillDeleted(named)
	case err == nil:
		return fmt.Errorf("%s exists, and is not being deleted: there is nothing to undo", named)
	}
	return nil // the recycle bin has the answer
}

// stillDeleted is the error for an object that no recycle bin has yet.
func stillDeleted(named string) error {
	return fmt.Errorf("%s is still being deleted, and can be restored when it is gone: \"coppice wait\" ends then, and \"coppice explain\" names the causes", named)
}

// mapping returns the resource for one of its names; nil if the server does not serve it any more.
func (f *undoFlags) mapping(kind string) *meta.RESTMapping {
	mapper, err := f.cluster.kube.ToRESTMapper()
	if err != nil {
		return nil
	}
	mapping, err := mappingOf(mapper, kind)
	if err != nil {
		return nil
	}
	return mapping
}
