package apiserver

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/coppice-dev/coppice/internal/apiserver/auth/roles"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/scheduling"
)

const (
	// namespaceNodeLease holds the heartbeats of nodes.
	namespaceNodeLease = "kube-node-lease"

	readyPoll = 10 * time.Millisecond
	// namespaceRetry is when a namespace that could not be made again is tried again.
	namespaceRetry = time.Second
)

// addHooks registers what must run once the server listens.
func (s *Server) addHooks() error {
	client := s.doors.client
	hooks := []struct {
		name string
		hook genericapiserver.PostStartHookFunc
	}{
		{"start-informers", func(h genericapiserver.PostStartHookContext) error {
			s.doors.shared.Start(h.Done())
			return nil
		}},
		{"default-roles", func(h genericapiserver.PostStartHookContext) error {
			return roles.Ensure(h, client.RbacV1(), s.doors.policy)
		}},
		{"default-flows", func(h genericapiserver.PostStartHookContext) error {
			return ensureFlows(h, client.FlowcontrolV1())
		}},
		{"aggregate-roles", func(h genericapiserver.PostStartHookContext) error {
			go s.doors.aggregator.Run(h)
			return nil
		}},
		{"system-namespaces", func(h genericapiserver.PostStartHookContext) error {
			if err := createSystemNamespaces(h, client, readyPoll); err != nil {
				return err
			}
			return s.keepSystemNamespaces(h, client)
		}},
		{"system-priority-classes", func(h genericapiserver.PostStartHookContext) error {
			return createPriorityClasses(h, client)
		}},
		{"announce-readiness", func(h genericapiserver.PostStartHookContext) error {
			// In the background: the server is not ready before its hooks have returned.
			go s.announce(h, client)
			return nil
		}},
	}
	for _, h := range hooks {
		if err := s.generic.AddPostStartHook(h.name, untilStopped(h.hook)); err != nil {
			return fmt.Errorf("add hook %s: %w", h.name, err)
		}
	}
	return nil
}

// untilStopped makes no error of a hook that has not done its work when the server is
// stopped: the library would end the process on the spot.
func untilStopped(hook genericapiserver.PostStartHookFunc) genericapiserver.PostStartHookFunc {
	return func(h genericapiserver.PostStartHookContext) error {
		if err := hook(h); err != nil && h.Err() == nil {
			return err
		}
		return nil
	}
}

// createSystemNamespaces makes the namespaces that kubectl and components rely on.
// One that cannot be made is tried again after the interval, until ctx ends.
func createSystemNamespaces(ctx context.Context, client kubernetes.Interface, interval time.Duration) error {
	for _, name := range []string{metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic, namespaceNodeLease} {
		err := wait.PollUntilContextCancel(ctx, interval, true, func(ctx context.Context) (bool, error) {
			// Looked for first: a store that is full takes no writes, and must start.
			if _, err := client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{}); err == nil {
				return true, nil
			}
			_, err := client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
			return err == nil || apierrors.IsAlreadyExists(err), nil
		})
		if err != nil {
			return fmt.Errorf("create namespace %s: %w", name, err)
		}
	}
	return nil
}

// keepSystemNamespaces makes them again when one is gone, in the background: of them,
// kube-node-lease can be deleted.
func (s *Server) keepSystemNamespaces(ctx context.Context, client kubernetes.Interface) error {
	gone := make(chan struct{}, 1)
	_, err := s.doors.shared.Core().V1().Namespaces().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{DeleteFunc: func(obj any) {
		if name, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj); err != nil || name != namespaceNodeLease {
			return
		}
		select {
		case gone <- struct{}{}:
		default:
		}
	}})
	if err != nil {
		return fmt.Errorf("watch the namespaces of the system: %w", err)
	}
	go func() {
		for {
			select {
			case <-gone:
				if createSystemNamespaces(ctx, client, namespaceRetry) != nil {
					return // ctx has ended
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	return nil
}

// createPriorityClasses makes the classes that pods of the system name. Whoever deletes
// one finds it there again after the next start.
func createPriorityClasses(ctx context.Context, client kubernetes.Interface) error {
	for _, class := range scheduling.SystemPriorityClasses() {
		err := wait.PollUntilContextCancel(ctx, readyPoll, true, func(ctx context.Context) (bool, error) {
			_, err := client.SchedulingV1().PriorityClasses().Create(ctx, class, metav1.CreateOptions{})
			return err == nil || apierrors.IsAlreadyExists(err), nil
		})
		if err != nil {
			return fmt.Errorf("create priority class %s: %w", class.Name, err)
		}
	}
	return nil
}

// announce closes ready when /readyz says so.
func (s *Server) announce(ctx context.Context, client kubernetes.Interface) {
	err := wait.PollUntilContextCancel(ctx, readyPoll, true, func(ctx context.Context) (bool, error) {
		return client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error() == nil, nil
	})
	if err == nil {
		s.readyOnce.Do(func() { close(s.ready) })
	}
}
