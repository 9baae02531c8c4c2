package main

import (
	"context"
	"fmt"
	"net"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// payload is how many bytes an object has besides its metadata.
const payload = 512

// writes measures how many small objects a control plane creates, changes and deletes
// in a second, on disk when they are acknowledged, and how soon a change has reached
// many watchers. The writes are measured twice: with clients that leave the processors
// to the server (lean.go), and with client-go.
func writes(ctx context.Context, c config) ([]sample, error) {
	p, err := startPlane(ctx, c.binary)
	if err != nil {
		return nil, err
	}
	defer p.stop()
	leans, err := dialLean(ctx, p.config, c.creators)
	if err != nil {
		return nil, err
	}
	own := make([]writer, c.creators)
	for i, client := range leans {
		defer client.close()
		own[i] = client
	}
	samples, err := writeAll(ctx, c, p, "", own)
	if err != nil {
		return nil, err
	}
	separate, err := separateClients(p.config, c.creators)
	if err != nil {
		return nil, err
	}
	usual := make([]writer, c.creators)
	for i, client := range separate {
		usual[i] = clientGo{client}
	}
	more, err := writeAll(ctx, c, p, " of client-go", usual)
	if err != nil {
		return nil, err
	}
	samples = append(samples, more...)
	more, err = fanout(ctx, c, p)
	return append(samples, more...), err
}

// writer is a client with a connection of its own. What it writes it leaves in the
// object as the server answered it.
type writer interface {
	create(context.Context, *corev1.ConfigMap) error
	update(context.Context, *corev1.ConfigMap) error
	remove(context.Context, *corev1.ConfigMap) error
}

// writeAll measures the three writes with the given clients.
func writeAll(ctx context.Context, c config, p *plane, who string, clients []writer) ([]sample, error) {
	objects := make([]*corev1.ConfigMap, c.dependents)
	for i := range objects {
		objects[i] = &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("small-%06d", i), Namespace: metav1.NamespaceDefault},
			Data:       map[string]string{"payload": strings.Repeat("x", payload)},
		}
	}
	var samples []sample
	for _, step := range []struct {
		what string
		do   func(writer, *corev1.ConfigMap) error
	}{
		{"create", func(client writer, object *corev1.ConfigMap) error { return client.create(ctx, object) }},
		{"update", func(client writer, object *corev1.ConfigMap) error {
			object.Data["payload"] = strings.Repeat("y", payload)
			return client.update(ctx, object)
		}},
		{"delete", func(client writer, object *corev1.ConfigMap) error { return client.remove(ctx, object) }},
	} {
		profiled := p.profile(ctx, c.profiles, step.what+who)
		before, err := p.spentSoFar()
		if err != nil {
			return nil, err
		}
		began := time.Now()
		if err := each(clients, objects, step.do); err != nil {
			return nil, fmt.Errorf("%s: %w", step.what, err)
		}
		took := time.Since(began)
		after, err := p.spentSoFar()
		if err != nil {
			return nil, err
		}
		if err := profiled(); err != nil {
			return nil, err
		}
		what := fmt.Sprintf("%s of %d B, %d clients%s", step.what, payload, c.creators, who)
		samples = append(samples, sample{what, "objects/s", float64(len(objects)) / took.Seconds()})
		samples = append(samples, after.costs(before, what, len(objects))...)
	}
	return samples, nil
}

// clientGo writes as most programs do.
type clientGo struct{ client kubernetes.Interface }

func (c clientGo) create(ctx context.Context, object *corev1.ConfigMap) error {
	answer, err := c.client.CoreV1().ConfigMaps(object.Namespace).Create(ctx, object, metav1.CreateOptions{})
	if err == nil {
		*object = *answer
	}
	return err
}

func (c clientGo) update(ctx context.Context, object *corev1.ConfigMap) error {
	answer, err := c.client.CoreV1().ConfigMaps(object.Namespace).Update(ctx, object, metav1.UpdateOptions{})
	if err == nil {
		*object = *answer
	}
	return err
}

func (c clientGo) remove(ctx context.Context, object *corev1.ConfigMap) error {
	return c.client.CoreV1().ConfigMaps(object.Namespace).Delete(ctx, object.Name, metav1.DeleteOptions{})
}

// separateClients are clients with a connection each.
func separateClients(config *rest.Config, n int) ([]kubernetes.Interface, error) {
	clients := make([]kubernetes.Interface, n)
	for i := range clients {
		own := rest.CopyConfig(config)
		own.Dial = new(net.Dialer).DialContext // a transport of its own
		client, err := kubernetes.NewForConfig(own)
		if err != nil {
			return nil, err
		}
		clients[i] = client
	}
	return clients, nil
}

// each does something with all objects, with all clients at a time.
func each(clients []writer, objects []*corev1.ConfigMap, do func(writer, *corev1.ConfigMap) error) error {
	var group errgroup.Group
	for worker, client := range clients {
		group.Go(func() error {
			for i := worker; i < len(objects); i += len(clients) {
				if err := do(client, objects[i]); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return group.Wait()
}
