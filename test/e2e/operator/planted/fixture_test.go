package planted

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// finding is an error of a check: the operator is wrong.
type finding string

func (f finding) Error() string { return string(f) }

// fixture is a namespace with an operator, its users, and what they observe.
type fixture struct {
	t      *testing.T
	config *rest.Config
	client client.WithWatch // of the users; it meets no faults
	bugs   []Bug
	random *rand.Rand
	mu     sync.Mutex // of random
	*history

	operator atomic.Pointer[Operator] // nil while none runs
	stop     func() error
}

// newFixture follows the namespace from now on.
func newFixture(ctx context.Context, t *testing.T, config *rest.Config, seed uint64, bugs ...Bug) (*fixture, error) {
	users := rest.CopyConfig(config)
	users.UserAgent = "coppicetest/planted" // requests of coppicetest meet no faults
	scheme, err := NewScheme()
	if err != nil {
		return nil, err
	}
	c, err := client.NewWithWatch(users, client.Options{Scheme: scheme})
	if err != nil {
		return nil, err
	}
	w := &fixture{t: t, config: config, client: c, bugs: bugs, random: rand.New(rand.NewPCG(seed, 0)), history: newHistory()}
	for _, kind := range kinds() {
		if err := w.follow(ctx, c, kind); err != nil {
			return nil, err
		}
	}
	return w, nil
}

func kinds() []client.ObjectList {
	return []client.ObjectList{&PoolList{}, &corev1.ConfigMapList{}, &corev1.SecretList{}}
}

// start starts the operator.
func (w *fixture) start(ctx context.Context) error {
	config := rest.CopyConfig(w.config)
	config.UserAgent, config.QPS = "operator/planted", -1
	operator, err := New(config, w.bugs...)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- operator.Run(ctx) }()
	w.operator.Store(operator)
	w.stop = func() error {
		w.operator.Store(nil)
		cancel()
		return <-ended
	}
	return nil
}

// restart stops the operator and starts another one, as in a rollout.
func (w *fixture) restart(ctx context.Context) error {
	if err := w.stop(); err != nil {
		return fmt.Errorf("stop the operator: %w", err)
	}
	return w.start(ctx)
}

// chance returns a random number below n.
func (w *fixture) chance(n int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.random.IntN(n)
}

// pause lets up to a number of milliseconds pass, so that the users come at different times.
func (w *fixture) pause(ctx context.Context, most int) {
	timer := time.NewTimer(time.Duration(w.chance(most)) * time.Millisecond)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// try tries a request again while it has no answer: connections of all clients end now and then.
func try(ctx context.Context, request func() error) error {
	for {
		err := request()
		if status := apierrors.APIStatus(nil); err == nil || errors.As(err, &status) || ctx.Err() != nil {
			return err
		}
	}
}

// create creates an object that nobody else creates.
func (w *fixture) create(ctx context.Context, object client.Object) error {
	key := client.ObjectKeyFromObject(object)
	err := try(ctx, func() error { return w.client.Create(ctx, object) })
	if apierrors.IsAlreadyExists(err) { // the answer was lost
		return try(ctx, func() error { return w.client.Get(ctx, key, object) })
	}
	return err
}

// update changes an object, whoever else does.
func (w *fixture) update(ctx context.Context, object client.Object, change func()) error {
	key := client.ObjectKeyFromObject(object)
	for {
		err := try(ctx, func() error { return w.client.Get(ctx, key, object) })
		if err != nil {
			return err
		}
		change()
		if err = try(ctx, func() error { return w.client.Update(ctx, object) }); !apierrors.IsConflict(err) {
			return err
		}
	}
}

func (w *fixture) delete(ctx context.Context, object client.Object) error {
	return client.IgnoreNotFound(try(ctx, func() error { return w.client.Delete(ctx, object) }))
}

// wants changes what a user wants of a Pool.
func (w *fixture) wants(pool types.UID, change func(*wish)) {
	w.history.mu.Lock()
	defer w.history.mu.Unlock()
	wanted := w.plan[pool]
	change(&wanted)
	w.plan[pool] = wanted
}

// observe reads the history.
func (w *fixture) observe(read func(*state) string) (missing string, wrong []string) {
	w.history.mu.Lock()
	defer w.history.mu.Unlock()
	return read(w.now), w.wrong
}

// lookInterval is the time between two looks at the state.
const lookInterval = 40 * time.Millisecond

// quiet returns the number of looks without a reconciliation after which the operator is at rest, if its caches are
// current: all retries have come by then. The collector stops for up to five seconds at a time.
func quiet(missing string) int {
	if strings.HasPrefix(missing, uncollected) {
		return int(time.Minute / lookInterval)
	}
	return int(10 * LongestRetry / lookInterval)
}

// await waits until read returns "". It returns a finding at once if something was wrong at any time, and if the operator
// has come to rest before.
func (w *fixture) await(ctx context.Context, read func(*state) string) error {
	tick := time.NewTicker(lookInterval)
	defer tick.Stop()
	begun, calm := int64(-1), 0
	for ; ; calm++ {
		missing, wrong := w.observe(read)
		switch number, running := w.begun(); {
		case len(wrong) > 0:
			return finding(wrong[0])
		case missing == "":
			return nil
		case number != begun || running:
			begun, calm = number, 0
		case calm > quiet(missing) && w.isIdle(ctx):
			if missing := w.stored(ctx, read); missing != "" {
				return finding("at rest: " + missing)
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%w, and there is no rest: %s", context.Cause(ctx), missing)
		}
	}
}

// stored reads the state from the server: the watches of the history end with their connections, and may be behind when
// the operator has come to rest. Without an answer nothing is missing.
func (w *fixture) stored(ctx context.Context, read func(*state) string) (missing string) {
	now := newState()
	for _, kind := range kinds() {
		all, err := listed(ctx, w.client, kind)
		if err != nil {
			return ""
		}
		for _, object := range all {
			now.apply(watch.Event{Type: watch.Added, Object: object})
		}
	}
	w.history.mu.Lock()
	defer w.history.mu.Unlock()
	return read(now)
}

// begun returns the number of reconciliations of the operator; and whether one runs, or the operator starts.
func (w *fixture) begun() (number int64, running bool) {
	if operator := w.operator.Load(); operator != nil {
		return operator.Begun()
	}
	return 0, true
}

// isCurrent reports whether the operator's caches are as the server.
func (w *fixture) isCurrent(ctx context.Context) bool {
	operator := w.operator.Load()
	if operator == nil {
		return false
	}
	for _, kind := range kinds() {
		live, err := versions(ctx, w.client, kind)
		if err != nil {
			return false
		}
		cached, err := versions(ctx, operator.Cache(), kind)
		if err != nil || live != cached {
			return false
		}
	}
	return true
}

// isIdle reports whether the operator's caches are as the server, and no reconciliation has begun since.
func (w *fixture) isIdle(ctx context.Context) bool {
	before, running := w.begun()
	if running || !w.isCurrent(ctx) {
		return false
	}
	after, running := w.begun()
	return !running && before == after
}

// versions returns the objects of a kind with their resourceVersions, in an order of their own.
func versions(ctx context.Context, reader client.Reader, kind client.ObjectList) (string, error) {
	all, err := listed(ctx, reader, kind)
	if err != nil {
		return "", err
	}
	byUID := map[types.UID]string{}
	for _, object := range all {
		byUID[object.GetUID()] = object.GetResourceVersion()
	}
	return fmt.Sprint(byUID), nil
}

// listed lists the objects of a kind.
func listed(ctx context.Context, reader client.Reader, kind client.ObjectList) (all []client.Object, err error) {
	if err := try(ctx, func() error { return reader.List(ctx, kind, client.InNamespace(metav1.NamespaceDefault)) }); err != nil {
		return nil, err
	}
	err = meta.EachListItem(kind, func(object runtime.Object) error {
		all = append(all, object.(client.Object))
		return nil
	})
	return all, err
}

// settle waits until the users have what they want.
func (w *fixture) settle(ctx context.Context) error {
	return w.await(ctx, w.missing)
}

// conclude checks the state of the server once the operator has seen everything and does nothing.
func (w *fixture) conclude(ctx context.Context) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for !w.isIdle(ctx) {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%w, and the operator is not idle", context.Cause(ctx))
		}
	}
	live := newState()
	for _, kind := range kinds() {
		all, err := listed(ctx, w.client, kind)
		if err != nil {
			return err
		}
		for _, object := range all {
			live.apply(watch.Event{Type: watch.Added, Object: object})
		}
	}
	missing, wrong := w.observe(func(*state) string { return w.missing(live) })
	if len(wrong) > 0 {
		return finding(wrong[0])
	}
	if missing != "" {
		return finding("in the end: " + missing)
	}
	return nil
}

// objectMeta names an object of a user.
func objectMeta(name string, labels map[string]string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name, Labels: labels}
}
