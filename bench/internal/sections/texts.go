package sections

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coppice-dev/coppice/bench/internal/controlplane"
	"github.com/coppice-dev/coppice/bench/internal/rawclient"
)

const (
	coppiceBoth = "coppice, coppice collect beside it"
	// bytesOfUID is the size of the UID in each owner reference of the section texts.
	bytesOfUID = 1 << 20
	// textClients is the number of clients that create the objects of the section texts.
	textClients = 4
)

// longTexts measures how much memory owner references with very long UIDs take in each process, while the objects are
// created and collected and after that.
func longTexts(ctx context.Context, b *Bench) error {
	err := b.onCoppice(ctx, func(ctx context.Context, p *controlplane.Plane) error {
		return errors.Join(p.Collecting(ctx), b.texts(ctx, p, coppiceUp))
	})
	if err != nil {
		return fmt.Errorf("%s: %w", coppiceUp, err)
	}
	withCollect := func(side string) measurement {
		return func(ctx context.Context, p *controlplane.Plane) error {
			c, err := p.StartCollect(ctx, b.Coppice)
			if err != nil {
				return err
			}
			return errors.Join(b.texts(ctx, p, side), c.Stop())
		}
	}
	if err := b.onCoppice(ctx, withCollect(coppiceBoth)); err != nil {
		return fmt.Errorf("%s: %w", coppiceBoth, err)
	}
	if err := b.onKubernetes(ctx, withCollect(coppiceCollect)); err != nil {
		return fmt.Errorf("%s: %w", coppiceCollect, err)
	}
	return nil
}

// texts creates objects whose owners do not exist and have long UIDs, and reads the memory of each process before,
// immediately afterwards, and after an idle time.
func (b *Bench) texts(ctx context.Context, p *controlplane.Plane, side string) error {
	clients, err := rawclient.Dial(ctx, p.Config, min(textClients, b.Sizes.Clients))
	if err != nil {
		return err
	}
	defer clients.Close()
	namespace, err := b.newNamespace(ctx, p, "texts")
	if err != nil {
		return err
	}
	if err := pause(ctx, b.Sizes.Idle); err != nil {
		return err
	}
	if err := b.memoryOfEach(p, side, "before"); err != nil {
		return err
	}
	objects := newObjects(namespace, b.Sizes.LongTexts)
	for i, object := range objects {
		uid := types.UID(fmt.Sprintf("%06d-%s", i, strings.Repeat("x", bytesOfUID)))
		object.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "absent", UID: uid}}
	}
	if err := each(ctx, clients, objects, create); err != nil {
		return err
	}
	err = controlplane.Poll(ctx, "the objects are not collected", func(ctx context.Context) (bool, error) {
		const others = 1 // objects that the server creates in each namespace
		left, err := p.Client.CoreV1().ConfigMaps(namespace).List(ctx, metav1.ListOptions{Limit: others + 1})
		return err == nil && len(left.Items) <= others, err
	})
	if err != nil {
		return err
	}
	if err := b.memoryOfEach(p, side, "at once"); err != nil {
		return err
	}
	var waited time.Duration
	for _, later := range []time.Duration{b.Sizes.Idle, b.Sizes.Settle} {
		if err := pause(ctx, later-waited); err != nil {
			return err
		}
		waited = later
		if err := b.memoryOfEach(p, side, fmt.Sprintf("%.0f s later", later.Seconds())); err != nil {
			return err
		}
	}
	return b.profileHeap(ctx, p, side+" after long texts")
}

// memoryOfEach adds the anonymous memory of each process of ours as it is now.
func (b *Bench) memoryOfEach(p *controlplane.Plane, side, when string) error {
	for _, process := range p.Processes() {
		if !strings.HasPrefix(process.Name, "coppice") {
			continue
		}
		now, err := process.Memory()
		if err != nil {
			return err
		}
		b.add(side, fmt.Sprintf("%s: %s, RssAnon", process.Name, when), "MB", now.Anonymous)
	}
	return nil
}
