package controlplane

import (
	"context"
	"time"

	"github.com/coppice-dev/coppice/bench/internal/stopwatch"
	"github.com/coppice-dev/coppice/bench/realserver"
)

// StartKubernetes starts etcd and kube-apiserver and waits until they are ready.
func StartKubernetes(ctx context.Context, binaries realserver.Binaries) (*Plane, error) {
	watch := stopwatch.Start()
	s, err := realserver.Start(ctx, binaries)
	if err != nil {
		return nil, err
	}
	return connected(kubeAPIServer{s}, watch.Elapsed())
}

// kubeAPIServer is kube-apiserver with etcd, and with kube-controller-manager if that runs.
type kubeAPIServer struct{ *realserver.Server }

func (s kubeAPIServer) kubeconfig() string { return s.Kubeconfig }

func (s kubeAPIServer) restart(ctx context.Context) (time.Duration, error) { return s.Restart(ctx) }

func (s kubeAPIServer) stop() error { return s.Stop() }

func (s kubeAPIServer) processes() []Process {
	var all []Process
	for _, p := range s.Processes() {
		all = append(all, Process{string(p.Name), p.PID})
	}
	return all
}
