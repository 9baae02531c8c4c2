package client_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/coppice-dev/coppice/internal/rules/apiservice"
)

// R15: the condition of the APIService has the begin of an outage, and why.
func TestR15_OutageOfAnAPIService(t *testing.T) {
	began := time.Date(2026, 5, 1, 12, 0, 20, 0, time.UTC)
	service := func(created, condition string) *fakeServer {
		return answerWith(fmt.Sprintf(`{"metadata":{"name":"v1.a.example.com","creationTimestamp":%q},"status":{"conditions":[%s]}}`, created, condition))
	}
	const down = `{"type":"Available","status":"False","lastTransitionTime":"2026-05-01T12:00:20Z","message":"no endpoints"}`
	for name, test := range map[string]struct {
		server *fakeServer
		want   apiservice.Outage
	}{
		"down":          {service("2026-04-01T12:00:00Z", down), apiservice.Outage{Since: began, Why: "no endpoints"}},
		"never up":      {service("2026-05-01T12:00:00Z", down), apiservice.Outage{Since: began, NeverUp: true, Why: "no endpoints"}},
		"up":            {service("2026-05-01T12:00:00Z", `{"type":"Available","status":"True","lastTransitionTime":"2026-05-01T12:00:20Z"}`), apiservice.Outage{}},
		"not checked":   {service("2026-05-01T12:00:00Z", ``), apiservice.Outage{}},
		"no APIService": {&fakeServer{code: http.StatusNotFound, contentType: "application/json", body: `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`}, apiservice.Outage{}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := test.server.connect(t).Outage(t.Context(), "a.example.com/v1")
			if err != nil || got.NeverUp != test.want.NeverUp || got.Why != test.want.Why || !got.Since.Equal(test.want.Since) {
				t.Errorf("%+v, %v, want %+v", got, err, test.want)
			}
			if want := "/apis/apiregistration.k8s.io/v1/apiservices/v1.a.example.com"; test.server.path != want {
				t.Errorf("the request is about %s, want %s", test.server.path, want)
			}
		})
	}
	forbidden := &fakeServer{code: http.StatusForbidden, contentType: "application/json", body: `{}`}
	if outage, err := forbidden.connect(t).Outage(t.Context(), "a.example.com/v1"); err == nil {
		t.Errorf("without the right to read it: %+v", outage)
	}
}

// R15: the creation is that of this object, not of another one that has its name.
func TestR15_CreationOfAnOwner(t *testing.T) {
	answer := `{"apiVersion":"meta.k8s.io/v1","kind":"PartialObjectMetadata","metadata":{"namespace":"shop","name":"a","uid":%q,"creationTimestamp":"2026-05-01T12:00:00Z"}}`
	created, err := answerWith(fmt.Sprintf(answer, "u")).connect(t).Created(t.Context(), observedPod)
	if err != nil || !created.Equal(time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)) {
		t.Errorf("created %s, %v", created, err)
	}
	if created, err := answerWith(fmt.Sprintf(answer, "other")).connect(t).Created(t.Context(), observedPod); err == nil {
		t.Errorf("another object was created %s", created)
	}
}
