package collector

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/coppice-dev/coppice/internal/collectionreason"
	"github.com/coppice-dev/coppice/internal/verdict"
)

// Reason is why an object was collected.
type Reason struct {
	// Decision is the decision in words.
	Decision string `json:"decision"`
	// Policy is the propagation policy of the deletion.
	Policy verdict.Propagation `json:"policy"`
	// Owners are those of the object, each with the evidence that counted; MoreOwners
	// were left out.
	Owners     []RecordedOwner `json:"owners,omitempty"`
	MoreOwners int             `json:"moreOwners,omitempty"`
}

type reasonKey struct{}

// withReason lets the DELETE that is sent with ctx say why.
func withReason(ctx context.Context, r Record) context.Context {
	return context.WithValue(ctx, reasonKey{}, Reason{Decision: r.Decision, Policy: r.Policy, Owners: r.Owners, MoreOwners: r.MoreOwners})
}

// explained puts the reason of a request's context into its header.
type explained struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t explained) RoundTrip(r *http.Request) (*http.Response, error) {
	reason, ok := r.Context().Value(reasonKey{}).(Reason)
	if !ok {
		return t.next.RoundTrip(r)
	}
	text, err := json.Marshal(reason)
	if err != nil {
		return nil, fmt.Errorf("encode the reason of a deletion: %w", err)
	}
	r = r.Clone(r.Context())
	r.Header.Set(collectionreason.Header, escaped(string(text)))
	return t.next.RoundTrip(r)
}

// WrappedRoundTripper lets client-go find what is wrapped.
func (t explained) WrappedRoundTripper() http.RoundTripper { return t.next }

// escaped is JSON as a header can carry it: what is not ASCII stands only in strings,
// where JSON has another way to write it.
func escaped(text string) string {
	if strings.IndexFunc(text, func(r rune) bool { return r >= utf8.RuneSelf }) < 0 {
		return text // nearly always
	}
	var b strings.Builder
	for _, r := range text {
		switch {
		case r < utf8.RuneSelf:
			b.WriteRune(r)
		case r > 0xffff:
			r -= 0x10000
			fmt.Fprintf(&b, `\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}
