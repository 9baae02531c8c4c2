package recyclebin

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/coppice-dev/coppice/internal/apiserver/keyfile"
	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

// grants are rights to get objects, as RESOURCE/NAMESPACE/NAME; an empty namespace or name means all.
type grants []string

func (g grants) decide(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	for _, namespace := range slices.Compact([]string{"", a.GetNamespace()}) {
		for _, name := range slices.Compact([]string{"", a.GetName()}) {
			if a.GetVerb() == "get" && slices.Contains(g, a.GetResource()+"/"+namespace+"/"+name) {
				return authorizer.DecisionAllow, "", nil
			}
		}
	}
	return authorizer.DecisionNoOpinion, "", nil
}

// filled returns a bin with objects of namespace team, which was recreated: the former one had the UID old.
func filled(t *testing.T) *Bin {
	t.Helper()
	b, err := Open(t.TempDir(), nil, Bounds{Bytes: 1 << 20, Age: time.Hour}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	b.living = func(context.Context, string) (types.UID, error) { return "new", nil }
	b.current = func(context.Context) (int64, error) { return 5, nil }
	began := metav1.NewTime(time.Now().Add(-time.Second))
	for n, i := range []Item{
		{Resource: "secrets", Kind: "Secret", Namespace: "team", NamespaceUID: "old", Name: "former", UID: "u0"},
		{Resource: "namespaces", Kind: "Namespace", Name: "team", UID: "old", DeletionTimestamp: &began},
		{Resource: "secrets", Kind: "Secret", Namespace: "team", NamespaceUID: "new", Name: "present", UID: "u2"},
		{Resource: "secrets", Kind: "Secret", Namespace: "team", Name: "unknown", UID: "u3"},
		{
			Resource: "configmaps", Kind: "ConfigMap", Namespace: "team", NamespaceUID: "new", Name: "owned", UID: "u4",
			Owners: []metav1.OwnerReference{{UID: "u2"}},
		},
	} {
		i.Version, i.Revision, i.Removed = "v1", int64(n+1), time.Now()
		body := fmt.Sprintf(`{"apiVersion":"v1","kind":%q,"metadata":{"name":%q}}`, i.Kind, i.Name)
		if err := b.write([]entry{{Item: i, body: []byte(body)}}, i.Revision); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

func answerOf(t *testing.T, b *Bin, g grants, query string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(request.WithUser(t.Context(), &user.DefaultInfo{Name: "ann"}), http.MethodGet, Path+query, http.NoBody)
	w := httptest.NewRecorder()
	b.Handler(authorizer.AuthorizerFunc(g.decide)).ServeHTTP(w, r)
	return w
}

// laterAnswerOf asks again while the bin is behind, as a client does: a busy machine may need longer than a request waits.
func laterAnswerOf(t *testing.T, b *Bin, g grants, query string) (w *httptest.ResponseRecorder) {
	t.Helper()
	eventually.Agrees(t, func() string {
		if w = answerOf(t, b, g, query); w.Code == http.StatusServiceUnavailable {
			return w.Body.String()
		}
		return ""
	})
	return w
}

func ask(t *testing.T, b *Bin, g grants, query string) (code int, names, unread []string) {
	t.Helper()
	w := laterAnswerOf(t, b, g, query)
	var list List
	if err := json.Unmarshal(w.Body.Bytes(), &list); w.Code == http.StatusOK && err != nil {
		t.Fatalf("%s: %v", w.Body, err)
	}
	for _, i := range list.Items {
		names = append(names, i.Name)
	}
	return w.Code, names, list.Unread
}

// A right in a namespace does not cover objects that were removed in a former namespace with the same name.
func TestR29_FormerNamespaces(t *testing.T) {
	b := filled(t)
	for _, test := range []struct {
		grants grants
		query  string
		want   []string
	}{
		{nil, "", nil},
		{grants{"secrets/team/"}, "", []string{"present"}},
		{grants{"secrets/team/"}, "?name=former", nil},
		{grants{"secrets/team/former"}, "?name=former", nil},
		{grants{"secrets//former"}, "?name=former", []string{"former"}},
		{grants{"secrets/team/present"}, "?name=present", []string{"present"}},
		{grants{"secrets//"}, "", []string{"former", "present", "unknown"}},
		{grants{"secrets/team/"}, "?uid=u0", nil},
		{grants{"secrets/team/"}, "?uid=u3", nil},
		{grants{"secrets/team/"}, "?uid=u2", []string{"present"}},
		{grants{"secrets/team/present"}, "?uid=u2", []string{"present"}},
		{grants{"secrets/team/", "configmaps/team/"}, "?uid=u2", []string{"present", "owned"}},
		{grants{"secrets/team/", "namespaces//"}, "?uid=old", []string{"team"}},
		{grants{"secrets//", "namespaces//"}, "?uid=old", []string{"former", "team"}},
	} {
		code, names, _ := ask(t, b, test.grants, test.query)
		if !slices.Equal(names, test.want) {
			t.Errorf("%v, %q: %d %v, want %v", test.grants, test.query, code, names, test.want)
		}
	}
	if code, _, _ := ask(t, b, nil, "?uid=u0"); code != http.StatusNotFound {
		t.Errorf("what may not be read is answered with %d", code)
	}
	if code, _, _ := ask(t, b, nil, "?uid=absent"); code != http.StatusNotFound {
		t.Errorf("what is not there is answered with %d", code)
	}
}

// The handler decrypts nothing that the caller may not get.
func TestR29_NothingIsDecryptedInVain(t *testing.T) {
	b := filled(t)
	other, err := keyfile.NewKey(make([]byte, 32))
	if err != nil {
		t.Fatal(err)
	}
	b.key = other // which can decrypt nothing
	for _, query := range []string{"", "?name=former", "?namespace=team", "?uid=absent"} {
		if code, names, _ := ask(t, b, grants{"configmaps/other/"}, query); code == http.StatusInternalServerError || len(names) > 0 {
			t.Errorf("%q: %d %v", query, code, names)
		}
	}
	if len(b.young()) == 0 {
		t.Fatal("something was decrypted")
	}
	if code, _, _ := ask(t, b, grants{"secrets//"}, ""); code != http.StatusInternalServerError {
		t.Errorf("who may get something is answered with %d: the test cannot fail", code)
	}
}
