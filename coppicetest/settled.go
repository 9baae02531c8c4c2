package coppicetest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"
)

// settlePatience bounds the time until collection has come to rest. Requests that cannot succeed
// are retried for ever; the answer names them.
const settlePatience = 30 * time.Second

// Held is an object that is still terminating when collection has come to rest.
type Held struct {
	Kind       string // "ReplicaSet.apps"
	Namespace  string
	Name       string
	UID        string
	Finalizers []string
}

// String returns, for example, "ConfigMap shop/settings, held by example.com/cleanup".
func (h Held) String() string {
	text := nameOf(h.Kind, h.Namespace, h.Name)
	if len(h.Finalizers) > 0 {
		text += ", held by " + strings.Join(h.Finalizers, ", ")
	}
	return text
}

func nameOf(kind, namespace, name string) string {
	if namespace != "" {
		name = namespace + "/" + name
	}
	return kind + " " + name
}

// settlement is the server's answer on whether collection has come to rest.
type settlement struct {
	Settled    bool
	Unfinished []string
	Held       []Held
}

// Settled waits until collection has come to rest: all writes before the call are observed, no
// object waits to be collected, no namespace is being emptied, and no node is ending a pod. It
// returns the objects that are still terminating; these wait for others, such as the controllers of
// their finalizers. The test fails, with the reason, if collection does not come to rest.
//
// Settled does not wait for workload controllers, and an operator of the test may delete something
// right after it returns.
func (p *Plane) Settled(t testing.TB) []Held {
	t.Helper()
	held, err := p.settle(t.Context())
	if err != nil {
		t.Fatalf("settle: %v", err)
	}
	return held
}

func (p *Plane) settle(ctx context.Context) ([]Held, error) {
	ctx, cancel := context.WithTimeout(ctx, settlePatience+requestTimeout)
	defer cancel()
	var s settlement
	path := "/settled?" + url.Values{"timeout": {settlePatience.String()}}.Encode()
	if err := p.status.get(ctx, path, &s); err != nil {
		return nil, err
	}
	if !s.Settled {
		return nil, fmt.Errorf("collection has not come to rest within %s:\n  %s", settlePatience, strings.Join(s.Unfinished, "\n  "))
	}
	return s.Held, nil
}

// Gone waits until collection has come to rest, and fails the test for each object that still
// exists. It takes objects of any client as the server has returned them, or their UIDs as strings.
func (p *Plane) Gone(t testing.TB, objects ...any) {
	t.Helper()
	p.Settled(t)
	for _, object := range objects {
		uid, err := uidOf(object)
		if err != nil {
			t.Fatalf("gone: %v", err)
		}
		why, err := p.remains(t.Context(), uid)
		if err != nil {
			t.Fatalf("gone: %v", err)
		}
		if why != "" {
			t.Errorf("not gone: %s", why)
		}
	}
}

// uidOf returns the UID of an object of any Go type that is encoded as the API does, or a UID.
func uidOf(object any) (string, error) {
	if uid, ok := object.(string); ok && uid != "" {
		return uid, nil
	}
	data, err := json.Marshal(object)
	if err != nil {
		return "", fmt.Errorf("encode %T: %w", object, err)
	}
	var decoded struct{ Metadata struct{ UID string } }
	if err := json.Unmarshal(data, &decoded); err != nil || decoded.Metadata.UID == "" {
		return "", fmt.Errorf("%T has no metadata.uid: it is not an object as the server has returned it", object)
	}
	return decoded.Metadata.UID, nil
}

// graph is the part of the ownership graph that is connected with an object.
type graph struct {
	Objects []struct {
		UID, Group, Kind, Namespace, Name, Phase, Decision string
		Missing                                            bool
	}
}

// remains returns the reason why an object still exists, or "" if it is gone.
func (p *Plane) remains(ctx context.Context, uid string) (string, error) {
	var g graph
	query := url.Values{"format": {"json"}, "uid": {uid}}
	if err := p.status.get(ctx, "/debug/controllers/garbagecollector/graph?"+query.Encode(), &g); err != nil {
		return "", err
	}
	for _, o := range g.Objects {
		if o.UID != uid || o.Missing {
			continue
		}
		kind := o.Kind
		if o.Group != "" {
			kind += "." + o.Group
		}
		return fmt.Sprintf("%s is %s: %s", nameOf(kind, o.Namespace, o.Name), o.Phase, o.Decision), nil
	}
	return "", nil
}
