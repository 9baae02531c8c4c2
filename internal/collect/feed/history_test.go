package feed_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/internal/collect/feed"
)

// R4: after an outage, the server is compared with what was observed. A kind that cannot be read holds nothing up. A server
// that is not ready does, and so does one that refuses all kinds, although it has listed them before. A server that was put
// back in time begins an epoch.
func TestR4_HistoryIsVerified(t *testing.T) {
	for name, test := range map[string]struct {
		refusal map[string]int
		back    int
		fails   bool
		epoch   bool
	}{
		"the same history":        {},
		"a broken kind":           {refusal: map[string]int{"namespaces": http.StatusInternalServerError}},
		"a forbidden kind":        {refusal: map[string]int{"namespaces": http.StatusForbidden}},
		"a server that starts":    {refusal: map[string]int{"namespaces": http.StatusServiceUnavailable, "pods": http.StatusServiceUnavailable}, fails: true},
		"a busy server":           {refusal: map[string]int{"namespaces": http.StatusTooManyRequests, "pods": http.StatusTooManyRequests}, fails: true},
		"nothing can be compared": {refusal: map[string]int{"namespaces": http.StatusForbidden, "pods": http.StatusForbidden}, fails: true},
		"nobody is known":         {refusal: map[string]int{"namespaces": http.StatusUnauthorized, "pods": http.StatusUnauthorized}, fails: true},
		"nothing is served":       {refusal: map[string]int{"namespaces": http.StatusNotFound, "pods": http.StatusNotFound}, fails: true},
		"back in time":            {back: 50, epoch: true},
		"back in time, forbidden": {back: 50, refusal: map[string]int{"namespaces": http.StatusForbidden}, epoch: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(pods, namespaces)
			for range 100 {
				s.put("pods", metav1.ObjectMeta{UID: "a", Name: "a"})
				s.put("namespaces", metav1.ObjectMeta{UID: "n", Name: "n"})
			}
			running(t, s, func(f *feed.Feed, r *recorder) {
				r.take("epoch")
				s.change(func() {
					s.refusal = test.refusal
					s.revision -= test.back
				})
				err := f.VerifyHistory(context.WithoutCancel(t.Context()))
				for tries := 0; err != nil && !test.fails && tries < 3; tries++ { // while kinds are listed anew
					time.Sleep(time.Second)
					err = f.VerifyHistory(context.WithoutCancel(t.Context()))
				}
				if (err != nil) != test.fails {
					t.Errorf("%v", err)
				}
				if got := r.take("epoch"); len(got) > 0 != test.epoch {
					t.Errorf("%v", got)
				}
			})
		})
	}
}
