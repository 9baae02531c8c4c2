package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"

	"github.com/coppice-dev/coppice/internal/rules/protection"
	"github.com/coppice-dev/coppice/internal/rules/refusal"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
	"github.com/coppice-dev/coppice/internal/tools/reader"
	"github.com/coppice-dev/coppice/internal/tools/restore"
)

func (d *unusedDeletion) name() string {
	return fmt.Sprintf("%s/%s", d.target.Resource.GroupResource(), d.target.Name)
}

// protect makes the server refuse the deletion while the object is in use. It returns a function that undoes this.
func (d *unusedDeletion) protect(ctx context.Context) (restore func() error, err error) {
	config, err := d.flags.cluster.config()
	if err != nil {
		return nil, err
	}
	facts, err := reader.NewFacts(config)
	if err != nil {
		return nil, err
	}
	enforces, err := facts.Enforces(ctx)
	if err != nil {
		return nil, fmt.Errorf("nothing is deleted: it is unknown whether this server protects labelled objects, and without that it would delete the object although something begins to need it: %w", err)
	}
	if !enforces {
		return nil, errors.New("this server does not protect labelled objects, and would delete the object although something begins to need it: docs/protect.md has the webhook that it needs")
	}
	before := d.target.Labels.Get(protection.Label)
	p, err := facts.Protection(ctx, d.target)
	switch {
	case err != nil:
		return nil, err
	case p.Mode == protection.Unused && p.Enforced:
		d.label = before
		return func() error { return nil }, nil
	case p.Enforced:
		return nil, fmt.Errorf("%s is protected in mode %s: \"coppice unprotect\" it first, or \"coppice protect --mode=unused\"", d.name(), p.Label)
	}
	restore = func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), restoreTimeout)
		defer cancel()
		if err := d.relabel(ctx, string(protection.Unused), before); err != nil && !refusal.ServerAnswers(err, apierrors.IsNotFound) && !errors.Is(err, errRelabelled) {
			return fmt.Errorf("%s keeps the label %s=%s, which the command has set: %w", d.name(), protection.Label, protection.Unused, err)
		}
		return nil
	}
	if err := d.relabel(ctx, before, string(protection.Unused)); err != nil {
		err = fmt.Errorf("label %s, so that the server refuses to delete it while it is in use: %w", d.name(), err)
		if errors.Is(err, errUnanswered) {
			err = errors.Join(err, restore())
		}
		return nil, err
	}
	d.label = string(protection.Unused)
	d.target.Labels = inventory.LabelsOf(map[string]string{protection.Label: d.label})
	return restore, nil
}

// errRelabelled is the error for an object that somebody else has labelled, deleted or replaced meanwhile.
var errRelabelled = errors.New("somebody else has changed its protection, or has deleted it")

// errAlwaysChanges is the error for an object whose version was another one at each try.
var errAlwaysChanges = errors.New("it changes all the time; try again")

// relabel changes the label of the object from one value to another; an empty value stands for no label.
func (d *unusedDeletion) relabel(ctx context.Context, from, to string) error {
	var doubt error // of a write that the server may have made
	for try := range protectTries {
		now, err := d.objects().Get(ctx, d.target.Name, metav1.GetOptions{})
		switch {
		case err != nil && doubt != nil:
			return fmt.Errorf("%w; whether it has the label could not be read: %w", doubt, err)
		case err != nil:
			return err
		case try > 0 && string(now.UID) == string(d.target.UID) && now.Labels[protection.Label] == to:
			return nil // the server had done it before it put it off
		case string(now.UID) != string(d.target.UID) || now.Labels[protection.Label] != from || now.DeletionTimestamp != nil:
			return errRelabelled
		case ctx.Err() != nil:
			return ctx.Err()
		}
		if err = d.patch(ctx, now.ResourceVersion, to); !refusal.ServerAnswers(err, apierrors.IsConflict) {
			return err
		}
		doubt = nil // unless this write is in doubt: earlier ones have another version as their precondition
		if errors.Is(err, errUnanswered) {
			doubt = err
		}
	}
	if doubt != nil {
		return fmt.Errorf("%w: %w", errAlwaysChanges, doubt)
	}
	return errAlwaysChanges
}

// patch sets the label of the object, or removes it if the value is empty, on the condition that the object has a version.
func (d *unusedDeletion) patch(ctx context.Context, version, to string) error {
	var value any
	if to != "" {
		value = to
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": d.target.UID, "resourceVersion": version, "labels": map[string]any{protection.Label: value},
	}})
	if err != nil {
		return err
	}
	return answerOf(restore.Repeat(ctx, restore.WhilePutOff(busyTimeout), func() error {
		writing, cancel := forWrite(ctx)
		defer cancel()
		_, err := d.objects().Patch(writing, d.target.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: protectManager})
		return err
	}))
}

func (d *unusedDeletion) objects() metadata.ResourceInterface {
	return d.client.Resource(d.target.Resource.GroupVersionResource).Namespace(d.target.Namespace)
}
