package auditreason

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/collector/report"
	"github.com/coppice-dev/coppice/internal/rules/verdict"
)

// A reason survives the header with any characters; a request without a reason has no header.
func TestReasonInHeader(t *testing.T) {
	var got []string
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		got = append(got, strings.Join(r.Header.Values(Header), "|"))
	}))
	defer server.Close()
	want := Reason{Decision: "delete\r\nX: \"süß\" 𝄞 \x00", Policy: metav1.DeletePropagationBackground, MoreOwners: 2, Owners: []report.Owner{{Kind: "ConfigMap", Name: "ö", UID: "1", Evidence: "live read", Revision: 7}}}
	for _, reasoned := range []bool{true, false} {
		ctx := t.Context()
		if reasoned {
			ctx = NewContext(ctx, want)
		}
		request, err := http.NewRequestWithContext(ctx, http.MethodDelete, server.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		value, err := Value(ctx)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set(Header, value)
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
	}
	if len(got) != 2 || got[1] != "" {
		t.Fatalf("%q", got)
	}
	var reason Reason
	if err := json.Unmarshal([]byte(got[0]), &reason); err != nil {
		t.Fatalf("%q: %v", got[0], err)
	}
	if diff := cmp.Diff(want, reason); diff != "" {
		t.Error(diff)
	}
}

// The server accepts the length of every reason of the collector.
func TestReasonIsBounded(t *testing.T) {
	name := strings.Repeat("\u00e4", 253) // six bytes each, escaped
	var all []verdict.Owner
	for range 100 {
		var o verdict.Owner
		o.Claim.Kind.Kind, o.Claim.Namespace, o.Claim.Name = strings.Repeat("K", 63), strings.Repeat("n", 63), name
		all = append(all, o)
	}
	owners, more := OwnersOf(all)
	if len(owners) != MaxOwners || more != len(all)-MaxOwners {
		t.Errorf("%d owners, and %d more", len(owners), more)
	}
	decision := verdict.Delete{Propagation: verdict.Background, Reason: name}
	text, err := json.Marshal(Reason{Decision: decision.String(), Policy: metav1.DeletionPropagation(decision.Propagation), Owners: owners, MoreOwners: more})
	if err != nil {
		t.Fatal(err)
	}
	if n := len(ascii(string(text))); n > MaxBytes || n < 4<<10 {
		t.Errorf("%d bytes", n)
	}
}

// A reason that is too long is shortened, so that the server accepts the deletion.
func TestLongReasonIsShortened(t *testing.T) {
	reason := Reason{Decision: strings.Repeat("d", 1<<20), Policy: metav1.DeletePropagationBackground}
	for range MaxOwners {
		reason.Owners = append(reason.Owners, report.Owner{Name: strings.Repeat("\u00e4", 1024)})
	}
	value, err := Value(NewContext(t.Context(), reason))
	if err != nil {
		t.Fatal(err)
	}
	var got Reason
	if err := json.Unmarshal([]byte(value), &got); err != nil || len(value) > MaxBytes {
		t.Fatalf("%d bytes, %v", len(value), err)
	}
	if len(got.Owners)+got.MoreOwners != MaxOwners || got.Policy != metav1.DeletePropagationBackground || got.Decision == "" {
		t.Errorf("%d owners and %d more, policy %q", len(got.Owners), got.MoreOwners, got.Policy)
	}
}
