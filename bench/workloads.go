package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
)

const (
	replicas         = 3
	workloadsTimeout = 20 * time.Minute
	// podsPerNode leaves room on the simulated nodes, which take 110 pods.
	podsPerNode = 50
	// leastShare is the number of requests per pod from which on a kind of them is named.
	leastShare = 0.01
)

// workloads measures many small deployments: created until all of their pods run, and
// deleted until all that they owned is gone, in the background and in the foreground.
// Which of the parts sent which requests is read from the audit log.
func workloads(ctx context.Context, c config) ([]sample, error) {
	nodes := 1 + c.deployments*replicas/podsPerNode
	p, err := startPlane(ctx, c.binary, fmt.Sprintf("--nodes=%d", nodes))
	if err != nil {
		return nil, err
	}
	defer p.stop()
	ctx, cancel := context.WithTimeout(ctx, workloadsTimeout)
	defer cancel()
	var samples []sample
	for _, policy := range []metav1.DeletionPropagation{metav1.DeletePropagationBackground, metav1.DeletePropagationForeground} {
		namespace := strings.ToLower(string(policy))
		if err := makeNamespace(ctx, p, namespace); err != nil {
			return nil, err
		}
		for _, step := range []struct {
			what string
			do   func(context.Context, config, *plane, string) error
		}{
			{"created", createDeployments},
			{"deleted, " + namespace, func(ctx context.Context, c config, p *plane, namespace string) error {
				return deleteDeployments(ctx, c, p, namespace, policy)
			}},
		} {
			got, err := workloadsStep(ctx, c, p, namespace, step.what, step.do)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", step.what, err)
			}
			samples = append(samples, got...)
		}
	}
	memory, err := p.memory("VmRSS")
	return append(samples, sample{"memory at the end (RSS)", "MB", memory}), err
}

// makeNamespace makes a namespace that pods can be made in.
func makeNamespace(ctx context.Context, p *plane, name string) error {
	if _, err := p.client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		return err
	}
	events, err := p.client.CoreV1().ServiceAccounts(name).Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=default"})
	if err != nil {
		return err
	}
	defer events.Stop()
	if _, ok := <-events.ResultChan(); !ok {
		return errors.New("no service account for pods")
	}
	return nil
}

// workloadsStep measures one step: pods in a second, processor time, and requests for each
// pod, all together and by whom.
func workloadsStep(ctx context.Context, c config, p *plane, namespace, what string, do func(context.Context, config, *plane, string) error) ([]sample, error) {
	log, err := openAudit(p)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	profiled := p.profile(ctx, c.profiles, what)
	before, err := p.spentSoFar()
	if err != nil {
		return nil, err
	}
	began := time.Now()
	if err := do(ctx, c, p, namespace); err != nil {
		return nil, err
	}
	took := time.Since(began)
	after, err := p.spentSoFar()
	if err != nil {
		return nil, err
	}
	if err := profiled(); err != nil {
		return nil, err
	}
	pods := c.deployments * replicas
	name := fmt.Sprintf("%d deployments of %d %s", c.deployments, replicas, what)
	samples := []sample{{name, "pods/s", float64(pods) / took.Seconds()}}
	samples = append(samples, after.costs(before, name+", each pod", pods)...)
	counts, err := countRequests(log)
	if err != nil {
		return nil, err
	}
	total := 0
	for _, n := range counts {
		total += n
	}
	share := func(n int) float64 { return float64(n) / float64(pods) }
	samples = append(samples, sample{name + ", each pod", "requests", share(total)})
	for _, who := range slices.SortedFunc(maps.Keys(counts), func(a, b string) int { return cmp.Or(counts[b]-counts[a], strings.Compare(a, b)) }) {
		if share(counts[who]) >= leastShare {
			samples = append(samples, sample{"  " + what + ": " + who, "requests", share(counts[who])})
		}
	}
	return samples, nil
}

// openAudit opens the audit log where it ends now.
func openAudit(p *plane) (*os.File, error) {
	log, err := os.Open(filepath.Join(p.dir, "data", "audit.log"))
	if err != nil {
		return nil, err
	}
	_, err = log.Seek(0, io.SeekEnd)
	return log, err
}

// countRequests counts what has been logged since by user, verb, resource and, unless it is
// a good one, answer. Watches are not counted: they stay.
func countRequests(log io.Reader) (map[string]int, error) {
	counts := map[string]int{}
	lines := bufio.NewScanner(log)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e auditv1.Event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			break // a line that is being written
		}
		if e.Verb == "watch" || e.Stage != auditv1.StageResponseComplete {
			continue
		}
		what := e.Verb
		if o := e.ObjectRef; o != nil {
			what += " " + o.Resource
			if o.Subresource != "" {
				what += "/" + o.Subresource
			}
		}
		if s := e.ResponseStatus; s != nil && s.Code >= 300 {
			what += fmt.Sprintf(" (%d)", s.Code)
		}
		counts[strings.TrimPrefix(e.User.Username, "system:coppice:")+" "+what]++
	}
	return counts, lines.Err()
}

// createDeployments creates them, and waits until all of their pods are ready.
func createDeployments(ctx context.Context, c config, p *plane, namespace string) error {
	list, err := p.client.AppsV1().Deployments(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	events, err := follow(ctx, list.ResourceVersion, p.client.AppsV1().Deployments(namespace).Watch)
	if err != nil {
		return err
	}
	defer events.Stop()
	group, ctx := errgroup.WithContext(ctx)
	for worker := range c.creators {
		group.Go(func() error {
			for i := worker; i < c.deployments; i += c.creators {
				if _, err := p.client.AppsV1().Deployments(namespace).Create(ctx, deployment(i), metav1.CreateOptions{}); err != nil {
					return err
				}
			}
			return nil
		})
	}
	group.Go(func() error {
		ready := map[string]bool{}
		for len(ready) < c.deployments {
			select {
			case e, ok := <-events.ResultChan():
				if !ok {
					return fmt.Errorf("the watch ended with %d of %d ready", len(ready), c.deployments)
				}
				if e.Type == watch.Error {
					return fmt.Errorf("watch deployments: %w", apierrors.FromObject(e.Object))
				}
				if d, ok := e.Object.(*appsv1.Deployment); ok && d.Status.ReadyReplicas == replicas {
					ready[d.Name] = true
				}
			case <-ctx.Done():
				return fmt.Errorf("%d of %d ready: %w", len(ready), c.deployments, ctx.Err())
			}
		}
		return nil
	})
	return group.Wait()
}

func deployment(i int) *appsv1.Deployment {
	labels := map[string]string{"app": fmt.Sprintf("web-%04d", i)}
	count := int32(replicas)
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: labels["app"]},
		Spec: appsv1.DeploymentSpec{
			Replicas: &count, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web"}}},
			},
		},
	}
}

// deleteDeployments deletes them one by one, and waits until all that they owned is gone.
func deleteDeployments(ctx context.Context, c config, p *plane, namespace string, policy metav1.DeletionPropagation) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, of := range []struct {
		resource schema.GroupVersionResource
		count    int
	}{
		{appsv1.SchemeGroupVersion.WithResource("deployments"), c.deployments},
		{appsv1.SchemeGroupVersion.WithResource("replicasets"), c.deployments},
		{corev1.SchemeGroupVersion.WithResource("pods"), c.deployments * replicas},
	} {
		client := p.metadata.Resource(of.resource).Namespace(namespace)
		list, err := client.List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		if len(list.Items) != of.count {
			return fmt.Errorf("there are %d %s, not %d", len(list.Items), of.resource.Resource, of.count)
		}
		events, err := follow(ctx, list.ResourceVersion, client.Watch)
		if err != nil {
			return err
		}
		group.Go(func() error { return allDeleted(ctx, events, of.count, of.resource.Resource) })
	}
	for worker := range c.creators {
		group.Go(func() error {
			for i := worker; i < c.deployments; i += c.creators {
				name := deployment(i).Name
				if err := p.client.AppsV1().Deployments(namespace).Delete(ctx, name, metav1.DeleteOptions{PropagationPolicy: &policy}); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return group.Wait()
}

// follow watches from a revision on, over as many watches as that takes: a server ends one
// that it cannot serve for a while, and a machine that is short of time has such whiles.
func follow(ctx context.Context, version string, open func(context.Context, metav1.ListOptions) (watch.Interface, error)) (watch.Interface, error) {
	return watchtools.NewRetryWatcherWithContext(ctx, version, &cache.ListWatch{WatchFuncWithContext: open})
}

// allDeleted reads watch events until that many objects are gone.
func allDeleted(ctx context.Context, events watch.Interface, left int, what string) error {
	defer events.Stop()
	for left > 0 {
		select {
		case e, ok := <-events.ResultChan():
			if !ok {
				return fmt.Errorf("the watch ended with %d %s left", left, what)
			}
			switch e.Type {
			case watch.Deleted:
				left--
			case watch.Error:
				return fmt.Errorf("watch %s: %w", what, apierrors.FromObject(e.Object))
			default:
			}
		case <-ctx.Done():
			return fmt.Errorf("%d %s left: %w", left, what, ctx.Err())
		}
	}
	return nil
}
