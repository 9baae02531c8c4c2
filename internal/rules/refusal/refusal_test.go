package refusal

import (
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"unicode/utf8"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/coppice-dev/coppice/internal/rules/protection"
)

var configMaps = schema.GroupResource{Resource: "configmaps"}

func forbid(text string) *apierrors.StatusError {
	return apierrors.NewForbidden(configMaps, "a", errors.New(text))
}

// status returns an answer with a code and a reason of the refuser's choice.
func status(code int32, reason metav1.StatusReason, message string) *apierrors.StatusError {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: code, Reason: reason, Message: message}}
}

const (
	denied  = `ValidatingAdmissionPolicy 'keep' with binding 'keep-all' denied request: it is kept`
	noRight = `User "system:coppice:collector" cannot delete resource "configmaps" in API group "" in the namespace "shop"`
	noReply = `failed calling webhook "keep.example.com": failed to call webhook: Post "https://keep.shop.svc:443/?timeout=10s": no endpoints available for service "keep"`
	unlike  = `conversion webhook for example.com/v2, Kind=Widget failed: Post "https://convert.shop.svc:443/?timeout=30s": service "convert" not found`
	charged = `exceeded quota: small, requested: count/secrets=1, used: count/secrets=2, limited: count/secrets=2`
)

func TestRefusalIsRecognizedInTheAnswerOfAServer(t *testing.T) {
	protected, _ := protection.Of(&metav1.ObjectMeta{Labels: map[string]string{protection.Label: "always"}})
	protectedError := protected.Decide(protection.Cascade, nil).Error(configMaps, "shop", "a")
	protectedWords := `protected by its label coppice.dev/protect=always: nobody deletes it; to lift that: coppice unprotect configmaps/a -n shop`
	unconfirmedError := protection.Limits{MoreThan: 1}.Refuse(protection.Closure{Objects: 2}, configMaps, "shop", "a")
	unconfirmedWords := "unconfirmed: 2 objects would be deleted, and more than 1 need a confirmation; to see them, and to confirm: coppice preview delete configmaps/a -n shop"
	for name, test := range map[string]struct {
		err  error
		want Refusal
	}{
		"policy": {
			status(422, metav1.StatusReasonInvalid, forbid(denied).Error()),
			Refusal{ByPolicy, "keep", "keep-all", "it is kept"},
		},
		"policy that chooses a reason": {forbid(denied), Refusal{ByPolicy, "keep", "keep-all", "it is kept"}},
		"policy that is not valid": {
			forbid(`ValidatingAdmissionPolicy 'keep' denied request: failed to configure policy: no params`),
			Refusal{ByPolicy, "keep", "", "failed to configure policy: no params"},
		},
		"mutating policy": {
			status(403, metav1.StatusReasonForbidden, `policy 'add' with binding 'add-all' denied request: no such field`),
			Refusal{ByMutatingPolicy, "add", "add-all", "no such field"},
		},
		"mutating policy that is not valid": {
			status(403, metav1.StatusReasonForbidden, `policy "add" denied request: failed to configure policy: no params`),
			Refusal{ByMutatingPolicy, "add", "", "failed to configure policy: no params"},
		},
		"webhook": {
			status(403, metav1.StatusReasonForbidden, `admission webhook "keep.example.com" denied the request: it is kept`),
			Refusal{ByWebhook, "keep.example.com", "", "it is kept"},
		},
		"webhook without words": {
			status(400, "", `admission webhook "keep.example.com" denied the request without explanation`),
			Refusal{ByWebhook, "keep.example.com", "", "without explanation"},
		},
		"webhook that says there was a conflict": {
			status(409, metav1.StatusReasonConflict, `admission webhook "keep.example.com" denied the request: later`),
			Refusal{ByWebhook, "keep.example.com", "", "later"},
		},
		"webhook that says there is no object": {
			status(404, metav1.StatusReasonNotFound, `admission webhook "keep.example.com" denied the request: no team`),
			Refusal{ByWebhook, "keep.example.com", "", "no team"},
		},
		"unreachable webhook": {
			apierrors.NewInternalError(errors.New(noReply)),
			Refusal{ByUnreachableWebhook, "keep.example.com", "", strings.TrimPrefix(noReply, `failed calling webhook "keep.example.com": `)},
		},
		"unreachable webhook without a reason": {
			apierrors.NewInternalError(errors.New(`failed calling webhook "keep.example.com"; no further details available`)),
			Refusal{ByUnreachableWebhook, "keep.example.com", "", "no further details available"},
		},
		"conversion": {
			status(500, metav1.StatusReasonUnknown, unlike),
			Refusal{ByConversion, "Widget.example.com", "", strings.TrimPrefix(unlike, "conversion webhook for example.com/v2, Kind=Widget ")},
		},
		"conversion in the storage": {
			status(500, metav1.StatusReasonStoreReadError, "StorageError: corrupt object, Code: 7, Key: /registry/example.com/widgets/shop/w, ResourceVersion: 0, AdditionalErrorMsg: object not decodable revision=265: "+unlike),
			Refusal{ByConversion, "Widget.example.com", "", strings.TrimPrefix(unlike, "conversion webhook for example.com/v2, Kind=Widget ")},
		},
		"quota":        {forbid(charged), Refusal{ByQuota, "small", "", charged}},
		"confirmation": {unconfirmedError, Refusal{ByConfirmation, "", "", unconfirmedWords}},
		"protection":   {protectedError, Refusal{ByProtection, "", "", protectedWords}},
		"protection by a policy": {
			status(422, metav1.StatusReasonInvalid, forbid("ValidatingAdmissionPolicy 'coppice-protect' with binding 'coppice-protect' denied request: "+protectedWords).Error()),
			Refusal{ByProtection, "", "", "ValidatingAdmissionPolicy 'coppice-protect' with binding 'coppice-protect' denied request: " + protectedWords},
		},
		"RBAC": {forbid(noRight), Refusal{ByRBAC, "system:coppice:collector", "", noRight}},
		"RBAC with a missing role": {
			forbid(noRight + `: RBAC: clusterrole.rbac.authorization.k8s.io "gc" not found`),
			Refusal{ByRBAC, "system:coppice:collector", "", noRight + `: RBAC: clusterrole.rbac.authorization.k8s.io "gc" not found`},
		},
		"restriction": {
			forbid(`user "system:coppice:collector" is restricted: it deletes with preconditions only`),
			Refusal{ByRBAC, "system:coppice:collector", "", `user "system:coppice:collector" is restricted: it deletes with preconditions only`},
		},
		"owner references": {
			forbid(`cannot set an ownerRef on a resource you can't delete: , <nil>`),
			Refusal{ByRBAC, "", "", `cannot set an ownerRef on a resource you can't delete: , <nil>`},
		},
		"unauthorized": {apierrors.NewUnauthorized("Unauthorized"), Refusal{ByRBAC, "", "", "Unauthorized"}},
		"namespace that is never deleted": {
			apierrors.NewForbidden(schema.GroupResource{Resource: "namespaces"}, "default", errors.New("this namespace may not be deleted")),
			Refusal{ByServer, "", "", "this namespace may not be deleted"},
		},
		"object that is never deleted": {
			apierrors.NewForbidden(schema.GroupResource{Group: "scheduling.k8s.io", Resource: "priorityclasses"}, "system-node-critical", errors.New("this is a system priority class and cannot be deleted")),
			Refusal{ByServer, "", "", "this is a system priority class and cannot be deleted"},
		},
		"verb that is not served": {
			apierrors.NewMethodNotSupported(configMaps, "delete"),
			Refusal{ByServer, "", "", `delete is not supported on resources of kind "configmaps"`},
		},
		"object that cannot be decoded": {
			status(500, metav1.StatusReasonStoreReadError, "failed to decode"), Refusal{ByServer, "", "", "failed to decode"},
		},
		"failure": {apierrors.NewInternalError(errors.New("index out of range")), Refusal{ByFailure, "", "", "index out of range"}},
		"name of an object like a refusal": {
			apierrors.NewForbidden(configMaps, `a" is forbidden: `+denied, errors.New("no")), Refusal{ByServer, "", "", "no"},
		},
		"webhook that chooses the code of a busy server": {
			status(429, metav1.StatusReasonTooManyRequests, `admission webhook "a" denied the request: whether objects use it is not known`),
			Refusal{ByWebhook, "a", "", "whether objects use it is not known"},
		},
		"words like another refusal": {
			status(403, metav1.StatusReasonForbidden, `admission webhook "a" denied the request: `+denied), Refusal{ByWebhook, "a", "", denied},
		},
		"wrapped": {fmt.Errorf("delete ConfigMap shop/a: %w", forbid(denied)), Refusal{ByPolicy, "keep", "keep-all", "it is kept"}},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok := Of(test.err)
			if !ok || got != test.want {
				t.Errorf("%v:\ngot %+v, %t\nwant %+v", test.err, got, ok, test.want)
			}
			if quote, ok := In("could not issue all deletes: " + got.String()); ok && got.By != ByProtection && quote != got {
				t.Errorf("%q is read as %+v", got, quote)
			}
		})
	}
}

// busy returns the answer of our server that has not looked up yet whether an object is in use.
func busy(name string) *apierrors.StatusError {
	notLookedUp := []protection.Remaining{{Busy: true}}
	return protection.New("unused", "").Decide(protection.Cascade, notLookedUp).Error(configMaps, "shop", name)
}

// throughWebhook returns an answer of our webhook as another server passes it on.
func throughWebhook(err *apierrors.StatusError) *apierrors.StatusError {
	passed := *err
	passed.ErrStatus.Message = `admission webhook "protect.coppice.dev" denied the request: ` + err.ErrStatus.Message
	return &passed
}

// A request that may succeed when it is repeated was not refused.
func TestWhatEndsByItselfIsNoRefusal(t *testing.T) {
	for name, err := range map[string]error{
		"nothing":           nil,
		"no answer":         errors.New(`Delete "https://127.0.0.1:6443/": ` + denied),
		"not found":         apierrors.NewNotFound(configMaps, "a"),
		"conflict":          apierrors.NewConflict(configMaps, "a", errors.New("the object has been modified")),
		"too many requests": apierrors.NewTooManyRequests("later", 1),
		"too many, limited": apierrors.NewTooManyRequestsError("later"),
		"busy":              busy("a"),
		"busy webhook":      throughWebhook(busy(`a" is forbidden: `)),
		"unavailable":       apierrors.NewServiceUnavailable("etcdserver: leader changed"),
		"leader changed":    status(500, metav1.StatusReasonUnknown, "etcdserver: leader changed"),
		"storage is away":   status(500, metav1.StatusReasonUnknown, "rpc error: code = Unavailable desc = error reading from server: EOF"),
		"storage is slow":   apierrors.NewInternalError(errors.New("rpc error: code = DeadlineExceeded desc = context deadline exceeded")),
		"storage is left":   status(500, metav1.StatusReasonUnknown, "error reading from server: EOF"),
		"time is over":      status(500, metav1.StatusReasonUnknown, "context deadline exceeded"),
		"cancelled":         status(500, metav1.StatusReasonUnknown, "context canceled"),
		"timeout":           apierrors.NewTimeoutError("request did not complete within requested timeout", 0),
		"server timeout":    apierrors.NewServerTimeout(configMaps, "delete", 1),
		"a server starts":   forbid("not yet ready to handle request"),
		"gateway":           apierrors.NewGenericServerResponse(http.StatusBadGateway, "delete", configMaps, "a", "", 0, true),
	} {
		if r, refused := Of(err); refused {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

// An answer whose code a webhook has chosen is not the server's.
func TestServerAnswers(t *testing.T) {
	const denial = `admission webhook "keep.example.com" denied the request: no team`
	for name, test := range map[string]struct {
		err  error
		is   func(error) bool
		want bool
	}{
		"not found":            {apierrors.NewNotFound(configMaps, "a"), apierrors.IsNotFound, true},
		"denied as not found":  {status(404, metav1.StatusReasonNotFound, denial), apierrors.IsNotFound, false},
		"conflict":             {apierrors.NewConflict(configMaps, "a", errors.New("changed")), apierrors.IsConflict, true},
		"denied as a conflict": {status(409, metav1.StatusReasonConflict, denial), apierrors.IsConflict, false},
		"invalid":              {status(422, metav1.StatusReasonInvalid, "testing value /metadata/uid failed"), apierrors.IsInvalid, true},
		"denied as invalid":    {status(422, metav1.StatusReasonInvalid, denial), apierrors.IsInvalid, false},
		"too many":             {busy("a"), apierrors.IsTooManyRequests, true},
		"too many for us":      {throughWebhook(busy("a")), apierrors.IsTooManyRequests, true},
		"denied as too many":   {status(429, metav1.StatusReasonTooManyRequests, denial), apierrors.IsTooManyRequests, false},
		"another answer":       {apierrors.NewNotFound(configMaps, "a"), apierrors.IsConflict, false},
		"no answer":            {errors.New("connection reset"), apierrors.IsConflict, false},
	} {
		if got := ServerAnswers(test.err, test.is); got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}

// Conditions quote refusals inside other texts.
func TestRefusalIsRecognizedInsideACondition(t *testing.T) {
	for text, want := range map[string]Refusal{
		`could not list instances: ` + unlike:                                                      {ByConversion, "Widget.example.com", "", strings.TrimPrefix(unlike, "conversion webhook for example.com/v2, Kind=Widget ")},
		`Failed to delete all resource types, 1 remaining: configmaps "a" is forbidden: ` + denied: {ByPolicy, "keep", "keep-all", "it is kept"},
		`could not issue all deletes: [Internal error occurred: ` + noReply + `]`:                  {ByUnreachableWebhook, "keep.example.com", "", strings.TrimPrefix(noReply, `failed calling webhook "keep.example.com": `) + "]"},
		`configmaps is forbidden: ` + noRight:                                                      {ByRBAC, "system:coppice:collector", "", noRight},
	} {
		if got, ok := In(text); !ok || got != want {
			t.Errorf("%s:\ngot %+v, %t\nwant %+v", text, got, ok, want)
		}
	}
	for _, text := range []string{"", "3 remaining", "the server is currently unable to handle the request", `User "a`, "ValidatingAdmissionPolicy 'a", throughWebhook(busy("a")).Error()} {
		if got, ok := In(text); ok {
			t.Errorf("%q: %+v", text, got)
		}
	}
}

// Whatever a server answers, a refusal is bounded, and is read again from its text.
func FuzzRefusal(f *testing.F) {
	for _, text := range []string{denied, noRight, noReply, unlike, charged, "conversion webhook for /, Kind= ", strings.Repeat("é", MaxMessage)} {
		f.Add(int32(403), "Forbidden", text)
		f.Add(int32(500), "", `Internal error occurred: configmaps "a" is forbidden: `+text)
	}
	f.Fuzz(func(t *testing.T, code int32, reason, text string) {
		got, refused := Of(status(code, metav1.StatusReason(reason), text))
		if !refused {
			if got != (Refusal{}) {
				t.Fatalf("no refusal, but %+v", got)
			}
			return
		}
		if most := MaxMessage + 2*maxName + 100; got.By == "" || len(got.Name)+len(got.Binding)+len(got.Message) > most {
			t.Errorf("not bounded: %+v", got)
		}
		quote, quoted := In(got.String())
		if got.By.isNamed() && len(text) < maxName && utf8.ValidString(text) && (!quoted || quote != got) {
			t.Errorf("%q is read as %+v, want %+v", got, quote, got)
		}
	})
}

// isNamed reports whether the text of every refusal names the refuser.
func (b By) isNamed() bool {
	return b == ByPolicy || b == ByMutatingPolicy || b == ByWebhook || b == ByUnreachableWebhook || b == ByConversion
}

// A refusal is kept for long, and does not keep the whole answer with it, which may be long.
func TestRefusalDoesNotKeepTheAnswer(t *testing.T) {
	const answers, size = 32, 1 << 20
	live := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := live()
	var kept []Refusal
	for range answers {
		r, ok := Of(status(http.StatusForbidden, metav1.StatusReasonForbidden, `admission webhook "keep.example.com" denied the request: `+strings.Repeat("m", size)))
		if !ok || r.Name != "keep.example.com" {
			t.Fatal(r)
		}
		kept = append(kept, r)
	}
	if after := live(); after > before+answers*size/4 {
		t.Errorf("%d bytes more are live", after-before)
	}
	runtime.KeepAlive(kept)
}
