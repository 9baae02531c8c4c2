package planted

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
)

// auditFinalizer is the finalizer of an auditor, which does not belong to the operator.
const auditFinalizer = "example.com/audit"

// state has the objects of a namespace.
type state struct {
	pools     map[types.UID]*Pool
	members   map[types.UID]*corev1.ConfigMap
	numbers   map[types.UID]*corev1.ConfigMap
	records   map[types.UID]*corev1.Secret
	orders    map[types.UID]*corev1.Secret
	directory map[string]string
}

func newState() *state {
	return &state{
		pools: map[types.UID]*Pool{}, members: map[types.UID]*corev1.ConfigMap{}, numbers: map[types.UID]*corev1.ConfigMap{},
		records: map[types.UID]*corev1.Secret{}, orders: map[types.UID]*corev1.Secret{},
	}
}

// apply brings a state up to an event.
func (s *state) apply(event watch.Event) {
	switch o := event.Object.(type) {
	case *Pool:
		keep(s.pools, event.Type, o.UID, o)
	case *corev1.ConfigMap:
		switch {
		case o.Name == Directory:
			s.directory = o.Data
		case o.Labels[RoleLabel] == Member:
			keep(s.members, event.Type, o.UID, o)
		case o.Labels[RoleLabel] == Number:
			keep(s.numbers, event.Type, o.UID, o)
		}
	case *corev1.Secret:
		switch o.Labels[RoleLabel] {
		case Record:
			keep(s.records, event.Type, o.UID, o)
		case Order:
			keep(s.orders, event.Type, o.UID, o)
		}
	}
}

func keep[T any](objects map[types.UID]T, event watch.EventType, uid types.UID, object T) {
	if event == watch.Deleted {
		delete(objects, uid)
	} else {
		objects[uid] = object
	}
}

// history watches a namespace, and checks what has to be true at each time. The watches meet no faults.
type history struct {
	mu    sync.Mutex
	now   *state             // guarded, as all fields
	wrong []string           // violations
	plan  map[types.UID]wish // by the UIDs of Pools
	// Members that a user deletes.
	deleted map[types.UID]bool
	// Orders that a user has created, with their Pools.
	ordered map[types.UID]types.UID
	// Entries of users in the directory.
	entries map[string]bool
}

// wish is what a user wants of a Pool.
type wish struct {
	name  string
	size  int
	color string
	// No member below this place may go: the user has never wanted fewer since they were there.
	floor int
	// The auditor has its finalizer on the Pool.
	audited bool
	// The user has deleted the Pool.
	gone bool
}

func newHistory() *history {
	return &history{
		now: newState(), plan: map[types.UID]wish{}, deleted: map[types.UID]bool{}, ordered: map[types.UID]types.UID{}, entries: map[string]bool{},
	}
}

// follow applies the events of a kind until ctx ends. It resumes a watch that has ended with its connection.
func (h *history) follow(ctx context.Context, c client.WithWatch, kind client.ObjectList) error {
	if err := c.List(ctx, kind, client.InNamespace(metav1.NamespaceDefault)); err != nil {
		return err
	}
	_ = meta.EachListItem(kind, func(object runtime.Object) error {
		h.event(watch.Event{Type: watch.Added, Object: object.DeepCopyObject()})
		return nil
	})
	version := kind.GetResourceVersion()
	go func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			version = h.watch(ctx, c, kind, version)
			<-tick.C
		}
	}()
	return nil
}

// watch applies events until the watch ends, and returns the last resourceVersion.
func (h *history) watch(ctx context.Context, c client.WithWatch, kind client.ObjectList, version string) string {
	w, err := c.Watch(ctx, kind, &client.ListOptions{
		Namespace: metav1.NamespaceDefault, Raw: &metav1.ListOptions{ResourceVersion: version, AllowWatchBookmarks: true},
	})
	if err != nil {
		return version
	}
	defer w.Stop()
	for event := range w.ResultChan() {
		object, ok := event.Object.(client.Object)
		if err := apierrors.FromObject(event.Object); !ok && (apierrors.IsResourceExpired(err) || apierrors.IsGone(err)) {
			h.fail("the watch of the test, which meets no faults, after %s: %v", version, err)
		}
		if !ok { // the connection has ended within an event, perhaps
			return version
		}
		version = object.GetResourceVersion()
		if event.Type != watch.Bookmark {
			h.event(event)
		}
	}
	return version
}

func (h *history) fail(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.wrong = append(h.wrong, fmt.Sprintf(format, args...))
}

// event checks an event and applies it.
func (h *history) event(event watch.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var wrong string
	switch o := event.Object.(type) {
	case *Pool:
		wrong = h.checkPool(event.Type, o)
	case *corev1.ConfigMap:
		if o.Labels[RoleLabel] == Member {
			wrong = h.checkMember(event.Type, o)
		}
	}
	if wrong != "" {
		h.wrong = append(h.wrong, wrong)
	}
	h.now.apply(event)
}

func (h *history) checkPool(event watch.EventType, pool *Pool) string {
	before := h.now.pools[pool.UID]
	if pool.Status.ObservedGeneration == pool.Generation && pool.Status.Color != pool.Spec.Color {
		return fmt.Sprintf("reported generation: Pool %s with generation %d and color %s reports %s for it",
			pool.Name, pool.Generation, pool.Spec.Color, pool.Status.Color)
	}
	if before != nil && controllerutil.ContainsFinalizer(before, auditFinalizer) && h.plan[pool.UID].audited &&
		!controllerutil.ContainsFinalizer(pool, auditFinalizer) {
		return fmt.Sprintf("finalizers of others: Pool %s lost the one of the auditor", pool.Name)
	}
	if before != nil && before.Status.Number != 0 && before.Status.Number != pool.Status.Number {
		return fmt.Sprintf("numbers: Pool %s had %d and has %d", pool.Name, before.Status.Number, pool.Status.Number)
	}
	for uid, other := range h.now.pools {
		if event != watch.Deleted && uid != pool.UID && pool.Status.Number != 0 && other.Status.Number == pool.Status.Number {
			return fmt.Sprintf("numbers: the Pools %s and %s both have %d", pool.Name, other.Name, pool.Status.Number)
		}
	}
	return ""
}

func (h *history) checkMember(event watch.EventType, member *corev1.ConfigMap) string {
	pool, place := types.UID(member.Labels[UIDLabel]), placeOf(member)
	wanted := h.plan[pool]
	for _, other := range h.now.members {
		if event == watch.Added && other.Labels[UIDLabel] == string(pool) && placeOf(other) == place && other.UID != member.UID {
			return fmt.Sprintf("one member for each place: %s and %s have the place %d", other.Name, member.Name, place)
		}
	}
	if event == watch.Deleted && place < wanted.floor && !wanted.gone && !h.deleted[member.UID] {
		return fmt.Sprintf("members of live Pools stay: %s went, the Pool never had a size below %d", member.Name, wanted.floor)
	}
	return ""
}
