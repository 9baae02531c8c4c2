package collector

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/coppice-dev/coppice/internal/collectionreason"
	"github.com/coppice-dev/coppice/internal/verdict"
)

// A reason comes through a header as it was, whatever is in it; a request without one has none.
func TestReasonInHeader(t *testing.T) {
	var got []string
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		got = append(got, strings.Join(r.Header.Values(collectionreason.Header), "|"))
	}))
	defer server.Close()
	client := http.Client{Transport: explained{http.DefaultTransport}}
	r := Record{Decision: "delete\r\nX: \"süß\" 𝄞 \x00", Policy: verdict.Background, MoreOwners: 2, Owners: []RecordedOwner{{Kind: "ConfigMap", Name: "ö", UID: "1", Evidence: "live read", Revision: 7}}}
	for _, reasoned := range []bool{true, false} {
		ctx := t.Context()
		if reasoned {
			ctx = withReason(ctx, r)
		}
		request, err := http.NewRequestWithContext(ctx, http.MethodDelete, server.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := client.Do(request)
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
	if diff := cmp.Diff(Reason{Decision: r.Decision, Policy: r.Policy, Owners: r.Owners, MoreOwners: 2}, reason); diff != "" {
		t.Error(diff)
	}
}

// No reason that the collector gives is longer than what the server takes.
func TestReasonIsBounded(t *testing.T) {
	name := strings.Repeat("\u00e4", 253) // six bytes each, escaped
	f := verdict.Facts{}
	for range 100 {
		var o verdict.Owner
		o.Claim.Kind.Kind, o.Claim.Namespace, o.Claim.Name = strings.Repeat("K", 63), strings.Repeat("n", 63), name
		f.Owners = append(f.Owners, o)
	}
	r := recordOf(f, verdict.Delete{Propagation: verdict.Background, Reason: name})
	text, err := json.Marshal(Reason{Decision: r.Decision, Policy: r.Policy, Owners: r.Owners, MoreOwners: r.MoreOwners})
	if err != nil {
		t.Fatal(err)
	}
	if n := len(escaped(string(text))); n > collectionreason.MaxBytes || n < 4<<10 {
		t.Errorf("%d bytes", n)
	}
}
