package auth

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"fmt"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
)

// Components has the tokens with which components in this process authenticate to the API server, each as
// its own user. They are generated at each start and kept in memory only.
type Components struct {
	tokens map[string]string                       // by user
	users  map[[sha256.Size]byte]*user.DefaultInfo // by hash of the token, so that the duration of a look-up discloses nothing
}

var _ authenticator.Token = (*Components)(nil)

// NewComponents generates a token for each of the users.
func NewComponents(users ...string) *Components {
	c := &Components{tokens: map[string]string{}, users: map[[sha256.Size]byte]*user.DefaultInfo{}}
	for _, name := range users {
		token := rand.Text()
		c.tokens[name] = token
		c.users[sha256.Sum256([]byte(token))] = &user.DefaultInfo{Name: name}
	}
	return c
}

// Token returns the bearer token of one of the users of NewComponents.
func (c *Components) Token(name string) (string, error) {
	token, ok := c.tokens[name]
	if !ok {
		return "", fmt.Errorf("%s is not a component of this control plane", name)
	}
	return token, nil
}

// AuthenticateToken implements authenticator.Token.
func (c *Components) AuthenticateToken(_ context.Context, token string) (*authenticator.Response, bool, error) {
	info, ok := c.users[sha256.Sum256([]byte(token))]
	if !ok {
		return nil, false, nil
	}
	return &authenticator.Response{User: info}, true, nil
}
