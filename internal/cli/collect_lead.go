package cli

import (
	"context"
	"log/slog"
	"os"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/coppice-dev/coppice/internal/election"
)

// leaseName is the Lease that collectors campaign for.
const leaseName = "coppice"

// podNamespace is where a pod finds the name of its namespace.
const podNamespace = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// elected says whether, of several collectors, one works: the holder of a Lease.
type elected struct {
	enabled   bool
	namespace string
}

// complete fills in the namespace.
func (e *elected) complete() {
	if e.namespace != "" {
		return
	}
	e.namespace = metav1.NamespaceSystem
	if own, err := os.ReadFile(podNamespace); err == nil {
		e.namespace = strings.TrimSpace(string(own))
	}
}

// run works while it holds the Lease.
func (e *elected) run(ctx context.Context, config *rest.Config, log *slog.Logger, r *election.Role, work func(context.Context) error) error {
	lease := election.Lease{Namespace: e.namespace, Name: leaseName, Times: election.Usual(), Log: log}
	return lease.Run(ctx, config, r, work)
}
