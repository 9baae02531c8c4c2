package auth

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"slices"
	"testing"
	"time"
)

func TestFrontProxyNamesUsers(t *testing.T) {
	a := currentAuthority(t)
	pair, err := a.FrontProxy().Current()
	if err != nil {
		t.Fatal(err)
	}
	proxy := parse(t, pair)
	stranger, err := a.FrontProxy().authority.issue(&x509.Certificate{
		Subject: pkix.Name{CommonName: "somebody"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		t.Fatal(err)
	}
	otherPair, err := currentAuthority(t).FrontProxy().Current()
	if err != nil {
		t.Fatal(err)
	}
	named := map[string][]string{"X-Remote-User": {"ann"}, "X-Remote-Group": {"team"}, "X-Remote-Extra-Scopes": {"a"}, "X-Remote-Uid": {"7"}}
	for name, test := range map[string]struct {
		cert    *x509.Certificate
		headers map[string][]string
		user    string // "": refused
	}{
		"the proxy names a user":                  {proxy, named, "ann"},
		"the proxy names nobody":                  {proxy, nil, ""},
		"another name of its authority":           {parse(t, stranger), named, ""},
		"another control plane's proxy":           {parse(t, otherPair), named, ""},
		"the administrator names a user":          {admin(t, a), named, AdminUser},
		"nobody names a user":                     {nil, named, ""},
		"a group without a user is not a request": {proxy, map[string][]string{"X-Remote-Group": {"system:masters"}}, ""},
	} {
		r := request(t, "/api", test.cert)
		for header, values := range test.headers {
			r.Header[header] = slices.Clone(values)
		}
		response, ok, err := authenticatorOf(t, a).AuthenticateRequest(r)
		switch {
		case !ok && test.user != "":
			t.Errorf("%s: refused: %v", name, err)
		case ok && response.User.GetName() != test.user:
			t.Errorf("%s: is %s", name, response.User.GetName())
		case ok && test.user == "ann":
			u := response.User
			if !slices.Contains(u.GetGroups(), "team") || u.GetUID() != "7" || !slices.Equal(u.GetExtra()["scopes"], []string{"a"}) {
				t.Errorf("%s: is %+v", name, u)
			}
		case ok && slices.Contains(response.User.GetGroups(), "team"):
			t.Errorf("%s: has groups %v", name, response.User.GetGroups())
		}
	}
}

// The proxy's certificate is kept until it is due, and the authority of users does not accept it.
func TestFrontProxyCertificate(t *testing.T) {
	now := testNow()
	a, err := LoadAuthority(t.TempDir(), func() time.Time { return now })
	if err != nil {
		t.Fatal(err)
	}
	current := func() Pair {
		t.Helper()
		pair, err := a.FrontProxy().Current()
		if err != nil {
			t.Fatal(err)
		}
		return pair
	}
	first := current()
	if again := current(); string(again.Certificate) != string(first.Certificate) {
		t.Error("it is issued for every request")
	}
	if _, err := parse(t, first).Verify(x509.VerifyOptions{Roots: pool(a), CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}); err == nil {
		t.Error("the authority of users has issued it")
	}
	now = first.Due
	if next := current(); string(next.Certificate) == string(first.Certificate) {
		t.Error("it is not replaced when it is due")
	}
}
