package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// fanoutChanges is how many changes are sent to all watchers, one after the other.
const fanoutChanges = 50

// fanout changes one object again and again, and measures from each request until every
// watcher has seen the change. A connection carries up to a hundred watches.
func fanout(ctx context.Context, c config, p *plane) ([]sample, error) {
	clients, err := separateClients(p.config, max(1, c.watchers/100))
	if err != nil {
		return nil, err
	}
	object, err := p.client.CoreV1().ConfigMaps(metav1.NamespacePublic).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "watched"}}, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	seen := make(chan string, c.watchers)
	var streams []watch.Interface
	defer func() {
		for _, stream := range streams {
			stream.Stop()
		}
	}()
	for i := range c.watchers {
		stream, err := clients[i%len(clients)].CoreV1().ConfigMaps(metav1.NamespacePublic).Watch(ctx, metav1.ListOptions{ResourceVersion: object.ResourceVersion})
		if err != nil {
			return nil, err
		}
		streams = append(streams, stream)
		go func() {
			for event := range stream.ResultChan() {
				if changed, ok := event.Object.(*corev1.ConfigMap); ok {
					seen <- changed.ResourceVersion
				}
			}
		}()
	}
	var first, last []float64 // milliseconds
	for i := range fanoutChanges {
		object.Data = map[string]string{"n": fmt.Sprint(i)}
		began := time.Now()
		var sent sync.WaitGroup
		var failed error
		sent.Go(func() {
			object, failed = p.client.CoreV1().ConfigMaps(metav1.NamespacePublic).Update(ctx, object, metav1.UpdateOptions{})
		})
		for n := range c.watchers {
			select {
			case <-seen:
			case <-time.After(startTimeout):
				sent.Wait()
				return nil, errors.Join(failed, fmt.Errorf("after %s, %d of %d watchers have seen the change", startTimeout, n, c.watchers))
			}
			took := float64(time.Since(began).Microseconds()) / 1000
			if n == c.watchers/2 {
				first = append(first, took)
			}
			if n == c.watchers*99/100 {
				last = append(last, took)
			}
		}
		if sent.Wait(); failed != nil {
			return nil, failed
		}
	}
	slices.Sort(first)
	slices.Sort(last)
	what := fmt.Sprintf("one change to %d watchers, ", c.watchers)
	return []sample{
		{what + "half of them", "ms", first[len(first)/2]},
		{what + "99 of 100", "ms", last[len(last)/2]},
		{what + "99 of 100, slowest change", "ms", last[len(last)-1]},
	}, nil
}
