package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/rules/protection"
	"github.com/coppice-dev/coppice/internal/tools/web/api"
)

// protectedCluster has protected objects. One of them is no longer protected, and the caller may not read another.
type protectedCluster struct{ cluster }

func (protectedCluster) View(read func(g *ownership.Graph)) {
	cluster{}.View(func(g *ownership.Graph) {
		for _, name := range []string{"kept", "lifted", "forbidden", "gone"} {
			g.Observe(ownership.Object{UID: ownership.UID(name), Kind: ownership.Kind{Kind: "ConfigMap"}, Namespace: "shop", Name: name, Protected: true})
		}
		g.Observe(ownership.Object{UID: "hush", Kind: ownership.Kind{Kind: "Secret"}, Namespace: "shop", Name: "hush", Protected: true})
		read(g)
	})
}

// Callers see the protected objects that they may list, with the protections that they read from the server.
func TestProtectedObjectsAreListedForCallersWhoMayListThem(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, name, _ := strings.Cut(r.URL.Path, "/namespaces/shop/")
		if strings.HasSuffix(r.URL.Path, "/validatingwebhookconfigurations/coppice-protect") {
			_, _ = fmt.Fprint(w, `{"kind":"ValidatingWebhookConfiguration","apiVersion":"admissionregistration.k8s.io/v1","metadata":{"uid":"c"}}`)
			return
		}
		labels := `"coppice.dev/protect":"outlives"`
		switch name {
		case "configmaps/kept", "secrets/hush":
		case "configmaps/lifted":
			labels = ""
		case "configmaps/forbidden":
			w.WriteHeader(http.StatusForbidden)
			_, _ = fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","message":"not for you","code":403}`)
			return
		default:
			w.WriteHeader(http.StatusNotFound)
			_, _ = fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`)
			return
		}
		_, object, _ := strings.Cut(name, "/")
		_, _ = fmt.Fprintf(w, `{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":%q,"namespace":"shop","uid":%q,"labels":{%s},
			"annotations":{"coppice.dev/outlives":"[{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"namespace\":\"shop\",\"name\":\"web\"}]"}}}`, object, object, labels)
	}))
	t.Cleanup(server.Close)
	for token, want := range map[string]string{everything: "configmaps/kept, secrets/hush", noSecrets: "configmaps/kept"} {
		r := httptest.NewRequest(http.MethodGet, api.Protected, http.NoBody)
		r.Header.Set("Authorization", "Bearer "+token)
		w := httptest.NewRecorder()
		api.Handler(protectedCluster{}, func(r *http.Request) (api.Caller, error) {
			caller, err := access(r)
			caller.Config = &rest.Config{Host: server.URL}
			return caller, err
		}).ServeHTTP(w, r)
		var list api.ProtectedList
		if err := json.Unmarshal(w.Body.Bytes(), &list); err != nil || w.Code != http.StatusOK {
			t.Fatalf("%d, %v: %s", w.Code, err, w.Body)
		}
		if len(list.Defaults) != 1 || list.Defaults[0] != (protection.Default{Resource: "secrets", Mode: protection.Unused}) {
			t.Errorf("the defaults are %+v", list.Defaults)
		}
		if list.Confirm != "more-than=1; kinds=namespaces" {
			t.Errorf("the limits are %q", list.Confirm)
		}
		var got []string
		for _, one := range list.Items {
			got = append(got, one.Resource+"/"+one.Name)
			if one.Mode != "outlives" || len(one.Outlives) != 1 || one.Outlives[0] != "ConfigMap shop/web" || one.UID == "" || !strings.Contains(one.Unchecked, "leaves writes out") {
				t.Errorf("%+v", one)
			}
		}
		if all := strings.Join(got, ", "); all != want {
			t.Errorf("%s: %s, want %s", token, all, want)
		}
		if unread := strings.Join(list.Unread, "; "); !strings.Contains(unread, "ConfigMap shop/forbidden: not for you") || strings.Contains(unread, api.LeftOut) != (token == noSecrets) {
			t.Errorf("%s: unread %s", token, unread)
		}
		if token == noSecrets && strings.Contains(w.Body.String(), "hush") {
			t.Errorf("names a secret: %s", w.Body)
		}
	}
	if code, _ := ask(t, protectedCluster{}, "", api.Protected); code != http.StatusUnauthorized {
		t.Errorf("nobody is answered with %d", code)
	}
}
