package faults

import (
	"context"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"

	"github.com/coppice-dev/coppice/internal/apiserver/inprocess"
)

// exchange is a request of a client, and its fate once that is drawn.
type exchange struct {
	turn    *turn
	request Request // empty if it is not for a resource
	fate    Fate
}

type exchangeKey struct{}

func exchangeOf(ctx context.Context) *exchange {
	e, _ := ctx.Value(exchangeKey{}).(*exchange)
	return e
}

// Answers loses answers of a server. It is around all filters, so that the audit log has the true answer. Requests of
// the observer meet no faults; those of this process meet only faults that select users.
func (i *Injector) Answers(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		t := i.current.Load()
		if t == nil || programOf(r) == observer || inprocess.Is(r.Context()) && !t.selectsUsers {
			next.ServeHTTP(w, r)
			return
		}
		e := &exchange{turn: t}
		l := &losing{ResponseWriter: w, exchange: e}
		next.ServeHTTP(responsewriter.WrapForHTTP1Or2(l), r.WithContext(context.WithValue(r.Context(), exchangeKey{}, e)))
		if l.status >= http.StatusBadRequest {
			i.refused(e.request, l.status)
		}
		switch {
		case !l.lost:
		case e.fate.Loss == TimedOut:
			w.Header().Del("Content-Encoding") // of the lost answer
			i.refuse(w, r, apierrors.NewTimeoutError("request did not complete within requested timeout - context deadline exceeded", 0))
		default:
			panic(http.ErrAbortHandler) // ends the connection, or the stream of HTTP/2
		}
	})
}

// Requests draws what happens to requests, and refuses writes. It comes after authentication and authorization, which
// tell the user.
func (i *Injector) Requests(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		e := exchangeOf(r.Context())
		if e == nil {
			next.ServeHTTP(w, r)
			return
		}
		described, ok := requestOf(r)
		if inprocess.Is(r.Context()) && !described.Own {
			next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), exchangeKey{}, (*exchange)(nil))))
			return
		}
		if ok {
			e.request, e.fate = described, i.next(e.turn, described)
		}
		if e.fate.OtherWriter {
			i.writeBefore(r.Context())
		}
		switch e.fate.Refusal {
		case TooMany: // as priority and fairness answers
			w.Header().Set("Retry-After", "1")
			http.Error(w, "Too many requests, please try again later.", http.StatusTooManyRequests)
		case LeaderChanged:
			i.refuse(w, r, &apierrors.StatusError{ErrStatus: metav1.Status{
				Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Message: "etcdserver: leader changed",
			}})
		case Unavailable:
			i.refuse(w, r, apierrors.NewServiceUnavailable("apiserver not ready"))
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// touched is the annotation with which another writer changes an object.
const touched = "faults.coppice.dev/other-writer"

// writeBefore changes the object of a request, and changes it back. An object that cannot be changed is left.
func (i *Injector) writeBefore(ctx context.Context) {
	info, ok := request.RequestInfoFrom(ctx)
	if !ok {
		return
	}
	resource := schema.GroupVersionResource{Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource}
	for _, value := range []string{`"true"`, "null"} {
		if i.patch(ctx, resource, info.Namespace, info.Name, []byte(`{"metadata":{"annotations":{"`+touched+`":`+value+`}}}`)) != nil {
			return
		}
	}
}

func (i *Injector) refuse(w http.ResponseWriter, r *http.Request, err error) {
	responsewriters.ErrorNegotiated(err, i.codecs, schema.GroupVersion{Version: "v1"}, w, r)
}

// observer is a program whose requests meet no faults: coppicetest watches the test.
const observer = "coppicetest"

// ownUsers begins the names of the users of the control plane's own controllers.
const ownUsers = "system:coppice:"

// programOf returns the program in the User-Agent header.
func programOf(r *http.Request) string {
	program, _, _ := strings.Cut(r.UserAgent(), "/")
	return program
}

// requestOf describes a request for a resource.
func requestOf(r *http.Request) (Request, bool) {
	info, ok := request.RequestInfoFrom(r.Context())
	if !ok || !info.IsResourceRequest {
		return Request{}, false
	}
	described := Request{
		Verb: info.Verb, Resource: schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}.String(),
		Subresource: info.Subresource, Namespace: info.Namespace, Name: info.Name,
	}
	query := r.URL.Query()
	version := query.Get("resourceVersion")
	described.AtAnyVersion = version == "0" && (info.Verb == "list" || info.Verb == "watch")
	described.Resumes = info.Verb == "watch" && version != "" && version != "0" && query.Get("sendInitialEvents") != "true"
	described.Client = programOf(r)
	if who, ok := request.UserFrom(r.Context()); ok {
		described.User = who.GetName()
	}
	described.Own = inprocess.Is(r.Context()) && strings.HasPrefix(described.User, ownUsers)
	return described, true
}

// losing drops the answer of an exchange whose answer is to be lost, if the request was carried out. It is a
// responsewriter.UserProvidedDecorator.
type losing struct {
	http.ResponseWriter
	exchange *exchange
	status   int // 0: the header has not come
	lost     bool
}

// Unwrap implements responsewriter.UserProvidedDecorator.
func (l *losing) Unwrap() http.ResponseWriter { return l.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (l *losing) WriteHeader(status int) {
	if l.status == 0 && status >= http.StatusOK {
		l.status = status
		l.lost = l.exchange.fate.Loss != "" && status < http.StatusMultipleChoices
	}
	if l.lost {
		return
	}
	l.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (l *losing) Write(p []byte) (int, error) {
	if l.status == 0 {
		l.WriteHeader(http.StatusOK)
	}
	if l.lost {
		return len(p), nil
	}
	return l.ResponseWriter.Write(p)
}

// Flush implements http.Flusher. A lost answer is not begun.
func (l *losing) Flush() {
	if flusher, ok := l.ResponseWriter.(http.Flusher); ok && !l.lost {
		flusher.Flush()
	}
}
