package namespaces

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"
)

// R4: a load balancer answers while a server is away, or the server while its storage is, which comes back from a backup in
// which the namespace is active. None of its objects is deleted by what was known before.
func TestR4_NamespaceRestoredBehindAFront(t *testing.T) {
	const objects, begins, ends = 300, 10 * time.Second, 40 * time.Second
	answers := map[string]*restAnswer{"without storage": failure(http.StatusInternalServerError, "", "etcdserver: request timed out")}
	for _, code := range []int{
		http.StatusOK, http.StatusFound, http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusConflict,
		http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusServiceUnavailable,
	} {
		answers[http.StatusText(code)] = &restAnswer{code: code, page: "default backend"}
	}
	for name, answer := range answers {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				names := make([]string, objects)
				for i := range names {
					names[i] = fmt.Sprint("c", i)
				}
				s, began := newRestServer(map[string][]string{"shop": names}), time.Now()
				s.before = func(*http.Request) *restAnswer {
					if passed := time.Since(began); passed < begins || passed >= ends {
						return nil
					}
					return answer
				}
				s.run(t, rest.Config{QPS: 5, Burst: 10})
				<-time.After(ends - time.Millisecond)
				at := s.left()["shop"]
				s.restore()
				<-time.After(10 * time.Minute)
				if got := s.left()["shop"]; at == objects || got != at {
					t.Errorf("of %d objects, %d are there when the backup is restored, and %d later", objects, at, got)
				}
			})
		})
	}
}

// R4: a 404 of a load balancer means neither that the namespace is gone, nor that a CustomResourceDefinition is. The controller
// goes on when the server answers.
func TestR4_NotFoundOfAFrontIsNoEnd(t *testing.T) {
	for name, request := range map[string]string{
		"the namespace is read":      "GET /api/v1/namespaces/shop",
		"the namespace is finalized": "PUT /api/v1/namespaces/shop/finalize",
		"an object is deleted":       "DELETE /api/v1/namespaces/shop/configmaps/a",
		"objects are listed":         "GET /api/v1/namespaces/shop/configmaps",
		"definitions are listed":     "GET /apis/apiextensions.k8s.io/v1/customresourcedefinitions",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const lasts = time.Minute
				s, began := newRestServer(map[string][]string{"shop": {"a"}}), time.Now()
				var requests atomic.Int64
				s.before = func(r *http.Request) *restAnswer {
					if r.Method+" "+r.URL.Path != request || strings.Contains(r.URL.RawQuery, "watch") || time.Since(began) >= lasts {
						return nil
					}
					requests.Add(1)
					return &restAnswer{code: http.StatusNotFound, page: "default backend"}
				}
				s.run(t, rest.Config{})
				<-time.After(lasts - time.Second)
				if _, isThere := s.left()["shop"]; !isThere || requests.Load() < 2 {
					t.Errorf("after %d answers of a load balancer, the namespace is there: %t", requests.Load(), isThere)
				}
				s.goneWithin(t, lasts)
			})
		})
	}
}
