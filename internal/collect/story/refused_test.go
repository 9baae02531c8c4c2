package story

import (
	"fmt"
	"strings"
	"testing"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/rules/refusal"
)

// The words of refusals take at most half of the bytes of texts; refusers are named beyond that, and the text of a story
// has a line for each of a few refusers.
func TestRefusalsAreBoundedInBytes(t *testing.T) {
	b := NewBook()
	b.limits.bytes = 1 << 20
	b.Seen(new(objectOf([]string{"Namespace/shop"})), "", start)
	const all = 3000
	refuse := func(n int) {
		b.Refused(new(objectOf([]string{fmt.Sprintf("ConfigMap/shop/%d", n), "active"})), "shop", refusal.Refusal{
			By: refusal.ByWebhook, Name: fmt.Sprint("w", n%100), Message: strings.Repeat("m", 1024),
		}, start)
	}
	for n := range 2 * all {
		refuse(n % all)
	}
	check(t, b, start)
	if b.usage.bytes > b.limits.bytes*6/10 {
		t.Errorf("the texts take %d bytes of %d", b.usage.bytes, b.limits.bytes)
	}
	s, objects, _, _ := b.Story("shop", 0, nil, start)
	if len(objects) != all+1 {
		t.Fatalf("%d objects", len(objects))
	}
	for _, o := range objects[1:] {
		if o.Refusal == nil || o.Refusal.Refuser == "" || o.Refusal.Count != 2 {
			t.Fatalf("%+v", o)
		}
	}
	if text := s.Text(objects, start); strings.Count(text, "refused: ") != mostRefusers || len(text) > 50_000 {
		t.Errorf("%d refusers in %d bytes", strings.Count(text, "refused: "), len(text))
	}
	for n := range all {
		b.RefusalEnded(ownership.UID(fmt.Sprint(n)), true, start)
	}
	check(t, b, start)
}

// The refusal of a protected object is its protection, which the Book knows already.
func TestProtectionIsNoRefusal(t *testing.T) {
	b := NewBook()
	b.Seen(new(objectOf([]string{"Namespace/shop"})), "", start)
	o := objectOf([]string{"ConfigMap/shop/c", "protected"})
	b.Seen(&o, "shop", start)
	b.Refused(&o, "shop", refusal.Refusal{By: refusal.ByProtection}, start)
	if _, objects, _, _ := b.Story("shop", 0, nil, start); len(objects) != 2 || objects[1].Refusal != nil || !objects[1].Protected {
		t.Errorf("%+v", objects)
	}
}
