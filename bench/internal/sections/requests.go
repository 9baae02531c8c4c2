package sections

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/bench/internal/controlplane"
	"github.com/coppice-dev/coppice/bench/internal/rawclient"
	"github.com/coppice-dev/coppice/bench/internal/stopwatch"
)

const (
	// lists is the number of times that all objects are listed.
	lists = 10
	// followers is the number of watches whose throughput is measured.
	followers = 100
)

// requests measures the throughput of both servers: how many small objects per second they
// create, update and delete (on disk when acknowledged), list, and send to watches.
func requests(ctx context.Context, b *Bench) error {
	return b.onBoth(ctx, func(ctx context.Context, p *controlplane.Plane, side string) error {
		clients, err := rawclient.Dial(ctx, p.Config, b.Sizes.Clients)
		if err != nil {
			return err
		}
		defer clients.Close()
		objects := newObjects(metav1.NamespaceDefault, b.Sizes.Objects)
		for _, step := range []struct {
			what string
			do   func() error
		}{
			{"create", func() error { return each(ctx, clients, objects, create) }},
			{"update", func() error { return each(ctx, clients, objects, update) }},
			{"list, one client", func() error { return list(ctx, clients[0], len(objects)) }},
			{"watch, events", func() error { return b.follow(ctx, p, side, clients, objects) }},
			{"delete", func() error { return each(ctx, clients, objects, remove) }},
		} {
			n := len(objects)
			switch step.what {
			case "list, one client":
				n *= lists
			case "watch, events":
				n = followers * b.followed()
			}
			if _, err := b.work(ctx, p, work{side, step.what, "objects", n}, step.do); err != nil {
				return err
			}
		}
		return nil
	})
}

// list lists the default namespace repeatedly, each time in one request.
func list(ctx context.Context, client *rawclient.Client, objects int) error {
	for range lists {
		body, err := client.Do(ctx, http.MethodGet, rawclient.ConfigMaps(metav1.NamespaceDefault), nil)
		if err != nil {
			return err
		}
		if len(body) < objects*payload {
			return fmt.Errorf("a list has %d bytes, too few for %d objects", len(body), objects)
		}
	}
	return nil
}

// followed is the number of objects that are updated while watches follow.
func (b *Bench) followed() int { return b.Sizes.Objects / 10 }

// follow updates a tenth of the objects, and waits until all watches have received all updates. The
// server ends a watch that it cannot serve for a while; the watch then continues where it ended.
func (b *Bench) follow(ctx context.Context, p *controlplane.Plane, side string, clients rawclient.Clients, objects []*corev1.ConfigMap) error {
	now, err := p.Metadata.Resource(corev1.SchemeGroupVersion.WithResource("configmaps")).List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return err
	}
	watchers, err := rawclient.Dial(ctx, p.Config, followers)
	if err != nil {
		return err
	}
	defer watchers.Close()
	var seen atomic.Int64
	all := make(chan struct{})
	ended := make(chan error, followers)
	var watches []*rawclient.Watch
	for _, watcher := range watchers {
		w, err := watcher.Watch(ctx, rawclient.ConfigMaps(metav1.NamespaceDefault), now.ResourceVersion, func(rawclient.Event) {
			if seen.Add(1) == int64(followers*b.followed()) {
				close(all)
			}
		})
		if err != nil {
			return err
		}
		watches = append(watches, w)
		go func() { ended <- <-w.Failed }()
	}
	if err := each(ctx, clients, objects[:b.followed()], update); err != nil {
		return err
	}
	select {
	case <-all:
		var reopened int64
		for _, w := range watches {
			reopened += w.Reopened()
		}
		b.add(side, "watches of 100 that the server ended meanwhile", "", float64(reopened))
		return nil
	case err := <-ended:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// watchLag measures the time from a request that changes an object until watches have received the
// change.
func watchLag(ctx context.Context, b *Bench) error {
	return b.onBoth(ctx, func(ctx context.Context, p *controlplane.Plane, side string) error {
		object := newObjects(metav1.NamespaceDefault, 1)[0]
		writers, err := rawclient.Dial(ctx, p.Config, 1)
		if err != nil {
			return err
		}
		defer writers.Close()
		if err := writers[0].Create(ctx, object); err != nil {
			return err
		}
		watchers, err := rawclient.Dial(ctx, p.Config, b.Sizes.Watchers)
		if err != nil {
			return err
		}
		defer watchers.Close()
		seen := make(chan struct{}, 2*b.Sizes.Watchers)
		path := rawclient.ConfigMaps(object.Namespace)
		for _, watcher := range watchers {
			if _, err := watcher.Watch(ctx, path, object.ResourceVersion, func(rawclient.Event) { seen <- struct{}{} }); err != nil {
				return err
			}
		}
		for i := range b.Sizes.Changes {
			object.Data["payload"] = fmt.Sprint(i)
			if err := b.change(ctx, side, writers[0], object, seen); err != nil {
				return err
			}
		}
		return nil
	})
}

// change updates an object, and measures the time until half, 99 of 100, and all watches have
// received the change.
func (b *Bench) change(ctx context.Context, side string, writer *rawclient.Client, object *corev1.ConfigMap, seen <-chan struct{}) error {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	n := b.Sizes.Watchers
	if len(seen) > 0 {
		return fmt.Errorf("the watches have %d events before the change", len(seen))
	}
	sent := make(chan error, 1)
	watch := stopwatch.Start()
	go func() { sent <- writer.Update(ctx, object) }()
	for i := range n {
		select {
		case <-seen:
		case <-ctx.Done():
			return fmt.Errorf("%d of %d watches have seen the change: %w", i, n, ctx.Err())
		}
		for _, share := range []struct {
			what string
			at   int
		}{{"half of the watches", n / 2}, {"99 of 100", n * 99 / 100}} {
			if i == share.at {
				b.add(side, fmt.Sprintf("a change to %d watches, %s", n, share.what), "ms", watch.Seconds()*1000)
			}
		}
	}
	return <-sent
}
