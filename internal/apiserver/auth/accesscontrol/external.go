package accesscontrol

import (
	"fmt"
	"os"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	tokencache "k8s.io/apiserver/pkg/authentication/token/cache"
	"k8s.io/apiserver/pkg/authentication/token/tokenfile"
	"k8s.io/apiserver/pkg/util/webhook"
	webhooktoken "k8s.io/apiserver/plugin/pkg/authenticator/token/webhook"
	"k8s.io/client-go/rest"
	certutil "k8s.io/client-go/util/cert"

	"github.com/coppice-dev/coppice/internal/apiserver/auth/serviceaccounttoken"
	"github.com/coppice-dev/coppice/internal/apiserver/keyfile"
)

// webhookRetryDelay is the delay before a request to a webhook is sent again, as in kube-apiserver.
const webhookRetryDelay = 500 * time.Millisecond

// External is the authentication and authorization that files configure, with the names of kube-apiserver's flags:
// additional client authorities, tokens in a file, webhooks, and authorization modes. It only adds to the control
// plane's own: whatever the files configure, the certificates and components of the control plane are authenticated,
// and its components authorized. The zero value configures nothing.
type External struct {
	// ServingCert and ServingKey replace a certificate of the control plane's authority.
	ServingCert, ServingKey string
	// ServingAbsent means that these files do not exist: the server uses a certificate of the authority,
	// and writes it there.
	ServingAbsent bool
	// MinTLSVersion is the minimum TLS version, such as VersionTLS12. Default: VersionTLS13.
	MinTLSVersion string
	// ClientCA is a file of client authorities that are accepted besides the control plane's own.
	ClientCA string
	// Tokens is a CSV file of token, user, uid, and groups.
	Tokens string
	// TokenWebhook authenticates tokens that no other authenticator accepts.
	TokenWebhook Webhook
	// ServiceAccounts configures the keys and issuers of service account tokens.
	ServiceAccounts serviceaccounttoken.Files
	// Modes are the authorization modes, from Modes(). Default: RBAC.
	Modes []string
	// AuthorizationWebhook authorizes requests in mode Webhook.
	AuthorizationWebhook Webhook
}

// Webhook is a server that authenticates or authorizes.
type Webhook struct {
	// Kubeconfig is the file that configures the connection to it; none if empty.
	Kubeconfig string
	// Version is the version of the review API: v1 or v1beta1. Default: v1beta1, as in kube-apiserver.
	Version string
	// AcceptedFor and RefusedFor are how long its answers are cached.
	AcceptedFor, RefusedFor time.Duration
}

// client returns the client configuration of the webhook, and its backoff.
func (w Webhook) client() (*rest.Config, wait.Backoff, error) {
	client, err := webhook.LoadKubeconfig(w.Kubeconfig, nil)
	if err != nil {
		return nil, wait.Backoff{}, fmt.Errorf("read %s: %w", w.Kubeconfig, err)
	}
	return client, webhook.DefaultRetryBackoffWithInitialDelay(webhookRetryDelay), nil
}

// StoreServing writes the serving certificate together with the certificate of its authority: clients that
// trust the file trust the server, as with the file that kube-apiserver writes.
func (c External) StoreServing(certificate, key, authority []byte) error {
	// The key is written first: a certificate without its key cannot be used.
	if err := keyfile.Store(c.ServingKey, key); err != nil {
		return fmt.Errorf("write the serving key: %w", err)
	}
	if err := certutil.WriteCert(c.ServingCert, slices.Concat(certificate, authority)); err != nil {
		return fmt.Errorf("write the serving certificate: %w", err)
	}
	return nil
}

// ClientAuthorities returns the client authorities in PEM: own, and the contents of the file.
func (c External) ClientAuthorities(own []byte) ([]byte, error) {
	if c.ClientCA == "" {
		return own, nil
	}
	further, err := os.ReadFile(c.ClientCA)
	if err != nil {
		return nil, fmt.Errorf("read the authority of clients: %w", err)
	}
	if _, err := certutil.ParseCertsPEM(further); err != nil {
		return nil, fmt.Errorf("the authority of clients in %s: %w", c.ClientCA, err)
	}
	return slices.Concat(own, []byte("\n"), further), nil
}

// Authenticators returns the token authenticators that the files configure.
func (c External) Authenticators(audiences authenticator.Audiences) ([]authenticator.Token, error) {
	var all []authenticator.Token
	if c.Tokens != "" {
		file, err := tokenfile.NewCSV(c.Tokens)
		if err != nil {
			return nil, fmt.Errorf("read the tokens: %w", err)
		}
		all = append(all, authenticator.WrapAudienceAgnosticToken(audiences, file))
	}
	if c.TokenWebhook.Kubeconfig != "" {
		client, backoff, err := c.TokenWebhook.client()
		if err != nil {
			return nil, fmt.Errorf("configure the webhook of tokens: %w", err)
		}
		implementation, err := webhooktoken.New(client, c.TokenWebhook.version(), audiences, backoff)
		if err != nil {
			return nil, fmt.Errorf("configure the webhook of tokens: %w", err)
		}
		all = append(all, tokencache.New(implementation, false, c.TokenWebhook.AcceptedFor, c.TokenWebhook.AcceptedFor))
	}
	return all, nil
}

func (w Webhook) version() string {
	if w.Version == "" {
		return "v1beta1"
	}
	return w.Version
}
