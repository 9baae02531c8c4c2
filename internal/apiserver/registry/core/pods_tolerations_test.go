package core

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// mergedByPairs merges tolerations as Kubernetes describes it, by comparing every two.
func mergedByPairs(all []corev1.Toleration) []corev1.Toleration {
	var merged []corev1.Toleration
	for i, t := range all {
		covered := slices.ContainsFunc(merged, func(other corev1.Toleration) bool { return covers(other, t) }) ||
			slices.ContainsFunc(all[i+1:], func(other corev1.Toleration) bool { return covers(other, t) && !reflect.DeepEqual(other, t) })
		if !covered {
			merged = append(merged, t)
		}
	}
	return merged
}

// covers reports whether wide tolerates every taint that narrow tolerates.
func covers(wide, narrow corev1.Toleration) bool {
	anyKey := wide.Key == "" && wide.Operator == corev1.TolerationOpExists
	switch {
	case reflect.DeepEqual(wide, narrow):
		return true
	case wide.Key != narrow.Key && !anyKey, wide.Effect != narrow.Effect && wide.Effect != "":
		return false
	case wide.Effect == corev1.TaintEffectNoExecute && wide.TolerationSeconds != nil &&
		(narrow.TolerationSeconds == nil || *narrow.TolerationSeconds > *wide.TolerationSeconds):
		return false
	case wide.Operator == corev1.TolerationOpEqual, wide.Operator == "":
		return narrow.Operator == corev1.TolerationOpEqual && wide.Value == narrow.Value
	}
	return wide.Operator == corev1.TolerationOpExists
}

// TestTolerationsMergeByPairs compares with a merge of random lists that compares every two tolerations.
func TestTolerationsMergeByPairs(t *testing.T) {
	seed := rand.Uint64() // in the message of a failure
	random := rand.New(rand.NewPCG(seed, 0))
	for range 20_000 {
		all := make([]corev1.Toleration, random.IntN(6))
		for i := range all {
			all[i] = corev1.Toleration{
				Key:      oneOf(random, "", "a", "b"),
				Operator: oneOf(random, "", corev1.TolerationOpExists, corev1.TolerationOpEqual, corev1.TolerationOpGt),
				Value:    oneOf(random, "", "1", "2"),
				Effect:   oneOf(random, "", corev1.TaintEffectNoExecute, corev1.TaintEffectNoSchedule),
			}
			if random.IntN(2) == 0 {
				all[i].TolerationSeconds = new(random.Int64N(3) - 1)
			}
		}
		split := random.IntN(len(all) + 1)
		if got, want := mergeTolerations(all[:split], all[split:]), mergedByPairs(all); !reflect.DeepEqual(got, want) {
			t.Fatalf("seed %d: %+v merge to %+v, want %+v", seed, all, got, want)
		}
	}
}

func oneOf[T any](random *rand.Rand, values ...T) T { return values[random.IntN(len(values))] }

// TestManyTolerationsMerge merges so many tolerations that a comparison of every two never ends.
func TestManyTolerationsMerge(t *testing.T) {
	const many = 300_000
	all := make([]corev1.Toleration, many)
	for i := range all {
		all[i] = corev1.Toleration{Key: fmt.Sprint("key-", i), Operator: corev1.TolerationOpExists}
	}
	if got := mergeTolerations(all, all[:1]); len(got) != many {
		t.Errorf("%d tolerations, want %d", len(got), many)
	}
	for i := range all {
		all[i] = corev1.Toleration{Key: "key", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(int64(i))}
	}
	if got := mergeTolerations(all); len(got) != 1 || *got[0].TolerationSeconds != many-1 {
		t.Errorf("%d tolerations, want the longest", len(got))
	}
}
