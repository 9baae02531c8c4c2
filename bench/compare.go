package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/coppice-dev/coppice/bench/realserver"
)

// arena is a kube-apiserver on which collectors take turns.
type arena struct {
	server *realserver.Server
	plane  *plane
}

// contender is one collector.
type contender struct {
	name string
	// dependents of each of its cascades: a slow one gets fewer.
	dependents int
	start      func(ctx context.Context) (stop func() error, err error)
}

func startArena(ctx context.Context, c config) (*arena, error) {
	binaries, err := realserver.Find(ctx, c.module, os.Stderr, realserver.Etcd, realserver.APIServer, realserver.ControllerManager)
	if err != nil {
		return nil, err
	}
	server, err := realserver.Start(ctx, binaries)
	if err != nil {
		return nil, err
	}
	a := &arena{server: server, plane: &plane{}}
	if err := a.plane.connect(server.Kubeconfig); err != nil {
		return nil, errors.Join(err, server.Stop())
	}
	return a, nil
}

// contenders are the collectors, in the order of their turns; ours is the last.
func (a *arena) contenders(c config) []contender {
	upstream := func(args ...string) func(context.Context) (func() error, error) {
		return func(context.Context) (func() error, error) {
			return a.server.StartControllerManager(append([]string{"--controllers=garbage-collector-controller"}, args...)...)
		}
	}
	return []contender{
		{"upstream", c.limited, upstream()},
		{"upstream, limits lifted", c.dependents, upstream("--kube-api-qps=5000", "--kube-api-burst=10000", "--concurrent-gc-syncs=50")},
		{"coppice", c.dependents, func(ctx context.Context) (func() error, error) { return a.startOurs(ctx, c.binary) }},
	}
}

// oneRun gives each collector one turn.
func (a *arena) oneRun(ctx context.Context, c config) ([]sample, error) {
	speeds := map[metav1.DeletionPropagation][]float64{}
	var samples []sample
	contenders := a.contenders(c)
	for _, contender := range contenders {
		stop, err := contender.start(ctx)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", contender.name, err)
		}
		for _, policy := range policies {
			got, err := a.turn(ctx, c, contender, policy)
			if err != nil {
				return nil, errors.Join(fmt.Errorf("%s, %s: %w", contender.name, policy, err), stop())
			}
			name := fmt.Sprintf("%s: %s cascade of %d", contender.name, policy, contender.dependents)
			samples = append(samples, sample{name, "objects/s", got.speed}, sample{name + ", requests per object", "requests", got.requests})
			speeds[policy] = append(speeds[policy], got.speed)
		}
		if err := stop(); err != nil {
			return nil, fmt.Errorf("%s: %w", contender.name, err)
		}
	}
	for _, policy := range policies {
		ours := speeds[policy][len(contenders)-1]
		for i, contender := range contenders[:len(contenders)-1] {
			samples = append(samples, sample{fmt.Sprintf("coppice / %s: %s", contender.name, policy), "times", ours / speeds[policy][i]})
		}
	}
	return samples, nil
}

// turn measures one cascade, when the collector has shown that it works.
func (a *arena) turn(ctx context.Context, c config, contender contender, policy metav1.DeletionPropagation) (outcome, error) {
	if err := a.works(ctx); err != nil {
		return outcome{}, err
	}
	c.dependents = contender.dependents
	return cascade(ctx, c, a.plane, policy)
}

// works waits until somebody collects.
func (a *arena) works(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	objects := a.plane.client.CoreV1().ConfigMaps(metav1.NamespaceDefault)
	garbage, err := objects.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		GenerateName:    "garbage-",
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "nobody", UID: uuid.NewUUID()}},
	}}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create garbage: %w", err)
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		_, err := objects.Get(ctx, garbage.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case ctx.Err() != nil:
			return errors.New("nobody collects garbage")
		case err != nil:
			return fmt.Errorf("read garbage: %w", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// startOurs runs coppice collect and waits until it says that it collects.
func (a *arena) startOurs(ctx context.Context, binary string) (stop func() error, err error) {
	command := exec.CommandContext(ctx, binary, "collect", "--kubeconfig", a.server.Kubeconfig, "--bind-address=0", "--log-level=error")
	command.Stderr = os.Stderr
	stdout, err := command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := command.Start(); err != nil {
		return nil, err
	}
	stop = func() error {
		if err := command.Process.Signal(syscall.SIGINT); err != nil {
			return err
		}
		return command.Wait()
	}
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "collecting ") {
			return stop, nil
		}
	}
	return nil, errors.Join(fmt.Errorf("%s collect does not begin", binary), command.Wait())
}
