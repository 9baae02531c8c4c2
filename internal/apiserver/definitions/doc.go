// Package definitions has what this server does about CustomResourceDefinitions beside apiextensions-apiserver: it
// establishes them in the write that creates them, and reports those whose instances cannot be deleted (R31).
//
// # New definitions
//
// An [Establisher] establishes a definition in the write that creates it, if no other definition has its names.
// apiextensions-apiserver creates a definition without a status. One controller then accepts the names, and another one
// establishes the definition. Both process definitions one by one, and encode, write and decode each one completely:
// hundreds of definitions take seconds. These controllers still handle the other cases: names that are in use,
// conversion by a webhook, several servers on one store.
//
// A client may see an established definition before this server's informer does, and the handler of custom resources
// serves the definitions in the informer. [WithDefinitions] delays requests for the new resource until then, for
// milliseconds. The handler itself would delay the first objects by two seconds, for other servers whose informers are
// behind; here there are no others.
//
// # Definitions that are being deleted
//
// The finalizing controller of apiextensions-apiserver deletes the instances, straight in the storage, and tells in the
// condition Terminating why it could not: their conversion webhook does not answer, or an instance is protected.
//
//	definition changed ──▶ queue ──▶ progressOf (pure) ──▶ refused: status, story, Event; after a minute, another try
//	                                                    └▶ over: forgotten
//
// The finalizing controller tries again with a back-off of several minutes, or at once when the definition has changed.
// A [Controller] makes it try once a minute.
package definitions
