// Package docs has the documents that programs quote.
package docs

import _ "embed"

// Semantics is semantics.md, the contract, in which rules are headings and invariants are items.
//
//go:embed semantics.md
var Semantics string
