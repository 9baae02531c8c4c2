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

// Asked is a request for an object to be deleted.
type Asked struct {
	// Request is its audit ID: the same for all objects of a collection.
	Request string
	UID     types.UID
	// User is who asks, and Agent with which program.
	User, Agent string
	// Policy is what the request says about dependents; empty if it says nothing.
	Policy metav1.DeletionPropagation
}

// tell tells who asks for the deletion of an object.
func (f *Flow) tell(ctx context.Context, obj runtime.Object, options *metav1.DeleteOptions) {
	m, err := meta.Accessor(obj)
	who, isKnown := genericrequest.UserFrom(ctx)
	if err != nil || !isKnown || m.GetDeletionTimestamp() != nil || options != nil && dryrun.IsDryRun(options.DryRun) || deleterOf(ctx) == protection.Cascade {
		return
	}
	asked := Asked{Request: audit.GetAuditIDTruncated(ctx), UID: m.GetUID(), User: who.GetName()}
	if options != nil && options.PropagationPolicy != nil {
		asked.Policy = *options.PropagationPolicy
	}
	if r := requestFrom(ctx); r != nil {
		asked.Agent = r.agent
	}
	f.asked(asked)
}

// agentOf returns the name of the program that sends a request: its User-Agent up to the first space.
func agentOf(r *http.Request) string {
	name, _, _ := strings.Cut(r.UserAgent(), " ")
	return name
}
