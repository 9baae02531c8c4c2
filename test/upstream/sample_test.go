package upstream

import (
	"math/rand/v2"
	"slices"

	"github.com/coppice-dev/coppice/internal/testing/variation"
)

// Not every place of every object is worth an experiment. Nine kinds have the template of a pod, with two thousand
// places, and both sides validate all templates with the same code. A state, of which a Pod has a dozen, matters to few
// places, and edits of all values that an object has are played in each state. So every place is changed in the valid
// objects of the kinds, and in the template of one; of the other experiments a sample is played, another one with each
// seed.
const (
	templateKind  = "Deployment"
	templateShare = 10 // one of so many
	stateShare    = 4
)

// sampleOf returns the experiments of a kind to play, of those that change single places, right and wrong.
func sampleOf(random *rand.Rand, k *variation.Kind, all []variation.Experiment) []variation.Experiment {
	if k.State != nil {
		all = slices.DeleteFunc(all, func(variation.Experiment) bool { return random.IntN(stateShare) > 0 })
	}
	return sampleOfTemplates(random, k, all)
}

// sampleOfTemplates returns the experiments of a kind to play, of edits.
func sampleOfTemplates(random *rand.Rand, k *variation.Kind, all []variation.Experiment) []variation.Experiment {
	if k.GVK.Kind == templateKind && k.State == nil {
		return all
	}
	return slices.DeleteFunc(all, func(e variation.Experiment) bool { return isOfTemplates(e) && random.IntN(templateShare) > 0 })
}

// isOfTemplates reports whether an experiment changes nothing but the spec inside of a pod template.
func isOfTemplates(e variation.Experiment) bool {
	return len(e.Changes) > 0 && !slices.ContainsFunc(e.Changes, func(c variation.Change) bool {
		i := slices.Index(c.Path, any("template"))
		return i < 0 || i+2 >= len(c.Path) || c.Path[i+1] != "spec"
	})
}
