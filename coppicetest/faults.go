package coppicetest

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

// faultsPath is the path of the server's faults.
const faultsPath = "/coppice/v1/faults"

// Fault is something that happened to a request of a client, as it may happen with any kube-apiserver. The fields about
// the request are empty for a fault of the whole control plane.
type Fault struct {
	Time  time.Time
	Fault string // such as "carried out, answer lost: connection reset"

	User, Client string // Client is the program in the User-Agent header
	Verb         string
	Resource     string // with its group, such as deployments.apps
	Subresource  string
	Namespace    string
	Name         string
}

// String returns, for example, "12:00:01.250 manager: update deployments.apps shop/frontend: refused: 503 unavailable".
func (f Fault) String() string {
	if f.Verb == "" {
		return f.Time.Format("15:04:05.000") + " " + f.Fault
	}
	resource := f.Resource
	if f.Subresource != "" {
		resource += "/" + f.Subresource
	}
	text := fmt.Sprintf("%s %s: %s %s", f.Time.Format("15:04:05.000"), f.Client, f.Verb, resource)
	if f.Namespace != "" || f.Name != "" {
		text += " " + strings.Trim(f.Namespace+"/"+f.Name, "/")
	}
	return text + ": " + f.Fault
}

// faultState is the server's answer.
type faultState struct {
	Plan      string
	Happened  []Fault
	Anomalies []Anomaly

	MoreAnomalies int
}

// Anomaly is a request with which a client has acted on an old state. docs/faults.md of Coppice describes the kinds.
type Anomaly struct {
	Time time.Time
	Kind string // such as duplicate-child

	User, Client string // Client is the program in the User-Agent header
	Resource     string // with its group, such as deployments.apps
	Namespace    string
	Name         string
	Text         string // a sentence with the resourceVersions
}

// String returns, for example, "12:00:01.250 manager: duplicate-child: the client created configmaps shop/a-x7k2p …".
func (a Anomaly) String() string {
	return fmt.Sprintf("%s %s: %s: %s", a.Time.Format("15:04:05.000"), a.Client, a.Kind, a.Text)
}

// Faults makes the clients of the control plane meet the faults of a plan from now on, such as "realistic" or
// "watch-lag delay=2s resource=pods": docs/faults.md of Coppice describes plans. The empty plan ends all faults.
// Requests of this package meet none, but their connections may end.
func (p *Plane) Faults(t testing.TB, plan string) {
	t.Helper()
	if err := p.setFaults(t.Context(), plan); err != nil {
		t.Fatalf("set the faults: %v", err)
	}
}

func (p *Plane) setFaults(ctx context.Context, plan string) error {
	before, err := p.faults(ctx, request{method: http.MethodGet, path: faultsPath})
	if err != nil {
		return err
	}
	p.mu.Lock()
	if p.plan == nil {
		p.plan = &before.Plan
	}
	p.mu.Unlock()
	_, err = p.faults(ctx, request{method: http.MethodPost, path: faultsPath, body: []byte(plan)})
	return err
}

// endFaults goes back to the faults before Faults was called.
func (p *Plane) endFaults(ctx context.Context) error {
	p.mu.Lock()
	plan := p.plan
	p.plan = nil
	p.mu.Unlock()
	if plan == nil {
		return nil
	}
	_, err := p.faults(ctx, request{method: http.MethodPost, path: faultsPath, body: []byte(*plan)})
	return err
}

// Faulted returns the faults that have happened, the oldest first. The server keeps the latest 4096.
func (p *Plane) Faulted(t testing.TB) []Fault {
	t.Helper()
	state, err := p.faults(t.Context(), request{method: http.MethodGet, path: faultsPath})
	if err != nil {
		t.Fatalf("read the faults: %v", err)
	}
	return state.Happened
}

// Anomalies returns the requests with which clients have acted on old states since the start, or since the last Reset, the
// oldest first: at most 256. The control plane compares only while there are faults.
func (p *Plane) Anomalies(t testing.TB) []Anomaly {
	t.Helper()
	state, err := p.faults(t.Context(), request{method: http.MethodGet, path: faultsPath})
	if err != nil {
		t.Fatalf("read the anomalies: %v", err)
	}
	return state.Anomalies
}

func (p *Plane) faults(ctx context.Context, r request) (state faultState, err error) {
	err = p.api.do(ctx, r, &state)
	return state, err
}

// mostFaults bounds the faults in the output of a failed test.
const mostFaults = 200

// explainFaults writes the anomalies and the latest faults to the output of a failed test; nothing if there were none.
func (p *Plane) explainFaults(ctx context.Context, t testing.TB) {
	state, err := p.faults(ctx, request{method: http.MethodGet, path: faultsPath})
	if err != nil || len(state.Happened) == 0 {
		return // a kube-apiserver, or an older coppice
	}
	for _, a := range state.Anomalies {
		t.Logf("a client has acted on an old state: %s", a)
	}
	if state.MoreAnomalies > 0 {
		t.Logf("and %d more", state.MoreAnomalies)
	}
	latest := state.Happened[max(0, len(state.Happened)-mostFaults):]
	var text strings.Builder
	for _, f := range latest {
		fmt.Fprintf(&text, "\n  %s", f)
	}
	t.Logf("faults happened to %d requests; the plan is %q; the latest are:%s", len(state.Happened), state.Plan, text.String())
}
