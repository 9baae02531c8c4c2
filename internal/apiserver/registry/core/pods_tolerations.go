package core

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// mergeTolerations returns the tolerations of both lists. It drops a toleration that another one covers: one that stays,
// or a later one. Of equal tolerations the first stays.
func mergeTolerations(lists ...[]corev1.Toleration) []corev1.Toleration {
	all := slices.Concat(lists...)
	covered, later := make([]bool, len(all)), coverage{}
	for i, given := range slices.Backward(all) {
		t := comparableToleration(given)
		covered[i] = later.coversOther(t)
		later.add(t)
	}
	var merged []corev1.Toleration
	known, kept := map[toleration]bool{}, coverage{}
	for i, given := range all {
		t := comparableToleration(given)
		if covered[i] || known[t] || kept.coversOther(t) {
			continue
		}
		merged = append(merged, given)
		known[t] = true
		kept.add(t)
	}
	return merged
}

// toleration is a Toleration that == compares.
type toleration struct {
	corev1.Toleration // without its seconds

	isLimited bool
	seconds   int64
}

func comparableToleration(t corev1.Toleration) toleration {
	limit := t.TolerationSeconds
	t.TolerationSeconds = nil
	return toleration{Toleration: t, isLimited: limit != nil, seconds: ptr.Deref(limit, 0)}
}

// outlasts reports whether a toleration lasts at least as long as another one that it covers otherwise. Only the
// seconds of NoExecute count.
func (t toleration) outlasts(other toleration) bool {
	return t.Effect != corev1.TaintEffectNoExecute || !t.isLimited || other.isLimited && other.seconds <= t.seconds
}

// taintPattern matches the taints that a toleration tolerates. An empty effect matches all effects.
type taintPattern struct {
	key    string
	effect corev1.TaintEffect
	// hasValue restricts the pattern to one value. Without it, an empty key matches all keys.
	hasValue bool
	value    string
}

// coverage finds the tolerations that cover another one, without a comparison of all pairs: a pod may have tens of
// thousands. Of each pattern it has two that last longest: one of them may be the toleration in question.
type coverage map[taintPattern][]toleration

const keptOfPattern = 2

func (c coverage) add(t toleration) {
	pattern := taintPattern{key: t.Key, effect: t.Effect}
	switch t.Operator {
	case corev1.TolerationOpExists:
	case corev1.TolerationOpEqual, "":
		pattern.hasValue, pattern.value = true, t.Value
	default:
		return // it covers nothing else
	}
	longest := c[pattern]
	if slices.Contains(longest, t) {
		return
	}
	at := slices.IndexFunc(longest, t.outlasts)
	if at < 0 {
		at = len(longest)
	}
	longest = slices.Insert(longest, at, t)
	c[pattern] = longest[:min(len(longest), keptOfPattern)]
}

// coversOther reports whether a different toleration tolerates every taint that t tolerates.
func (c coverage) coversOther(t toleration) bool {
	for _, effect := range []corev1.TaintEffect{t.Effect, ""} {
		patterns := []taintPattern{{key: t.Key, effect: effect}, {effect: effect}}
		if t.Operator == corev1.TolerationOpEqual {
			patterns = append(patterns, taintPattern{key: t.Key, effect: effect, hasValue: true, value: t.Value})
		}
		for _, p := range patterns {
			if slices.ContainsFunc(c[p], func(other toleration) bool { return other != t && other.outlasts(t) }) {
				return true
			}
		}
	}
	return false
}
