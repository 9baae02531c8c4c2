package pace

import (
	"context"
	"net/http"
	"strings"
	"time"
)

// breaks counts the times after which the server may not be the observed one.
type breaks struct {
	outages  int // times in which the server could not be reached, or may have been away
	silences int // times in which no request was answered for long, but for failures of the server and answers of others
}

// verification is one call of the function that verifies the server.
//
// An answer to one of its requests shows the server as it was a moment before, also if the request has waited for long: a
// server that is put back ends its connections. So the last answer covers all silences before it, and a slow server is
// verified, too. It does not if it took much longer than any answer before: then a proxy may have kept it while the server
// was put back. Nor does it cover outages: they may belong to a part of the server that another request has reached.
type verification struct {
	reach   *Reach
	covered breaks // guarded by reach.mu
}

// sentRequest is a request that was sent.
type sentRequest struct {
	kind    string
	part    *verification // nil: of none
	began   time.Time
	slowest time.Duration // of the answers before
}

// verificationKey is the key of a verification in a context.
type verificationKey struct{}

// verificationOf returns the verification of a context; nil if there is none.
func verificationOf(ctx context.Context) *verification {
	v, _ := ctx.Value(verificationKey{}).(*verification)
	return v
}

// partOf returns the verification by r to which a request belongs; nil if there is none.
func (r *Reach) partOf(request *http.Request) *verification {
	if v := verificationOf(request.Context()); v != nil && v.reach == r {
		return v
	}
	return nil
}

// beginVerification returns a new verification; nil if the server was verified after the last break.
func (r *Reach) beginVerification() *verification {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.verified == r.counted {
		return nil
	}
	r.checked = r.clock.Now()
	return &verification{reach: r, covered: r.counted}
}

// endVerification records how a verification has ended. It reports whether a failure must be logged.
func (r *Reach) endVerification(v *verification, err error) (isDue bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failure = err
	if err == nil {
		r.verified = v.covered // not of an outage that has begun meanwhile
		if r.verified == r.counted {
			r.slowest = 0
		}
		return false
	}
	if now := r.clock.Now(); r.told.IsZero() || now.Sub(r.told) >= outagePeriod {
		r.told = now
		return true
	}
	return false
}

// answers is how a server has answered the requests for a kind.
type answers struct {
	count     int  // that show objects
	isHanging bool // a request has ended without an answer since the last one
}

// Answers returns how often the server's answers to requests for a resource have shown that objects are there, or gone. It is
// for the function that verifies the server, which passes its context; for others it returns 0.
func Answers(ctx context.Context, group, resource string) int {
	v := verificationOf(ctx)
	if v == nil {
		return 0
	}
	v.reach.mu.Lock()
	defer v.reach.mu.Unlock()
	return v.reach.kinds[group+"/"+resource].count
}

// noteAnswerLocked records an answer to a request.
func (r *Reach) noteAnswerLocked(sent sentRequest, shown evidence) {
	took := r.clock.Since(sent.began)
	r.slowest = max(r.slowest, took)
	r.isFailing = !shown.endsSilence
	if r.isFailing {
		return
	}
	r.heard = r.clock.Now()
	if v := sent.part; v != nil && took <= longSilence+2*sent.slowest {
		v.covered.silences = r.counted.silences
	}
	count := r.kinds[sent.kind].count
	if shown.showsObjects {
		count++
	}
	r.kinds[sent.kind] = answers{count: count}
}

// isUnexpected reports whether the missing answer to a request may mean that the server is away. It does not if the kind
// has not answered since another request for it got no answer: else each request for a kind that hangs would be an
// outage. Silences count in any case; a request that has not waited for long may hide one.
func (r *Reach) isUnexpected(sent sentRequest) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.kinds[sent.kind]
	r.kinds[sent.kind] = answers{before.count, true}
	return !before.isHanging || r.clock.Since(sent.began) <= longSilence
}

// kindOf returns the group and the resource in the path of a request, as in apps/deployments; "" for paths of no
// resource.
func kindOf(path string) string {
	group, found := "", false
	_, rest, isGrouped := strings.Cut(path, "/apis/")
	if isGrouped {
		if group, rest, found = strings.Cut(rest, "/"); !found {
			return ""
		}
		_, rest, found = strings.Cut(rest, "/") // the version
	} else {
		_, rest, found = strings.Cut(path, "/api/v1/")
	}
	if !found {
		return ""
	}
	parts := strings.Split(rest, "/")
	if parts[0] == "namespaces" && len(parts) > 2 {
		parts = parts[2:]
	}
	return group + "/" + parts[0]
}
