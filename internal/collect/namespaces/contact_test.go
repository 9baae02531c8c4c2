package namespaces

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/clock"
)

// A rate limit of the client delays the contents of namespaces, and no more: each token is for a request that is sent.
func TestR22_RateLimitOfTheClientIsUsed(t *testing.T) {
	for _, qps := range []float32{5, 20} {
		synctest.Test(t, func(t *testing.T) {
			const namespaces, each = 10, 40
			contents := map[string][]string{}
			for n := range namespaces {
				for i := range each {
					contents[fmt.Sprint("ns", n)] = append(contents[fmt.Sprint("ns", n)], fmt.Sprint("c", i))
				}
			}
			s := newRestServer(contents)
			s.run(t, rest.Config{QPS: qps, Burst: 2 * int(qps)})
			ideal := time.Duration(namespaces*each/qps) * time.Second
			s.goneWithin(t, ideal*3/2)
		})
	}
}

// A server that is busy asks to repeat a request later than the request may last. Its answer is reported.
func TestR22_BusyAnswersAreReported(t *testing.T) {
	for name, test := range map[string]struct {
		request    string
		takes      time.Duration
		retryAfter string
		want       string
	}{
		"a late retry":      {"DELETE /api/v1/namespaces/shop/configmaps/busy", 0, "5", "delete configmaps busy: it is not known yet"},
		"a slow answer":     {"DELETE /api/v1/namespaces/shop/configmaps/busy", 8 * time.Second, "1", "delete configmaps busy: it is not known yet"},
		"a retry in an age": {"DELETE /api/v1/namespaces/shop/configmaps/busy", 0, "9223372036854775807", "delete configmaps busy: it is not known yet"},
		"a list":            {"GET /api/v1/namespaces/shop/configmaps", 0, "5", "list configmaps: it is not known yet"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newRestServer(map[string][]string{"shop": {"busy", "idle"}})
				s.before = func(r *http.Request) *restAnswer {
					if r.Method+" "+r.URL.Path != test.request {
						return nil
					}
					select {
					case <-time.After(test.takes):
					case <-r.Context().Done():
					}
					busy := failure(http.StatusTooManyRequests, "TooManyRequests", "it is not known yet")
					busy.retryAfter = test.retryAfter
					return busy
				}
				s.run(t, rest.Config{ContentConfig: rest.ContentConfig{ContentType: "application/json"}})
				<-time.After(time.Minute)
				if got := s.reported(); !strings.Contains(got, test.want) {
					t.Errorf("conditions %s, want %q", got, test.want)
				}
				if strings.HasPrefix(test.request, "DELETE") && s.left()["shop"] != 1 {
					t.Errorf("left: %v, want the one whose deletion is refused", s.left())
				}
			})
		})
	}
}

// slowLimiter is a rate limit with a queue of others.
type slowLimiter struct {
	flowcontrol.RateLimiter

	takes time.Duration
}

// Wait implements flowcontrol.RateLimiter.
func (l slowLimiter) Wait(ctx context.Context) error {
	select {
	case <-time.After(l.takes):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// R4: a DELETE waits in the client, for the rate limit or because the server asks for it, and no other request shows what
// the server does meanwhile. It is sent if the namespace is still terminating: a backup may have been restored.
func TestR4_DeletesThatWaitInTheClient(t *testing.T) {
	const objects = 5
	for name, test := range map[string]struct {
		config rest.Config
		busy   int // so many first DELETEs have to be repeated after 5 s
		reads  int // of the namespace: one for each of two syncs, and one before the first request after a silence
	}{
		"rate limit":  {config: rest.Config{RateLimiter: slowLimiter{flowcontrol.NewFakeAlwaysRateLimiter(), 7 * time.Second}}, reads: 4},
		"Retry-After": {busy: objects, reads: 3},
	} {
		for _, isRestored := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, restored: %t", name, isRestored), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := newRestServer(map[string][]string{"shop": {"a", "b", "c", "d", "e"}})
					lists, busy := 0, make(chan struct{}, test.busy)
					for range test.busy {
						busy <- struct{}{}
					}
					s.before = func(r *http.Request) *restAnswer {
						if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/configmaps") {
							if lists++; lists == 1 && isRestored {
								time.AfterFunc(4*time.Second, s.restore) // the DELETEs have to wait for longer
							}
						}
						if r.Method != http.MethodDelete {
							return nil
						}
						select {
						case <-busy:
							answer := failure(http.StatusTooManyRequests, "TooManyRequests", "try again")
							answer.retryAfter = "5"
							return answer
						default:
							return nil
						}
					}
					s.run(t, test.config)
					if !isRestored {
						s.goneWithin(t, 2*time.Minute)
						if reads := s.count("GET /api/v1/namespaces/shop"); reads != test.reads {
							t.Errorf("the namespace was read %d times, want %d", reads, test.reads)
						}
						return
					}
					<-time.After(10 * time.Minute)
					if left := s.left()["shop"]; left != objects {
						t.Errorf("%d of %d objects of an active namespace are there", left, objects)
					}
				})
			})
		}
	}
}

// A read of the namespace that fails after a silence holds all DELETEs back, and the next sync goes on.
func TestR4_SilenceThatIsNotExplained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newRestServer(map[string][]string{"shop": {"a", "b", "c", "d", "e"}})
		reads, failed := 0, time.Time{}
		s.before = func(r *http.Request) *restAnswer {
			if r.Method != http.MethodGet || r.URL.Path != "/api/v1/namespaces/shop" {
				return nil
			}
			switch reads++; reads {
			case 2, 3: // before the DELETEs, and at the end of the sync
				failed = time.Now()
				return failure(http.StatusForbidden, "Forbidden", "no")
			case 4:
				if left := s.left()["shop"]; left != 5 || time.Since(failed) < minBackoff {
					t.Errorf("%d of 5 objects are left %v after the failure", left, time.Since(failed))
				}
			}
			return nil
		}
		s.run(t, rest.Config{RateLimiter: slowLimiter{flowcontrol.NewFakeAlwaysRateLimiter(), 4 * time.Second}})
		s.goneWithin(t, 5*time.Minute)
	})
}

// DELETEs whose connections come late are not sent. The namespace says so.
func TestR22_UnsentDeletesAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newRestServer(map[string][]string{"shop": {"a", "b"}})
		s.connect = func(r *http.Request) {
			if r.Method == http.MethodDelete {
				<-time.After(latest + time.Second)
			}
		}
		s.run(t, rest.Config{ContentConfig: rest.ContentConfig{ContentType: "application/json"}})
		<-time.After(time.Minute)
		if got := s.reported(); !strings.Contains(got, "delete configmaps a: ") || !strings.Contains(got, errLate.Error()) {
			t.Errorf("conditions %s", got)
		}
		if left := s.left()["shop"]; left != 2 {
			t.Errorf("%d of 2 objects are left", left)
		}
	})
}

// Only an answer of the server shows that it is there, and none makes up for a silence before it.
func TestR4_SilencesAreCounted(t *testing.T) {
	for name, test := range map[string]struct {
		answer *http.Response // between two answers of the server, with as much time between as may be
		isOfIt bool
		fails  bool // the answer is of a server that fails, as without its storage: it has answered, and that ends no silence
	}{
		"an object":                    {answer: answer(http.StatusOK), isOfIt: true},
		"an object that is gone":       {answer: stated(http.StatusNotFound), isOfIt: true},
		"a lack of a right":            {answer: stated(http.StatusForbidden), isOfIt: true},
		"429":                          {answer: stated(http.StatusTooManyRequests), isOfIt: true},
		"429 of priority and fairness": {answer: audited(http.StatusTooManyRequests), isOfIt: true},
		"500":                          {answer: stated(http.StatusInternalServerError), fails: true},
		"500 of a server that panics":  {answer: audited(http.StatusInternalServerError), fails: true},
		"401":                          {answer: stated(http.StatusUnauthorized)},
		"503":                          {answer: stated(http.StatusServiceUnavailable)},
		"a page":                       {answer: paged(http.StatusOK)},
		"a page with 401":              {answer: paged(http.StatusUnauthorized)},
		"a page with 403":              {answer: paged(http.StatusForbidden)},
		"a page with 404":              {answer: paged(http.StatusNotFound)},
		"a page with 429":              {answer: paged(http.StatusTooManyRequests)},
		"a page with 500":              {answer: paged(http.StatusInternalServerError)},
		"a gateway":                    {answer: paged(http.StatusServiceUnavailable)},
		"404 without a body":           {answer: answer(http.StatusNotFound)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				next := answer(http.StatusOK)
				c := newContact(clock.RealClock{})
				transport := c.wrap(lateServer(func(*http.Request) (*http.Response, error) { return next, nil }))
				send := func() (silences int64, isAnswered bool) {
					var d delivery
					request, err := http.NewRequestWithContext(context.WithValue(t.Context(), deliveryKey{}, &d), http.MethodGet, "http://server/api/v1/pods", http.NoBody)
					if err != nil {
						t.Fatal(err)
					}
					if _, err := transport.RoundTrip(request); err != nil {
						t.Fatal(err)
					}
					return d.silences.Load(), !d.isOpen.Load()
				}
				before, _ := send()
				<-time.After(latest - time.Second)
				next = test.answer
				_, isAnswered := send()
				<-time.After(2 * time.Second)
				if lasts := c.lasts(before); isAnswered != (test.isOfIt || test.fails) || lasts != test.isOfIt {
					t.Errorf("the server has answered: %t, and lasts: %t, want %t", isAnswered, lasts, test.isOfIt)
				}
				next = answer(http.StatusOK)
				after, _ := send()
				if c.lasts(before) != test.isOfIt || !c.lasts(after) {
					t.Errorf("the silence is forgotten: %d before it, %d after it", before, after)
				}
			})
		})
	}
}

// A list that breaks off shows no more than a request without an answer: the server may have been put back meanwhile.
func TestR4_ListsThatBreakOffAreUnanswered(t *testing.T) {
	for name, test := range map[string]struct {
		rest   io.Reader
		breaks bool
	}{
		"whole":      {strings.NewReader("}"), false},
		"broken off": {iotest.ErrReader(io.ErrUnexpectedEOF), true},
		"reset":      {iotest.ErrReader(syscall.ECONNRESET), true},
	} {
		t.Run(name, func(t *testing.T) {
			c := newContact(clock.RealClock{})
			transport := c.wrap(lateServer(func(*http.Request) (*http.Response, error) {
				list := answer(http.StatusOK)
				list.Body = io.NopCloser(io.MultiReader(strings.NewReader("{"), test.rest))
				return list, nil
			}))
			var d delivery
			request, err := http.NewRequestWithContext(context.WithValue(t.Context(), deliveryKey{}, &d), http.MethodGet, "http://server/api/v1/pods", http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			list, err := transport.RoundTrip(request)
			if err != nil || d.isUnanswered(nil) {
				t.Fatalf("before the list is read: %v, unanswered: %t", err, d.isUnanswered(nil))
			}
			_, err = io.ReadAll(list.Body)
			if got := d.isUnanswered(err); got != test.breaks || (err != nil) != test.breaks {
				t.Errorf("unanswered: %t, want %t; error %v", got, test.breaks, err)
			}
		})
	}
}

// A request that was sent and got no answer ends the trust. One that waits in the client until its end does not, nor one
// whose connection came late.
func TestR4_WaitsInTheClientAreNoOutage(t *testing.T) {
	for name, test := range map[string]struct {
		limit    time.Duration // the wait for the rate limit
		connects time.Duration // the wait for the connection
		server   lateServer
		isLost   bool
	}{
		"a page with 200": {server: func(*http.Request) (*http.Response, error) { return paged(http.StatusOK), nil }, isLost: true},
		"a page with 401": {server: func(*http.Request) (*http.Response, error) { return paged(http.StatusUnauthorized), nil }, isLost: true},
		"a page with 403": {server: func(*http.Request) (*http.Response, error) { return paged(http.StatusForbidden), nil }, isLost: true},
		"a page with 404": {server: func(*http.Request) (*http.Response, error) { return paged(http.StatusNotFound), nil }, isLost: true},
		"a page with 409": {server: func(*http.Request) (*http.Response, error) { return paged(http.StatusConflict), nil }, isLost: true},
		"a page with 429": {server: func(*http.Request) (*http.Response, error) { return paged(http.StatusTooManyRequests), nil }, isLost: true},
		"a refusal":       {server: func(*http.Request) (*http.Response, error) { return stated(http.StatusForbidden), nil }},
		"a failure":       {server: func(*http.Request) (*http.Response, error) { return stated(http.StatusInternalServerError), nil }},
		"a busy server":   {server: func(*http.Request) (*http.Response, error) { return audited(http.StatusTooManyRequests), nil }},
		"no answer":       {server: func(*http.Request) (*http.Response, error) { return nil, context.DeadlineExceeded }, isLost: true},
		"a gateway":       {server: func(*http.Request) (*http.Response, error) { return answer(http.StatusBadGateway), nil }, isLost: true},
		"rate limit":      {limit: time.Minute},
		"rate limit before a repetition": {limit: 6 * time.Second, server: func(*http.Request) (*http.Response, error) {
			busy := audited(http.StatusTooManyRequests)
			busy.Header.Set(retryAfter, "1")
			return busy, nil
		}},
		"a late connection": {connects: latest + time.Second, server: func(r *http.Request) (*http.Response, error) {
			_, err := r.Body.Read(make([]byte, 1))
			return nil, err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := lateServer(func(r *http.Request) (*http.Response, error) {
					if r.Method == http.MethodGet {
						return newRestServer(map[string][]string{"shop": nil}).RoundTrip(r)
					}
					<-time.After(test.connects)
					return test.server(r)
				})
				config := &rest.Config{Host: "http://server", Transport: server, RateLimiter: slowLimiter{flowcontrol.NewFakeAlwaysRateLimiter(), test.limit}}
				controller, err := NewForConfig(config, Options{})
				if err != nil {
					t.Fatal(err)
				}
				trust := controller.newTrust(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", UID: "shop"}}, 0)
				ctx := trust.conditional(t.Context())
				err = controller.contents.deleteObject(ctx, "shop", configMaps, Object{Name: "a", UID: "1"})
				unanswered := trust.note(ctx, err)
				if unanswered != nil != test.isLost || trust.isLost() != test.isLost || cmp.Or(err, unanswered) == nil {
					t.Errorf("unanswered: %v, lost: %t, want %t; error %v", unanswered, trust.isLost(), test.isLost, err)
				}
			})
		})
	}
}

func answer(code int) *http.Response {
	return &http.Response{StatusCode: code, Body: http.NoBody, Header: http.Header{}}
}

// paged returns an answer of a load balancer.
func paged(code int) *http.Response {
	return &http.Response{StatusCode: code, Body: io.NopCloser(strings.NewReader("default backend")), Header: http.Header{"Content-Type": {"text/plain"}}}
}

// audited returns an answer of an API server in plain text.
func audited(code int) *http.Response {
	response := paged(code)
	response.Header.Set("Audit-Id", "1")
	return response
}

// stated returns an answer of an API server.
func stated(code int) *http.Response {
	status := fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","code":%d}`, code)
	return &http.Response{StatusCode: code, Body: io.NopCloser(strings.NewReader(status)), Header: http.Header{"Content-Type": {"application/json"}}}
}
