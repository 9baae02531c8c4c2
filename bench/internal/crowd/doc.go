// Package crowd is a synthetic API server with millions of objects, for measurements of collectors.
//
// It speaks the wire protocol of Kubernetes: discovery, lists, watches, GET, DELETE with preconditions, PATCH of owner
// references and finalizers, Leases. It makes up objects from their numbers, and keeps changes only. Ten million
// objects take little memory, and the encoding of one takes less than a microsecond.
//
//   - Population (pure) maps numbers to objects: kind, namespace, name, UID, owner, dependents, and back.
//   - encoder (pure) encodes the metadata of an object as protobuf.
//   - Store has the changes: revisions, deletions, patches, the history of each kind, and a tally of correct and wrong
//     deletions. It never collects garbage; clients do.
//   - Server answers requests; Control is the client of its paths below /control, which change objects for a measurement.
//   - Serve is the main function of the process that the benchmark starts.
package crowd
