package apiserver_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/rest"

	"github.com/coppice-dev/coppice/internal/apiserver"
	"github.com/coppice-dev/coppice/internal/apiserver/auth/restriction"
	"github.com/coppice-dev/coppice/internal/collect/auditreason"
	"github.com/coppice-dev/coppice/internal/testing/eventually"
	"github.com/coppice-dev/coppice/internal/testing/transcript"
)

// Every request is logged with its user and its status code, but without contents.
func TestAuditLog(t *testing.T) {
	log := &transcript.Transcript{}
	s := startServer(t, func(c *apiserver.Config) { c.Audit = log })
	path, _ := s.secret(t, "default", "audited")
	ann, err := newClient(s.acting("ann"))
	if err != nil {
		t.Fatal(err)
	}
	if code, _, _ := ann.exchange(http.MethodDelete, path, "", nil); code != http.StatusForbidden {
		t.Errorf("ann deletes: %d", code)
	}
	if code := s.status(t, s.outside(t, nil), "/api/v1/secrets"); code != http.StatusUnauthorized {
		t.Errorf("an unauthenticated read: %d", code)
	}
	if code := s.status(t, s.outside(t, nil), "/readyz"); code != http.StatusOK {
		t.Errorf("readyz: %d", code)
	}
	type entry struct {
		verb, uri, user, as string
		code                int32
	}
	wanted := map[entry]bool{
		{"create", "/api/v1/namespaces/default/secrets", "system:apiserver", "", http.StatusCreated}: true,
		{"delete", path, "system:apiserver", "ann", http.StatusForbidden}:                            true,
		{"list", "/api/v1/secrets", "", "", http.StatusUnauthorized}:                                 true,
	}
	eventually.Agrees(t, func() string {
		for line := range strings.Lines(log.String()) {
			var e auditv1.Event
			if err := json.Unmarshal([]byte(line), &e); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			if e.Level != auditv1.LevelMetadata || e.RequestObject != nil || e.ResponseObject != nil || e.RequestURI == "/readyz" {
				t.Errorf("%s", line)
			}
			if e.ResponseStatus == nil {
				continue
			}
			got := entry{verb: e.Verb, uri: e.RequestURI, user: e.User.Username, code: e.ResponseStatus.Code}
			if e.ImpersonatedUser != nil {
				got.as = e.ImpersonatedUser.Username
			}
			delete(wanted, got)
		}
		if len(wanted) > 0 {
			return "not in the log: " + log.String()
		}
		return ""
	})
	if strings.Contains(log.String(), secretContent) {
		t.Error("the log has the content of a secret")
	}
}

// The audit log contains the reason that the collector gives for a deletion, but not a reason that another
// user gives.
func TestReasonsInTheAuditLog(t *testing.T) {
	log := &transcript.Transcript{}
	s := startServer(t, func(c *apiserver.Config) { c.Audit = log })
	config, err := s.Collector()
	if err != nil {
		t.Fatal(err)
	}
	c := s.configMaps(t, "default")
	remove := func(config *rest.Config, name, reason string) {
		t.Helper()
		o := c.create(name)
		config = rest.CopyConfig(config)
		config.Wrap(func(next http.RoundTripper) http.RoundTripper { return said{next, reason} })
		code, answer := forge(t, config, forged{http.MethodDelete, c.at(name), "", "application/json", `{"preconditions":{"uid":"` + string(o.GetUID()) + `","resourceVersion":"` + o.GetResourceVersion() + `"}}`})
		if code != http.StatusOK {
			t.Fatalf("%d %s", code, answer)
		}
	}
	const reason, none = `{"decision":"delete Background"}`, `{"decision":"no reason was given"}`
	remove(config, "explained", reason)
	remove(config, "silent", "")
	remove(config, "garbled", `{"decision":`)
	remove(config, "lengthy", `"`+strings.Repeat("x", auditreason.MaxBytes)+`"`)
	remove(s.config, "by-hand", reason)
	wanted := map[string]string{"explained": reason, "silent": none, "garbled": none, "lengthy": none, "by-hand": ""}
	eventually.Agrees(t, func() string {
		for line := range strings.Lines(log.String()) {
			var e auditv1.Event
			if err := json.Unmarshal([]byte(line), &e); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			if e.Verb != "delete" || e.ObjectRef == nil {
				continue
			}
			if want, ok := wanted[e.ObjectRef.Name]; ok {
				if got := e.Annotations[restriction.ReasonAnnotation]; got != want {
					t.Errorf("%s: %q, want %q", e.ObjectRef.Name, got, want)
				}
				delete(wanted, e.ObjectRef.Name)
			}
		}
		if len(wanted) > 0 {
			return "not in the log: " + log.String()
		}
		return ""
	})
}

// said adds a reason to requests.
type said struct {
	next   http.RoundTripper
	reason string
}

func (s said) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	if s.reason != "" {
		r.Header.Set(auditreason.Header, s.reason)
	}
	return s.next.RoundTrip(r)
}
