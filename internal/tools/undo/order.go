package undo

import "k8s.io/apimachinery/pkg/types"

// Stages decide where references do not: objects that others need are created before those others, and objects that
// refuse or change requests are created last. Settings are created before their owners: see startsFromNothing.
const (
	ofSpaces       = iota // namespaces and kinds
	ofSettings            // mounts, service accounts, volumes and classes of workloads
	ofOthers              // everything else
	ofWorkloads           // objects that start pods
	ofRestrictions        // objects that refuse or change requests
	stages
)

// stageOf returns the stage of an object.
func stageOf(p Place) int {
	switch p.Kind.Group {
	case "", "apiextensions.k8s.io":
		switch p.Kind.Kind {
		case "Namespace", "CustomResourceDefinition":
			return ofSpaces
		case "ServiceAccount", "Secret", "ConfigMap", "PersistentVolume", "PersistentVolumeClaim":
			return ofSettings
		case "Pod", "ReplicationController":
			return ofWorkloads
		case "ResourceQuota", "LimitRange":
			return ofRestrictions
		}
	case "rbac.authorization.k8s.io", "storage.k8s.io", "scheduling.k8s.io":
		return ofSettings
	case "apps", "batch":
		return ofWorkloads
	case "admissionregistration.k8s.io", "apiregistration.k8s.io":
		return ofRestrictions
	}
	return ofOthers
}

// sorter puts steps into waves.
type sorter struct {
	plan *Plan
	// needs and wants count the steps that a step waits for; needed and wanted have the steps that wait for it. Only
	// wants, the edges of owners, can be postponed; an edge of a namespace, a definition or a claim cannot.
	needs, wants map[*Step]int
	needed       map[*Step][]*Step
	wanted       map[*Step][]*Step
	ready        [stages][]*Step
	done         map[*Step]bool
}

// order puts objects into waves: namespaces and definitions before their contents, claims before their volumes,
// owners before dependents, but settings before workloads and custom resources. In a cycle, one object is created first
// and gets its owner later.
func (p *Plan) order() {
	s := &sorter{
		plan: p, needs: map[*Step]int{}, wants: map[*Step]int{}, done: map[*Step]bool{},
		needed: map[*Step][]*Step{}, wanted: map[*Step][]*Step{},
	}
	var all []*Step
	for _, step := range p.Steps {
		if step.Outcome == Made {
			all = append(all, step)
			s.addEdges(step)
		}
	}
	for _, step := range all {
		s.enqueue(step)
	}
	for wave := 1; len(s.done) < len(all); wave++ {
		next := s.next()
		if next == nil {
			s.postpone(all)
			next = s.next()
		}
		for _, step := range next {
			step.Wave = wave
			s.done[step] = true
		}
		for _, step := range next {
			s.release(step)
		}
	}
}

// addEdges adds the steps that a step waits for.
func (s *sorter) addEdges(step *Step) {
	for _, place := range step.kept.Scopes() {
		if on := s.plan.at[place]; on != nil && on != step && on.Outcome == Made {
			s.needs[step]++
			s.needed[on] = append(s.needed[on], step)
		}
	}
	if step.place.Kind == volumeKind { // the UID of its claim reserves it
		if claim := s.plan.claimOfKept(step); claim != nil && claim.Outcome == Made {
			s.needs[step]++
			s.needed[claim] = append(s.needed[claim], step)
		}
	}
	seen := map[types.UID]bool{}
	for _, r := range step.kept.Object.GetOwnerReferences() {
		on := s.plan.steps[r.UID]
		if on == nil || on.Outcome != Made || seen[r.UID] {
			continue
		}
		seen[r.UID] = true
		if on == step || startsFromNothing(on, step) {
			step.postpone(r.UID)
			continue
		}
		s.wants[step]++
		s.wanted[on] = append(s.wanted[on], step)
	}
}

// startsFromNothing reports whether the controller of an owner may create a dependent anew, with none of its data, if it
// finds the owner first: a StatefulSet an empty volume claim, an operator a new password. Such a dependent is created
// first, and gets the owner later.
func startsFromNothing(owner, dependent *Step) bool {
	return stageOf(dependent.place) == ofSettings && stageOf(owner.place) > ofSettings
}

func (s *sorter) enqueue(step *Step) {
	if s.needs[step] == 0 && s.wants[step] == 0 && !s.done[step] {
		stage := stageOf(step.place)
		s.ready[stage] = append(s.ready[stage], step)
	}
}

// next returns the steps that wait for no other, of the first stage that has any.
func (s *sorter) next() []*Step {
	for stage := range s.ready {
		if next := s.ready[stage]; len(next) > 0 {
			s.ready[stage] = nil
			return next
		}
	}
	return nil
}

// release removes a step from the waits of the others.
func (s *sorter) release(step *Step) {
	for _, other := range s.needed[step] {
		s.needs[other]--
		s.enqueue(other)
	}
	for _, other := range s.wanted[step] {
		if !other.postponed[step.kept.UID()] {
			s.wants[other]--
			s.enqueue(other)
		}
	}
}

// postpone lets a step run without its remaining owners: among the steps that wait only for owners, the one with the
// fewest. It is called when all steps wait, because of a cycle of owners.
func (s *sorter) postpone(all []*Step) {
	var first *Step
	for _, step := range all {
		if !s.done[step] && s.needs[step] == 0 && (first == nil || s.wants[step] < s.wants[first]) {
			first = step
		}
	}
	for _, r := range first.kept.Object.GetOwnerReferences() {
		if on := s.plan.steps[r.UID]; on != nil && on.Outcome == Made && !s.done[on] {
			first.postpone(r.UID)
		}
	}
	s.wants[first] = 0
	s.enqueue(first)
}

func (s *Step) postpone(owner types.UID) {
	if s.postponed == nil {
		s.postponed = map[types.UID]bool{}
	}
	s.postponed[owner] = true
}

// Waves returns the steps to create, in waves: the steps of one wave may run in any order, or at the same time.
func (p *Plan) Waves() [][]*Step {
	var waves [][]*Step
	for _, s := range p.Steps {
		if s.Outcome != Made {
			continue
		}
		for len(waves) < s.Wave {
			waves = append(waves, nil)
		}
		waves[s.Wave-1] = append(waves[s.Wave-1], s)
	}
	return waves
}
