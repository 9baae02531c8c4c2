package system

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"

	"github.com/coppice-dev/coppice/collector/report"
	"github.com/coppice-dev/coppice/internal/apiserver"
	"github.com/coppice-dev/coppice/internal/apiserver/etcd"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/core"
	"github.com/coppice-dev/coppice/internal/controller"
	"github.com/coppice-dev/coppice/internal/controller/serviceaccount"
	"github.com/coppice-dev/coppice/internal/rules/escape"
)

// resetPath is the path of the reset of an Ephemeral control plane. POST returns to the state at the start: it removes
// all later objects at once, even with finalizers, and restores changed and deleted objects. PUT makes the present state
// the one to which POST returns. Both answer with a resetResult.
const resetPath = controllersPrefix + "/v1/reset"

const (
	// resetPatience bounds a reset. It takes milliseconds, unless somebody else keeps writing.
	resetPatience = 30 * time.Second
	// resetInterval is the time between two checks of whether the control plane is at rest.
	resetInterval = time.Millisecond
	// mostNamed bounds the keys in the error of a reset.
	mostNamed = 5
)

// resetResult is the answer to a reset.
type resetResult struct {
	Deleted  int `json:"deleted"`
	Restored int `json:"restored"`
	// Time is when it was done.
	Time time.Time `json:"time"`
}

// resetter leads a control plane back to its mark.
type resetter struct {
	api   *apiserver.Server
	store *etcd.Store
	now   func() time.Time
	nodes bool // there are nodes in this process
	// address is the cluster IP of the service default/kubernetes.
	address string

	// The controllers in this process, set while they run.
	settle    atomic.Pointer[func(context.Context) report.Settlement]
	workloads atomic.Pointer[controller.Context]

	turn chan struct{} // holds a value while a reset runs, and before start
	mark *etcd.Mark    // guarded by turn
}

// ServeHTTP implements http.Handler.
func (r *resetter) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	ctx, cancel := context.WithTimeout(request.Context(), resetPatience)
	defer cancel()
	var result resetResult
	var err error
	switch request.Method {
	case http.MethodPost:
		result, err = r.reset(ctx)
	case http.MethodPut:
		err = r.keep(ctx)
	default:
		http.Error(w, "only POST (reset) and PUT (keep the present state) are supported", http.StatusMethodNotAllowed)
		return
	}
	if err != nil {
		status := http.StatusServiceUnavailable
		if errors.Is(err, etcd.ErrMarkTooLarge) {
			status = http.StatusRequestEntityTooLarge
		}
		http.Error(w, escape.Line(err.Error()), status)
		return
	}
	result.Time = r.now()
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(result) // a client that has disconnected retries
}

// begin waits for the turn of a request, and returns a function that ends it.
func (r *resetter) begin(ctx context.Context) (end func(), err error) {
	select {
	case r.turn <- struct{}{}:
		return func() { <-r.turn }, nil
	case <-ctx.Done():
		return nil, errors.New("an earlier reset has not ended, or the control plane still starts: try again")
	}
}

// start makes the present state the one to which resets lead back, and lets them begin.
func (r *resetter) start(ctx context.Context) (err error) {
	if r.mark, err = r.store.Mark(ctx); err == nil {
		<-r.turn
	}
	return err
}

// keep makes the present state the one to which resets lead back.
func (r *resetter) keep(ctx context.Context) error {
	end, err := r.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	mark, err := r.store.Mark(ctx) // not in the middle of a reset
	if err != nil {
		return err
	}
	r.mark = mark
	return nil
}

// reset leads back to the mark, and returns when the control plane is at rest there. Controllers that have acted on the
// strength of the former state may have made objects meanwhile; then it begins again.
func (r *resetter) reset(ctx context.Context) (total resetResult, err error) {
	end, err := r.begin(ctx)
	if err != nil {
		return total, err
	}
	defer end()
	r.api.RestartFaults()
	// A controller may write a restored object again: changes are undone once.
	for changes := true; ; {
		// The definitions go after their instances, whose watchers would not see them go otherwise.
		objects, err := r.round(ctx, func(key string, d etcd.Difference) bool { return !isDefinition(key) && (changes || d != etcd.Changed) })
		if err != nil {
			return total, err
		}
		definitions, err := r.round(ctx, func(key string, d etcd.Difference) bool { return isDefinition(key) && (changes || d != etcd.Changed) })
		if err != nil {
			return total, err
		}
		if objects.None() && definitions.None() {
			return total, nil
		}
		total.Deleted += objects.Deleted + definitions.Deleted
		total.Restored += objects.Restored + definitions.Restored
		if changes = objects.Missed+definitions.Missed > 0; changes {
			continue // beside an object that was missed, whose namespace has gone, a controller never comes to rest
		}
		if err := r.rest(ctx); err != nil {
			return total, err
		}
	}
}

// round undoes differences, and waits until all caches show that.
func (r *resetter) round(ctx context.Context, includes func(key string, d etcd.Difference) bool) (etcd.Returned, error) {
	var named []string
	done, err := r.store.Return(ctx, r.mark, func(key string, d etcd.Difference) bool {
		included := includes(key, d) && r.returns(key, d)
		if included && len(named) < mostNamed {
			named = append(named, key)
		}
		return included
	})
	if err == nil && !done.None() {
		err = r.await(ctx, done)
	}
	if err != nil {
		return done, fmt.Errorf("%w (changed: %s)", err, strings.Join(named, ", "))
	}
	return done, nil
}

// definitionPrefixes are the prefixes of the keys of objects by which other kinds are served.
func definitionPrefixes() []string {
	return []string{"apiextensions.k8s.io/customresourcedefinitions/", "apiregistration.k8s.io/apiservices/"}
}

func isDefinition(key string) bool {
	return slices.ContainsFunc(definitionPrefixes(), func(prefix string) bool { return strings.HasPrefix(key, prefix) })
}

// newResetter returns the resetter of a control plane. Its requests wait for start.
func newResetter(o completedOptions, api *apiserver.Server, store *etcd.Store) *resetter {
	services := cmp.Or(o.Services, core.DefaultServiceRanges())
	r := &resetter{turn: make(chan struct{}, 1), api: api, store: store, now: clock.RealClock{}.Now, nodes: o.Nodes.Nodes > 0, address: services.First().String()}
	r.turn <- struct{}{}
	return r
}

// returns reports whether a reset undoes a difference. It leaves the objects that the control plane itself writes at any
// time: Leases, nodes of this process, the status of flow schemas and APIServices, and a few objects that appear soon
// after the start, or after the creation of a namespace.
func (r *resetter) returns(key string, d etcd.Difference) bool {
	if d == etcd.Gone {
		return true
	}
	resource, rest, _ := strings.Cut(key, "/")
	namespace, name, _ := strings.Cut(rest, "/")
	switch resource {
	case "leases":
		return namespace != corev1.NamespaceNodeLease && namespace != metav1.NamespaceSystem
	case "nodes":
		return !r.nodes
	case "serviceaccounts":
		return d == etcd.Changed || name != serviceaccount.Account || !r.mark.Has("namespaces/"+namespace)
	case "configmaps":
		return d == etcd.Changed || name != serviceaccount.Authority || !r.mark.Has("namespaces/"+namespace)
	case "ipaddresses":
		return d == etcd.Changed || rest != r.address
	case "servicecidrs":
		return d == etcd.Made || rest != "kubernetes"
	case "flowschemas", "prioritylevelconfigurations", "apiregistration.k8s.io": // their status
		return d == etcd.Made
	case "clustertrustbundles":
		return d == etcd.Changed || !strings.HasPrefix(rest, "kubernetes.io:")
	}
	return true
}

// await waits until everything in this process that reads objects shows the writes of a reset.
func (r *resetter) await(ctx context.Context, done etcd.Returned) error {
	isBehind := func(resource schema.GroupResource, version string) bool {
		revision, ok := done.Writes[resource]
		if !ok {
			return false
		}
		order, err := resourceversion.CompareResourceVersion(version, strconv.FormatInt(revision, 10))
		return version == "" || err == nil && order < 0
	}
	resources := slices.Collect(maps.Keys(done.Writes))
	return awaitNothing(ctx, "these caches are behind", func() []string {
		behind := r.api.Behind(resources, isBehind)
		if workloads := r.workloads.Load(); workloads != nil {
			behind = append(behind, workloads.Informers.Behind(isBehind)...)
		}
		return behind
	})
}

// rest waits until the controllers have finished with the former state.
func (r *resetter) rest(ctx context.Context) error {
	if settle := r.settle.Load(); settle != nil {
		if s := (*settle)(ctx); !s.Settled {
			return errors.New("the control plane has not come to rest: " + strings.Join(s.Unfinished, "; "))
		}
	}
	workloads := r.workloads.Load()
	if workloads == nil {
		return nil
	}
	return awaitNothing(ctx, "these controllers are busy", workloads.Busy)
}

// awaitNothing waits until a list is empty.
func awaitNothing(ctx context.Context, what string, list func() []string) error {
	var remaining []string
	err := wait.PollUntilContextCancel(ctx, resetInterval, true, func(context.Context) (bool, error) {
		remaining = list()
		return len(remaining) == 0, nil
	})
	if err != nil {
		return fmt.Errorf("the control plane has not come to rest: %s: %s", what, strings.Join(remaining, ", "))
	}
	return nil
}

// notResettable is the handler of a control plane that keeps its data.
func notResettable(w http.ResponseWriter, _ *http.Request) {
	http.Error(w, "this control plane keeps its data: only one that was started with --ephemeral can be reset", http.StatusForbidden)
}
