// Package collectionreason is the protocol by which the collector states why it deletes an
// object, and the API server records it in the audit log.
package collectionreason

const (
	// Header is the header of a DELETE request that carries the collector's reason, as JSON
	// in ASCII. Our API server writes it to the audit log; other API servers ignore it.
	Header = "Coppice-Reason"
	// MaxBytes is the maximum length of a reason. Names are bounded by the API and the number
	// of recorded owners by the collector, so no reason of the collector is longer.
	MaxBytes = 16 << 10
)
