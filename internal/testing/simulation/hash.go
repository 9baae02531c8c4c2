package simulation

import (
	"hash/maphash"
	"slices"
	"strings"

	"github.com/coppice-dev/coppice/internal/collect/collector/client"
)

// hash returns a number for the state of the cluster: the server's objects, the lag of the watches,
// the waiting keys and workers. It ignores revisions, and uses the order of creation in place of
// UIDs.
func (w *cluster) hash() uint64 {
	var h maphash.Hash
	h.SetSeed(hashSeed)
	ordinal := make(map[string]byte)
	id := func(uid string) {
		if _, ok := ordinal[uid]; !ok {
			ordinal[uid] = byte(len(ordinal))
		}
		_ = h.WriteByte(ordinal[uid])
	}
	for _, v := range w.server.standing() {
		id(string(v.UID))
		_, _ = h.WriteString(refText(client.RefOf(v.Object)))
		_ = h.WriteByte(byte(v.Phase))
		_, _ = h.WriteString(strings.Join(v.Finalizers, ","))
		for _, r := range v.Owners {
			id(string(r.UID))
			_ = h.WriteByte(byte(r.BlockOwnerDeletion))
		}
	}
	for i, r := range w.server.resources {
		_ = h.WriteByte(byte(len(r.log) - w.in.streams[i].position))
	}
	waiting := slices.Sorted(slices.Values(w.in.queue.waiting))
	for _, uid := range waiting {
		id(string(uid))
	}
	for _, worker := range w.in.workers {
		id(string(worker.uid))
		_, _ = h.WriteString(worker.call.verb)
		_, _ = h.WriteString(worker.call.ref.Name)
	}
	return h.Sum64()
}

var hashSeed = maphash.MakeSeed() //nolint:gochecknoglobals // hashes are compared within one process
