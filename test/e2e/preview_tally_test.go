package e2e

import "fmt"

// previewTally counts what has occurred in the cases.
type previewTally struct {
	cases, objects, races, waiting, promises, refused, undecided int
	nodes                                                        map[lostNode]int
	blind                                                        map[blindness]int
}

func (all *previewTally) add(w previewCase, result previewResult) {
	all.cases++
	all.objects, all.races, all.waiting = all.objects+result.objects, all.races+result.races, all.waiting+result.waiting
	all.promises, all.refused = all.promises+result.promises, all.refused+result.refused
	if result.undecided {
		all.undecided++
	}
	if w.node != "" {
		all.nodes[w.node]++
	}
	if w.blind != "" {
		all.blind[w.blind]++
	}
}

func (all previewTally) String() string {
	return fmt.Sprintf("%d cases with %d objects, of which %d waited in the end, %d were refused and %d were in a race; of %d pairs it was predicted "+
		"who goes first; in %d cases a webhook decided; pods were on a lost node in %v, and something could not be read in %v",
		all.cases, all.objects, all.waiting, all.refused, all.races, all.promises, all.undecided, all.nodes, all.blind)
}

// rarest counts the cases of the rarest kind.
func (all previewTally) rarest() int {
	return min(all.nodes[silent]+all.nodes[leaving]+all.nodes[gone], all.blind[unconverted]+all.blind[migrated], all.blind[neverUp]+all.blind[wentDown])
}

func (all previewTally) showsLittle() bool {
	return all.waiting == 0 || all.refused == 0 || all.promises == 0 || all.races*10 > all.objects || all.undecided*10 > all.cases ||
		all.cases >= 500 && all.rarest() < leastOfAKind
}

// leastOfAKind is the least number of cases of each rare kind in 500.
const leastOfAKind = 15

// previewResult is how a case has ended.
type previewResult struct {
	problem                          string // empty if it ended as predicted
	objects, races, waiting, refused int
	promises                         int  // of which of two objects goes first
	undecided                        bool // a webhook decides
}
