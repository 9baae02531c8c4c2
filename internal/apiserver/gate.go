package apiserver

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/client-go/kubernetes"

	"github.com/coppice-dev/coppice/internal/apiserver/inprocess"
	"github.com/coppice-dev/coppice/internal/collect/pace"
)

const (
	// gatePatience is how long a request may wait for a server that starts. For administrators, it counts from the
	// start of the server. Admission plug-ins wait as long for their informers.
	gatePatience = 10 * time.Second
	// gateRetry is the number of seconds after which a client whose wait has timed out may retry.
	gateRetry = 1
)

// gate holds requests while a server starts. Until the server has read roles, bindings, namespaces, webhooks, policies,
// definitions and APIServices, it would answer a request that depends on them wrongly, with 403 or 404, and the clients
// of kube-apiserver believe such an answer. Requests that wait longer than gatePatience are answered with 503.
//
// Requests of this process pass: the server needs them to start, and its controllers start later. Health checks
// pass, too. Requests of administrators pass some time after the start, because administrators may have to
// repair the cause of an incomplete read.
//
// It is safe for concurrent use. Each of its events may occur once.
type gate struct {
	patience time.Duration
	opened   chan struct{} // closed when all requests pass
	late     chan struct{} // closed when administrators pass
	stopped  chan struct{} // closed when the server stops
}

func newGate() *gate {
	return &gate{patience: gatePatience, opened: make(chan struct{}), late: make(chan struct{}), stopped: make(chan struct{})}
}

// run opens the gate when ready is closed. If that takes longer than gatePatience, it opens the gate as soon as read
// returns nil: the rest of the start may itself wait for requests, for example to a webhook that admits default
// roles. read retries until its context ends. So does run.
func (g *gate) run(ctx context.Context, ready <-chan struct{}, read func(context.Context) error) {
	context.AfterFunc(ctx, func() { close(g.stopped) })
	patience := time.NewTimer(g.patience)
	defer patience.Stop()
	select {
	case <-ready:
	case <-ctx.Done():
		return
	case <-patience.C:
		close(g.late)
		if read(ctx) != nil {
			return
		}
	}
	close(g.opened)
}

// isOpen reports whether all requests pass.
func (g *gate) isOpen() bool {
	select {
	case <-g.opened:
		return true
	default:
		return false
	}
}

// filter holds the requests to a handler. authenticate identifies administrators.
func (g *gate) filter(next http.Handler, authenticate authenticator.Request, codecs runtime.NegotiatedSerializer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if g.isOpen() || inprocess.Is(r.Context()) || isHealthCheck(r) || g.wait(r, authenticate) {
			next.ServeHTTP(w, r)
			return
		}
		starting := apierrors.NewServiceUnavailable("the server is starting and has not read all it needs to answer: try again")
		starting.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: gateRetry}
		responsewriters.ErrorNegotiated(starting, codecs, schema.GroupVersion{Version: "v1"}, w, r)
	})
}

// wait reports whether a request may pass.
func (g *gate) wait(r *http.Request, authenticate authenticator.Request) bool {
	var late <-chan struct{}
	if isAdministrator(r, authenticate) {
		late = g.late
	}
	patience := time.NewTimer(g.patience)
	defer patience.Stop()
	select {
	case <-g.opened:
		return true
	case <-late:
		return true
	case <-patience.C:
	case <-g.stopped:
	case <-r.Context().Done():
	}
	return false
}

func isHealthCheck(r *http.Request) bool {
	return slices.ContainsFunc([]string{"/healthz", "/livez", "/readyz"}, func(path string) bool {
		return r.URL.Path == path || strings.HasPrefix(r.URL.Path, path+"/")
	})
}

// isAdministrator reports whether the user of a request has all permissions, whatever the roles are, and
// impersonates no other user.
func isAdministrator(r *http.Request, authenticate authenticator.Request) bool {
	if impersonates(r) {
		return false
	}
	// A clone: authenticators remove the credential.
	who, ok, err := authenticate.AuthenticateRequest(r.Clone(r.Context()))
	return err == nil && ok && slices.Contains(who.User.GetGroups(), user.SystemPrivilegedGroup)
}

// readChecks returns the checks of /readyz that pass when the server has read everything on which answers depend. None
// of them waits for a write, which a webhook may refuse.
func readChecks() []string {
	return []string{
		"poststarthook/start-informers", "poststarthook/generic-apiserver-start-informers", "informer-sync",
		"poststarthook/crd-informer-synced", "poststarthook/start-apiextensions-controllers", "poststarthook/" + aggregatedHook,
	}
}

// hasRead returns when the server has read everything on which answers depend, or with an error when ctx
// ends.
func (h hooks) hasRead(ctx context.Context) error {
	return pace.Retry(ctx, h.config.Log, "read what answers depend on", func(ctx context.Context) error {
		for _, check := range readChecks() {
			if err := h.client.Discovery().RESTClient().Get().AbsPath("/readyz/" + check).Do(ctx).Error(); err != nil {
				return err
			}
		}
		return nil
	})
}

// start is the progress of a server's start.
type start struct {
	gate  *gate
	ready chan struct{} // closed when the server is ready
	once  sync.Once     // closes ready
}

func newStart() *start { return &start{gate: newGate(), ready: make(chan struct{})} }

// announce closes ready when /readyz succeeds.
func (s *start) announce(ctx context.Context, log *slog.Logger, client kubernetes.Interface) {
	err := pace.Retry(ctx, log, "become ready", func(ctx context.Context) error {
		return client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	})
	if err == nil {
		s.once.Do(func() { close(s.ready) })
	}
}

func (s *start) isReady() bool {
	select {
	case <-s.ready:
		return true
	default:
		return false
	}
}
