package protected

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/coppice-dev/coppice/internal/rules/protection"
)

// DefaultsPath is where our server serves its defaults (protection.Defaults): GET, for authenticated users; nodes and components
// are refused.
const DefaultsPath = "/coppice/v1/protect/defaults"

// maxDefaults bounds the answer about the defaults that a client reads, in bytes.
const maxDefaults = 1 << 20

// defaultsAnswer is the answer.
type defaultsAnswer struct {
	Defaults []protection.Default `json:"defaults"`
}

// ServeDefaults returns a handler that answers with the defaults of a server.
func ServeDefaults(d protection.Defaults) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			http.Error(w, "only GET is supported", http.StatusMethodNotAllowed)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cache-Control", "no-store")
		_ = json.NewEncoder(w).Encode(defaultsAnswer{d.List()}) // a client that has gone needs no answer
	})
}

// ReadDefaults reads the defaults of one of our servers. A server that is too old to have any has none.
func ReadDefaults(ctx context.Context, server rest.Interface) (protection.Defaults, error) {
	stream, err := server.Get().AbsPath(DefaultsPath).Stream(ctx)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the default modes of protection: %w", err)
	}
	defer stream.Close()
	var answer defaultsAnswer
	if err := json.NewDecoder(http.MaxBytesReader(nil, stream, maxDefaults)).Decode(&answer); err != nil {
		return nil, fmt.Errorf("read the default modes of protection: %w", err)
	}
	return protection.DefaultsOf(answer.Defaults), nil
}

// defaultsIn returns the defaults of a webhook configuration: the path of a webhook names the mode, and its rules the
// resources.
func defaultsIn(webhooks []admissionregistrationv1.ValidatingWebhook) protection.Defaults {
	d := protection.Defaults{}
	for i := range webhooks {
		mode, err := protection.ParseDefaultMode(strings.TrimPrefix(pathOf(webhooks[i].ClientConfig), WebhookPath+"/"))
		if err != nil {
			continue
		}
		for _, rule := range webhooks[i].Rules {
			if !slices.Contains(rule.Operations, admissionregistrationv1.Delete) && !slices.Contains(rule.Operations, admissionregistrationv1.OperationAll) {
				continue
			}
			for _, group := range rule.APIGroups {
				for _, resource := range rule.Resources {
					d[schema.GroupResource{Group: group, Resource: resource}] = mode
				}
			}
		}
	}
	return d
}

// pathOf returns the path at which a webhook is called.
func pathOf(c admissionregistrationv1.WebhookClientConfig) string {
	switch {
	case c.Service != nil && c.Service.Path != nil:
		return *c.Service.Path
	case c.URL != nil:
		at, err := url.Parse(*c.URL)
		if err != nil {
			return ""
		}
		return cmp.Or(at.Path, "/")
	default:
		return ""
	}
}
