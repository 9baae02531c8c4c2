// Package controlplane starts the measured control planes: coppice up, or upstream's etcd and
// kube-apiserver, and the collectors that work on either. Both are measured in the same way: by
// clients of their API, by the memory and processor time of their processes, and by the number of
// served requests.
//
// A Plane starts on an empty directory, which Restart keeps and Stop removes.
package controlplane

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	startTimeout = 3 * time.Minute
	// workingTimeout bounds the time in which a collector must collect its first object.
	workingTimeout = 5 * time.Minute
	pollInterval   = 20 * time.Millisecond
)

// Plane is a control plane under measurement.
type Plane struct {
	// Ready is the time from the start of the first process until the last one serves.
	Ready time.Duration

	Config   *rest.Config
	Client   kubernetes.Interface
	Metadata metadata.Interface
	Dynamic  dynamic.Interface

	server     server
	collectors []*Collector
	programs   []*program // collectors that are not part of the server
}

// server is the API server of a plane with its storage.
type server interface {
	processes() []Process
	kubeconfig() string
	restart(ctx context.Context) (ready time.Duration, err error)
	stop() error
}

func connected(s server, ready time.Duration) (*Plane, error) {
	p := &Plane{Ready: ready, server: s}
	if err := p.connect(); err != nil {
		return nil, errors.Join(err, s.stop())
	}
	return p, nil
}

// connect creates the clients, which have no rate limit.
func (p *Plane) connect() error {
	var err error
	if p.Config, err = clientcmd.BuildConfigFromFlags("", p.server.kubeconfig()); err != nil {
		return err
	}
	p.Config.QPS = -1
	if p.Dynamic, err = dynamic.NewForConfig(p.Config); err != nil {
		return err
	}
	p.Config.ContentType = runtime.ContentTypeProtobuf
	if p.Client, err = kubernetes.NewForConfig(p.Config); err != nil {
		return err
	}
	p.Metadata, err = metadata.NewForConfig(p.Config)
	return err
}

// Restart stops the server and starts it again on its data. Ready is then the duration of this
// start. Collectors in processes of their own must have been stopped.
func (p *Plane) Restart(ctx context.Context) error {
	var err error
	if p.Ready, err = p.server.restart(ctx); err != nil {
		return err
	}
	return p.connect()
}

// Stop stops the collectors and the server, and removes the data.
func (p *Plane) Stop() error {
	var failures []error
	for _, c := range p.collectors {
		failures = append(failures, c.Stop())
	}
	return errors.Join(append(failures, p.server.stop())...)
}

// Collecting waits until a collector deletes an object whose owner does not exist.
func (p *Plane) Collecting(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, workingTimeout)
	defer cancel()
	objects := p.Client.CoreV1().ConfigMaps(metav1.NamespaceDefault)
	garbage, err := objects.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		GenerateName:    "garbage-",
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "absent", UID: uuid.NewUUID()}},
	}}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create garbage: %w", err)
	}
	return Poll(ctx, "nothing collects garbage", func(ctx context.Context) (done bool, err error) {
		_, err = objects.Get(ctx, garbage.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return true, nil
		}
		return false, err
	})
}

// Poll calls check until it is done, it fails, or ctx ends; failure describes what did not
// happen.
func Poll(ctx context.Context, failure string, check func(context.Context) (done bool, err error)) error {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		done, err := check(ctx)
		switch {
		case ctx.Err() != nil:
			return fmt.Errorf("%s: %w", failure, ctx.Err())
		case err != nil:
			return err
		case done:
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// Requests returns the number of requests that the server has answered so far. Watches are left
// out: they are counted only when they end.
func (p *Plane) Requests(ctx context.Context) (float64, error) {
	return p.sum(ctx, func(series string) bool {
		return strings.HasPrefix(series, "apiserver_request_total{") && !strings.Contains(series, `verb="WATCH"`)
	})
}

// LiveHeap returns the bytes of the server's heap that are in use after a collection.
func (p *Plane) LiveHeap(ctx context.Context) (float64, error) {
	if _, err := p.Heap(ctx); err != nil {
		return 0, err
	}
	return p.sum(ctx, func(series string) bool { return series == "go_memstats_heap_alloc_bytes" })
}

// Heap returns a profile of the server's heap after a collection, which it causes.
func (p *Plane) Heap(ctx context.Context) ([]byte, error) {
	profile, err := p.raw(ctx, "/debug/pprof/heap", map[string]string{"gc": "1"})
	if err != nil {
		return nil, fmt.Errorf("collect the heap: %w", err)
	}
	return profile, nil
}

// Version returns the version that the server reports.
func (p *Plane) Version() (string, error) {
	version, err := p.Client.Discovery().ServerVersion()
	if err != nil {
		return "", err
	}
	return version.GitVersion, nil
}

// sum returns the sum of the metrics for which of returns true.
func (p *Plane) sum(ctx context.Context, of func(series string) bool) (float64, error) {
	data, err := p.raw(ctx, "/metrics", nil)
	if err != nil {
		return 0, fmt.Errorf("read /metrics: %w", err)
	}
	total := 0.0
	for line := range strings.Lines(string(data)) {
		at := strings.LastIndexByte(strings.TrimSpace(line), ' ')
		if at < 0 || strings.HasPrefix(line, "#") || !of(line[:at]) {
			continue
		}
		n, err := strconv.ParseFloat(strings.TrimSpace(line[at:]), 64)
		if err != nil {
			return 0, fmt.Errorf("parse %q: %w", line, err)
		}
		total += n
	}
	return total, nil
}

func (p *Plane) raw(ctx context.Context, path string, parameters map[string]string) ([]byte, error) {
	request := p.Client.Discovery().RESTClient().Get().AbsPath(path).SetHeader("Accept", "*/*")
	for name, value := range parameters {
		request.Param(name, value)
	}
	return request.DoRaw(ctx)
}

// Kubeconfig returns the path of a kubeconfig with the administrator's credentials.
func (p *Plane) Kubeconfig() string { return p.server.kubeconfig() }
