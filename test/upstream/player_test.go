package upstream

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"time"

	"github.com/coppice-dev/coppice/internal/testing/variation"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	api "k8s.io/kubernetes/pkg/apis/core"
)

// player plays experiments with one object.
type player struct {
	*comparison
	pair   [2]*side
	kind   *variation.Kind
	stored [2]map[string]any
	alike  bool // both sides have stored the same
}

func (p *player) compare(ctx context.Context, s subject) error {
	random := random(s)
	if s.mutated != nil {
		return p.mutate(ctx, s.mutated)
	}
	if s.kind.State == nil {
		if err := p.playAll(ctx, sampleOf(random, s.kind, s.kind.Creations(random, s.kind.Places()))); err != nil {
			return err
		}
	}
	if err := p.store(ctx); err != nil {
		return err
	}
	return errors.Join(
		p.playAll(ctx, sampleOf(random, s.kind, s.kind.Alterations(random))),
		p.playAll(ctx, sampleOfTemplates(random, s.kind, s.kind.Combinations(random, p.stored[1]))))
}

// mutate plays the changes of a file of mutations. Objects that both sides refuse are not updated.
func (p *player) mutate(ctx context.Context, m *variation.Mutated) error {
	all := []variation.Experiment{{Kind: p.kind, Verb: "create"}}
	for _, c := range m.Creates {
		all = append(all, variation.Experiment{Kind: p.kind, Verb: "create", Changes: []variation.Change{c}})
	}
	if err := p.playAll(ctx, all); err != nil || len(m.Updates) == 0 {
		return err
	}
	if err := p.store(ctx); err != nil {
		return err
	}
	all = nil
	for _, c := range m.Updates {
		all = append(all, variation.Experiment{Kind: p.kind, Verb: "again", Changes: []variation.Change{c}})
	}
	return p.playAll(ctx, all)
}

// store stores the object on both sides, brings it into its state, and compares what is stored.
func (p *player) store(ctx context.Context) error {
	for _, s := range p.pair {
		if a := s.send(ctx, request{kind: p.kind, verb: "create", body: decode(p.kind.Object())}); a.err != nil {
			return fmt.Errorf("%s: store: %w", s.name, a.err)
		}
	}
	if p.kind.State != nil {
		for _, step := range p.kind.State.Steps {
			for _, s := range p.pair {
				if err := s.step(ctx, p.kind, step); err != nil {
					return fmt.Errorf("%s: %w", s.name, err)
				}
			}
		}
	}
	for i, s := range p.pair {
		s.store.Change(identify)
		var err error
		if p.stored[i], err = s.read(ctx, p.kind); err != nil {
			return err
		}
	}
	p.alike = reflect.DeepEqual(p.stored[0], p.stored[1])
	return p.play(ctx, variation.Experiment{Kind: p.kind, Verb: "get"})
}

// identify replaces values that servers choose and that must not change. Experiments derive values from those of one
// side: none may be, by chance, the value of the other side, or the next one of the same side.
func identify(m metav1.Object) {
	ports := map[int32]int32{}
	switch service := m.(type) {
	case *corev1.Service:
		identifyPort(&service.Spec.HealthCheckNodePort, ports)
		for i := range service.Spec.Ports {
			identifyPort(&service.Spec.Ports[i].NodePort, ports)
		}
	case *api.Service:
		identifyPort(&service.Spec.HealthCheckNodePort, ports)
		for i := range service.Spec.Ports {
			identifyPort(&service.Spec.Ports[i].NodePort, ports)
		}
	}
	m.SetUID("00000000-0000-0000-0000-000000000007")
	m.SetResourceVersion("7")
	m.SetCreationTimestamp(metav1.NewTime(time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC).Local()))
}

// identifyPort replaces a node port. Several protocols may share one.
func identifyPort(port *int32, ports map[int32]int32) {
	if *port == 0 {
		return
	}
	if ports[*port] == 0 {
		ports[*port] = 30011 + 10*int32(len(ports))
	}
	*port = ports[*port]
}

// read returns the stored object.
func (s *side) read(ctx context.Context, k *variation.Kind) (map[string]any, error) {
	a := s.send(ctx, request{kind: k, verb: "get"})
	if a.err != nil {
		return nil, fmt.Errorf("%s: %w", s.name, a.err)
	}
	return content(a.object)
}

// step makes a request that brings an object into its state. A deletion only marks it.
func (s *side) step(ctx context.Context, k *variation.Kind, step variation.Step) error {
	switch {
	case step.Delete:
		s.store.Change(func(m metav1.Object) {
			now, grace := metav1.NewTime(time.Now().Truncate(time.Second)), int64(30)
			m.SetDeletionTimestamp(&now)
			m.SetDeletionGracePeriodSeconds(&grace)
		})
		return nil
	case step.Post != nil:
		return s.send(ctx, request{kind: k, subresource: step.To, verb: "create", body: decode(step.Post)}).err
	}
	stored, err := s.read(ctx, k)
	if err != nil {
		return err
	}
	return s.send(ctx, request{kind: k, subresource: step.To, verb: "update", body: decode(merged(stored, step.Patch).(map[string]any))}).err
}

// merged returns a value with a merge patch.
func merged(value, patch any) any {
	changes, ok := patch.(map[string]any)
	if !ok {
		return patch
	}
	object, _ := value.(map[string]any)
	object = maps.Clone(object)
	if object == nil {
		object = map[string]any{}
	}
	for key, change := range changes {
		if change == nil {
			delete(object, key)
		} else {
			object[key] = merged(object[key], change)
		}
	}
	return object
}

func (p *player) playAll(ctx context.Context, all []variation.Experiment) error {
	for _, e := range all {
		if err := p.play(ctx, e); err != nil {
			return fmt.Errorf("%s: %w", e, err)
		}
	}
	return nil
}

// play makes the request of an experiment on both sides, and notes the differences.
func (p *player) play(ctx context.Context, e variation.Experiment) error {
	success := http.StatusOK
	if e.Verb == "create" {
		success = http.StatusCreated
	}
	var answers [2]*answer
	var r request
	for i, s := range p.pair {
		if i == 0 || !p.alike && e.Verb != "create" {
			r = p.requestOf(e, p.stored[i])
		}
		answers[i] = s.send(ctx, r)
	}
	if equalAnswers(answers[0], answers[1]) {
		p.findings.Agree(e.Kind.GVK.Kind, answers[0].verdict())
		return nil
	}
	ours, err := answers[0].outcome(success)
	if err != nil {
		return err
	}
	theirs, err := answers[1].outcome(success)
	if err != nil {
		return err
	}
	p.findings.Note(e, ours, theirs)
	return nil
}

// requestOf returns the request of an experiment. A patch is not sent, but the object that it makes of the stored one:
// k8s.io/apiserver makes it, on both sides.
func (p *player) requestOf(e variation.Experiment, stored map[string]any) request {
	r := request{kind: e.Kind, verb: "update", dryRun: true}
	switch e.Verb {
	case "create":
		r.verb, r.body = "create", decode(e.Changed(e.Kind.Object()))
	case "get":
		r.verb = "get"
	case "again", "apply":
		content := e.Changed(e.Kind.Object())
		sent, _ := content["metadata"].(map[string]any)
		if meta, _ := stored["metadata"].(map[string]any); sent != nil && sent["resourceVersion"] == nil {
			sent["resourceVersion"] = meta["resourceVersion"]
		}
		r.body = decode(content)
	default:
		r.body = decode(e.Changed(runtime.DeepCopyJSON(stored)))
		if e.Verb == "status" {
			r.subresource = "status"
		} else if e.Verb[0] == '/' {
			r.subresource = e.Verb[1:]
		}
	}
	return r
}
