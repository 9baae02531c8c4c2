// Package auditreason carries the reason of a deletion from the collector to the API server's audit
// log.
//
//  1. The collector puts a Reason into the context of a DELETE (NewContext).
//  2. The client sends it in a header, as JSON in ASCII (Value).
//  3. Our API server writes it to the audit log; other servers ignore it.
//
// It is a package of its own so that the API server need not import the collector.
package auditreason

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/collector/report"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/rules/verdict"
)

const (
	// Header is the header of a DELETE that has the Reason.
	Header = "Coppice-Reason"
	// MaxBytes bounds a reason, in bytes. The collector's reasons fit: names are cut, and if that is not
	// enough, owners are left out.
	MaxBytes = 16 << 10
	// MaxOwners bounds the named owners: an object may have thousands.
	MaxOwners = 8
	// maxName is the length to which names are cut, in bytes. Few names are longer.
	maxName = 253
)

// Reason is why an object was collected.
type Reason struct {
	// Decision is the decision in words.
	Decision string `json:"decision"`
	// Policy is the propagation policy of the deletion.
	Policy metav1.DeletionPropagation `json:"policy"`
	// Owners are the object's owners, each with the evidence that counted; MoreOwners is how many were left
	// out.
	Owners     []report.Owner `json:"owners,omitempty"`
	MoreOwners int            `json:"moreOwners,omitempty"`
}

// OwnersOf returns the first MaxOwners of an object's owners, and how many more there are.
func OwnersOf(all []verdict.Owner) (owners []report.Owner, more int) {
	for _, o := range all[:min(len(all), MaxOwners)] {
		owner := report.Owner{
			Kind: ownership.Excerpt(o.Claim.Kind.String(), maxName), Namespace: o.Claim.Namespace,
			Name: ownership.Excerpt(o.Claim.Name, maxName), UID: report.UID(o.Claim.UID),
			Standing: o.Standing.String(), Evidence: o.Evidence.Source.String(), Revision: o.Evidence.Revision,
		}
		if o.Evidence.Time != 0 {
			owner.Time = time.Unix(0, o.Evidence.Time).UTC()
		}
		owners = append(owners, owner)
	}
	return owners, len(all) - len(owners)
}

type contextKey struct{}

// NewContext returns a context whose DELETE carries the reason.
func NewContext(ctx context.Context, reason Reason) context.Context {
	return context.WithValue(ctx, contextKey{}, reason)
}

// Value returns the value of the header of a request with this context; "" if it has no reason.
func Value(ctx context.Context) (string, error) {
	reason, ok := ctx.Value(contextKey{}).(Reason)
	if !ok {
		return "", nil
	}
	for {
		text, err := json.Marshal(reason)
		if err != nil {
			return "", fmt.Errorf("encode the reason of a deletion: %w", err)
		}
		value := ascii(string(text))
		n := len(reason.Owners)
		switch {
		case len(value) <= MaxBytes:
			return value, nil
		case n > 0:
			reason.Owners, reason.MoreOwners = reason.Owners[:n/2], reason.MoreOwners+n-n/2
		case len(reason.Decision) > maxName:
			reason.Decision = ownership.Excerpt(reason.Decision, maxName)
		default:
			return "", fmt.Errorf("the reason of a deletion has %d bytes, and may have %d", len(value), MaxBytes)
		}
	}
}

// ascii returns JSON in a form that a header can carry: characters outside of ASCII occur only in
// strings, where JSON has escapes for them.
func ascii(text string) string {
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
