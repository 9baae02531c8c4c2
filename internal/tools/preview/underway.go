package preview

import "github.com/coppice-dev/coppice/internal/rules/ownership"

// Continue predicts how deletions end that have begun, without a DELETE: the controllers go on with some objects, and
// with those that depend on them. An object counts as requested. It plays one schedule only: a cluster that is observed
// again decides its races itself.
func (w *Cluster) Continue(uids []ownership.UID, o Options) Prediction {
	p := newPlay(w, o, schedule{})
	requests := make([]Request, 0, len(uids))
	for _, uid := range uids {
		if known := w.inventory.Object(uid); known != nil {
			p.load(known)
			requests = append(requests, Request{UID: uid})
		}
	}
	p.settle()
	return p.prediction(requests, nil)
}

// Goes reports whether the object is deleted, now or later, if its controllers work and the server permits it.
func (o *Outcome) Goes() bool {
	return o.isDeleted() || o.Fate == Unknown || o.Refusal != nil && !o.Refusal.IsUpdate && len(o.KeptBy) == 0
}
