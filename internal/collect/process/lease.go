package process

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// ErrLost is the error of a leader that could not renew its Lease and has stopped.
var ErrLost = errors.New("lost the lease")

// LeaseTimes are the durations of an election. A leader that vanishes is replaced after Duration, one
// that releases the Lease after Retry.
type LeaseTimes struct {
	Duration time.Duration
	// Deadline is how long a leader tries to renew the Lease before it stops. It is shorter than
	// Duration.
	Deadline time.Duration
	// Retry is the time between two attempts to acquire or renew the Lease.
	Retry time.Duration
}

// DefaultLeaseTimes returns the times of Kubernetes' own components, which suit a server in another process.
func DefaultLeaseTimes() LeaseTimes {
	return LeaseTimes{Duration: 15 * time.Second, Deadline: 10 * time.Second, Retry: 2 * time.Second}
}

// FastLeaseTimes returns times for controllers that run in the process of the API server.
func FastLeaseTimes() LeaseTimes {
	return LeaseTimes{Duration: 6 * time.Second, Deadline: 4 * time.Second, Retry: time.Second}
}

// Lease is the Lease whose holder leads. Its namespace must exist.
type Lease struct {
	Namespace, Name string
	Times           LeaseTimes
	Log             *slog.Logger
}

// Run stands by until this process holds the Lease, and then calls work. It returns when ctx ends
// or work returns. The context of work ends when the Lease is lost; the error is then ErrLost. The
// Lease is released after work has returned, so that two leaders never work at the same time.
func (l Lease) Run(ctx context.Context, config *rest.Config, r *Role, work func(context.Context) error) error {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("make a client for leader election: %w", err)
	}
	return l.run(ctx, client, r, work)
}

// RunAlways is like Run, but stands by again after the Lease was lost.
func (l Lease) RunAlways(ctx context.Context, config *rest.Config, r *Role, work func(context.Context) error) error {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("make a client for leader election: %w", err)
	}
	return l.runAlways(ctx, client, r, work)
}

// Warm is work that can be prepared before its process leads.
type Warm interface {
	// Observe keeps the knowledge up to date until ctx ends.
	Observe(ctx context.Context) error
	// WaitForObserved waits until Observe has read everything, or ctx ends.
	WaitForObserved(ctx context.Context) error
}

// RunWarm is like RunAlways, and has w observe all the time: also while this process stands by, so that work can begin
// as soon as it leads. It competes for the Lease when w has observed everything: a replica that has not could not work,
// and another may be able to.
func (l Lease) RunWarm(ctx context.Context, config *rest.Config, r *Role, w Warm, work func(context.Context) error) error {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("make a client for leader election: %w", err)
	}
	return l.runWarm(ctx, client, r, w, work)
}

func (l Lease) runWarm(ctx context.Context, client kubernetes.Interface, r *Role, w Warm, work func(context.Context) error) error {
	if _, err := l.lock(ctx, client); err != nil {
		return err
	}
	r.standBy("nobody")
	observing, stop := context.WithCancel(ctx)
	defer stop()
	group, ctx := errgroup.WithContext(observing)
	group.Go(func() error { return w.Observe(ctx) })
	group.Go(func() error {
		defer stop() // when the work has ended for another reason than the end of ctx
		if w.WaitForObserved(ctx) != nil {
			return nil // ctx has ended
		}
		return l.runAlways(ctx, client, r, work)
	})
	return group.Wait()
}

func (l Lease) run(ctx context.Context, client kubernetes.Interface, r *Role, work func(context.Context) error) error {
	lock, err := l.lock(ctx, client)
	if err != nil {
		return err
	}
	leading := make(chan context.Context, 1)
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Name: l.Name, Lock: lock, ReleaseOnCancel: true,
		LeaseDuration: l.Times.Duration, RenewDeadline: l.Times.Deadline, RetryPeriod: l.Times.Retry,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) { leading <- ctx },
			OnStoppedLeading: func() {},
			OnNewLeader: func(holder string) {
				if holder != lock.Identity() {
					r.standBy(holder)
					l.Log.InfoContext(ctx, "standing by", "leader", holder)
				}
			},
		},
	})
	if err != nil {
		return fmt.Errorf("configure leader election: %w", err)
	}
	r.standBy("nobody")
	var elected sync.WaitGroup
	defer elected.Wait()
	holding, release := context.WithCancel(context.WithoutCancel(ctx))
	defer release()
	elected.Go(func() { elector.Run(holding) })

	select {
	case <-ctx.Done():
		return nil
	case held := <-leading:
		r.lead()
		l.Log.InfoContext(ctx, "leading", "lease", l.Namespace+"/"+l.Name, "identity", lock.Identity())
		working, stop := context.WithCancel(ctx)
		defer stop()
		defer context.AfterFunc(held, stop)() //nolint:contextcheck // held is the context of the lease, which outlives ctx
		err := work(working)
		if held.Err() != nil && ctx.Err() == nil {
			return errors.Join(fmt.Errorf("%w %s/%s: it could not be renewed for %s", ErrLost, l.Namespace, l.Name, l.Times.Deadline), err)
		}
		return err
	}
}

func (l Lease) runAlways(ctx context.Context, client kubernetes.Interface, r *Role, work func(context.Context) error) error {
	for {
		err := l.run(ctx, client, r, work)
		if !errors.Is(err, ErrLost) || ctx.Err() != nil {
			return err
		}
		r.standBy("nobody")
		l.Log.WarnContext(ctx, "not leading any more", "error", err)
	}
}

// lock returns the lock on the Lease. client-go would retry silently forever if the namespace did
// not exist.
func (l Lease) lock(ctx context.Context, client kubernetes.Interface) (*resourcelock.LeaseLock, error) {
	if _, err := client.CoreV1().Namespaces().Get(ctx, l.Namespace, metav1.GetOptions{}); apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("the namespace %s of the Lease does not exist", l.Namespace)
	}
	host, err := os.Hostname()
	if err != nil {
		host = "coppice"
	}
	return &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: l.Namespace, Name: l.Name},
		Client:     client.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: host + "_" + string(uuid.NewUUID())},
	}, nil
}
