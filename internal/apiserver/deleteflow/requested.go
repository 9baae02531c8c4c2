package deleteflow

import (
	"context"
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/audit"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/util/dryrun"

	"github.com/coppice-dev/coppice/internal/rules/protection"
)

// Requested is a request to delete an object.
type Requested struct {
	// Request is its audit ID: the same for all objects of a collection.
	Request string
	UID     types.UID
	// User is the name of the user, and Agent the name of the client program.
	User, Agent string
	// Policy is the propagation policy in the request; empty if the request has none.
	Policy metav1.DeletionPropagation
}

// reportRequest reports a request to delete an object to Config.OnRequest. Collectors are known by their users: any client
// can send their header.
func (f *Flow) reportRequest(ctx context.Context, obj runtime.Object, options *metav1.DeleteOptions) {
	m, err := meta.Accessor(obj)
	who, isKnown := genericrequest.UserFrom(ctx)
	if err != nil || !isKnown || m.GetDeletionTimestamp() != nil || options != nil && dryrun.IsDryRun(options.DryRun) || protection.IsCascade(who.GetName()) {
		return
	}
	r := Requested{Request: audit.GetAuditIDTruncated(ctx), UID: m.GetUID(), User: who.GetName()}
	if options != nil && options.PropagationPolicy != nil {
		r.Policy = *options.PropagationPolicy
	}
	if sent := requestFrom(ctx); sent != nil {
		r.Agent = sent.agent
	}
	f.onRequest(r)
}

// agentOf returns the name of the program that sends a request: its User-Agent up to the first space.
func agentOf(r *http.Request) string {
	name, _, _ := strings.Cut(r.UserAgent(), " ")
	return name
}
