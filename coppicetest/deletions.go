package coppicetest

import (
	"context"
	"fmt"
	"testing"
	"time"
)

// Deletion is a change that the collector has made, with the reason.
type Deletion struct {
	Time      time.Time
	Kind      string // "ReplicaSet.apps"
	Namespace string
	Name      string
	UID       string
	// Action is "delete", or "detach", "unblock", "orphan" or "remove-finalizer".
	Action string
	// Reason is the decision in words: "delete Background: owners absent: ReplicaSet.apps web".
	Reason string
	// Owners are the owners that the object had.
	Owners []DeletionOwner
}

// DeletionOwner is an owner with the collector's evidence about it.
type DeletionOwner struct {
	Kind      string
	Namespace string
	Name      string
	UID       string
	// Standing is the state of the reference: "solid", "waiting", "dangling", …
	Standing string
	// Evidence is the evidence for it: "observation", "deleted event", "live read", or "none".
	Evidence string
}

// String returns, for example, "Pod shop/web-1: delete Background: owners absent: ReplicaSet.apps web".
func (d Deletion) String() string { return nameOf(d.Kind, d.Namespace, d.Name) + ": " + d.Reason }

// record is a record of the collector.
type record struct {
	Time   time.Time
	Object struct{ Kind, Namespace, Name, UID string }
	Action string
	// Decision is the decision in words.
	Decision string
	Owners   []DeletionOwner
}

// Deletions returns the collector's changes since the start of the plane or the last Mark, oldest
// first. It waits until collection has come to rest.
func (p *Plane) Deletions(t testing.TB) []Deletion {
	t.Helper()
	p.Settled(t)
	all, err := p.deletions(t.Context())
	if err != nil {
		t.Fatalf("deletions: %v", err)
	}
	return all
}

func (p *Plane) deletions(ctx context.Context) ([]Deletion, error) {
	var records []record
	if err := p.status.get(ctx, "/records", &records); err != nil {
		return nil, fmt.Errorf("read the collected objects: %w", err)
	}
	p.mu.Lock()
	after := p.since.time
	p.mu.Unlock()
	var all []Deletion
	for _, r := range records {
		if r.Time.After(after) {
			o := r.Object
			all = append(all, Deletion{r.Time, o.Kind, o.Namespace, o.Name, o.UID, r.Action, r.Decision, r.Owners})
		}
	}
	return all, nil
}
