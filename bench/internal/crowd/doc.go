// Package crowd is a synthetic API server with millions of objects, for measurements of collectors.
//
// It speaks the wire protocol of Kubernetes: discovery, lists, watches, GET, DELETE with preconditions, PATCH of owner
// references and finalizers, Leases. It makes objects up from their numbers and keeps only what was changed, so that ten
// million objects take little memory, and the encoding of one takes less than a microsecond.
//
//   - Population (pure) maps numbers to objects: kind, namespace, name, UID, owner, dependents, and back.
//   - encoder (pure) encodes the metadata of an object as protobuf.
//   - Store has the changes: revisions, deletions, patches, the history of each kind, and a Tally of correct and wrong
//     deletions. It deletes nothing by itself: only clients collect garbage.
//   - Server answers requests; Control is the client of its paths below /control, which change objects for a measurement.
//   - Serve is the process of its own that the benchmark starts.
package crowd
