package auth

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"fmt"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
)

// Components are the credentials of the parts of this process that talk to the API
// server as users of their own. They are made at each start and are kept in memory only.
type Components struct {
	tokens map[string]string                       // by user
	users  map[[sha256.Size]byte]*user.DefaultInfo // by the hash of the token, so that a look-up tells nothing of it by its time
}

var _ authenticator.Token = (*Components)(nil)

// NewComponents makes a credential for each of the users.
func NewComponents(users ...string) *Components {
	c := &Components{tokens: map[string]string{}, users: map[[sha256.Size]byte]*user.DefaultInfo{}}
	for _, name := range users {
		token := rand.Text()
		c.tokens[name] = token
		c.users[sha256.Sum256([]byte(token))] = &user.DefaultInfo{Name: name}
	}
	return c
}

// Token is the bearer token of a user. The users are those of NewComponents.
func (c *Components) Token(name string) (string, error) {
	token, ok := c.tokens[name]
	if !ok {
		return "", fmt.Errorf("%s is no component of this control plane", name)
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
