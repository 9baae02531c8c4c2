package accesscontrol_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/coppice-dev/coppice/internal/apiserver/auth/accesscontrol"
)

// roles allow reading.
func roles(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if a.GetVerb() == "get" {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

func TestOneModeThatAllowsSuffices(t *testing.T) {
	for name, test := range map[string]struct {
		modes             []string
		get, update, ours bool // whether a user may get and update, and a component may get
	}{
		"none":                 {nil, true, false, true},
		"roles":                {[]string{"Node", "RBAC"}, true, false, true},
		"everything":           {[]string{"AlwaysAllow"}, true, true, true},
		"nothing":              {[]string{"AlwaysDeny"}, false, false, true},
		"nothing but nodes":    {[]string{"Node"}, false, false, true},
		"what one of two does": {[]string{"AlwaysDeny", "AlwaysAllow"}, true, true, true},
	} {
		a, err := accesscontrol.External{Modes: test.modes}.Authorizer(authorizer.AuthorizerFunc(roles), []string{"component"})
		if err != nil {
			t.Fatal(name, err)
		}
		may := func(who, verb string) bool {
			decision, _, err := a.Authorize(t.Context(), authorizer.AttributesRecord{User: &user.DefaultInfo{Name: who}, Verb: verb})
			return err == nil && decision == authorizer.DecisionAllow
		}
		if may("jane", "get") != test.get || may("jane", "update") != test.update || may("component", "get") != test.ours {
			t.Errorf("%s: get %t, update %t, component %t", name, may("jane", "get"), may("jane", "update"), may("component", "get"))
		}
	}
	for _, config := range []accesscontrol.External{
		{Modes: []string{"Guess"}}, {Modes: []string{"Webhook"}}, {Modes: []string{"Webhook"}, AuthorizationWebhook: accesscontrol.Webhook{Kubeconfig: "/no/such/file"}},
	} {
		if _, err := config.Authorizer(authorizer.AuthorizerFunc(roles), nil); err == nil {
			t.Errorf("%+v is accepted", config)
		}
	}
}

func TestTokens(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.csv")
	if err := os.WriteFile(path, []byte("secret,jane,1,readers\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	all, err := accesscontrol.External{Tokens: path}.Authenticators(authenticator.Audiences{"us"})
	if err != nil || len(all) != 1 {
		t.Fatal(len(all), err)
	}
	for token, want := range map[string]bool{"secret": true, "other": false} {
		response, ok, err := all[0].AuthenticateToken(t.Context(), token)
		if ok != want || err != nil || want && response.User.GetName() != "jane" {
			t.Errorf("%s: %v %t %v", token, response, ok, err)
		}
	}
	for _, config := range []accesscontrol.External{{Tokens: "/no/such/file"}, {TokenWebhook: accesscontrol.Webhook{Kubeconfig: "/no/such/file"}}} {
		if _, err := config.Authenticators(nil); err == nil {
			t.Errorf("%+v is accepted", config)
		}
	}
}

func TestClientAuthorities(t *testing.T) {
	own := []byte("own")
	if got, err := (accesscontrol.External{}).ClientAuthorities(own); err != nil || !bytes.Equal(got, own) {
		t.Errorf("%q, %v", got, err)
	}
	path := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(path, []byte("no certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{path, "/no/such/file"} {
		if got, err := (accesscontrol.External{ClientCA: file}).ClientAuthorities(own); err == nil {
			t.Errorf("%s: %q", file, got)
		}
	}
}
