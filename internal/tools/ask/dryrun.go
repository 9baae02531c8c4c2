package ask

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"

	"github.com/coppice-dev/coppice/internal/collect/pace"
	"github.com/coppice-dev/coppice/internal/rules/refusal"
	"github.com/coppice-dev/coppice/internal/tools/preview"
)

const (
	// mostAsked bounds the objects about which a preview asks the server.
	mostAsked = 1000
	// askedAtOnce is the number of dry runs under way.
	askedAtOnce = 8
	// noDryRun is in the answer of a server whose webhooks have side effects.
	noDryRun = "does not support dry run"
)

// DryRun asks the API server about each DELETE that a preview is about, by a dry run with the same policy and with the
// version of the object as its precondition. It adds the answers to the report.
func (s *Sources) DryRun(ctx context.Context, r *preview.Report, policy metav1.DeletionPropagation) error {
	config := rest.CopyConfig(s.Config)
	config.QPS = -1
	config.WarningHandlerWithContext = rest.NoWarnings{}
	client, err := metadata.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	discovered, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return fmt.Errorf("make a client for discovery: %w", err)
	}
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(discovered))
	var requested []*preview.ObjectReport
	for n := range r.Objects {
		if r.Objects[n].Requested {
			requested = append(requested, &r.Objects[n])
		}
	}
	if len(requested) > mostAsked {
		return InvalidError{fmt.Errorf("--ask-server asks about at most %d objects, not %d", mostAsked, len(requested))}
	}
	_ = pace.Each(askedAtOnce, requested, func(o *preview.ObjectReport) error {
		o.Answer = answerTo(dryRun(ctx, client, mapper, o, policy), policy)
		return nil
	})
	r.Recount()
	return ctx.Err()
}

// dryRun makes one dry run of a DELETE.
func dryRun(ctx context.Context, client metadata.Interface, mapper meta.RESTMapper, o *preview.ObjectReport, policy metav1.DeletionPropagation) error {
	resource, err := mapper.ResourceFor(schema.ParseGroupResource(o.Resource).WithVersion(""))
	if err != nil {
		return err
	}
	uid := types.UID(o.UID)
	options := metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}, Preconditions: &metav1.Preconditions{UID: &uid}, PropagationPolicy: &policy}
	if o.ResourceVersion != "" {
		options.Preconditions.ResourceVersion = &o.ResourceVersion
	}
	return client.Resource(resource).Namespace(o.Namespace).Delete(ctx, o.Name, options)
}

// answerTo returns the answer to a dry run. It settles what decides about the request itself; the collector still has
// to make changes after a foreground or an orphan deletion.
func answerTo(err error, policy metav1.DeletionPropagation) *preview.AnswerReport {
	switch refused, ok := refusal.Of(err); {
	case err == nil:
		return &preview.AnswerReport{Accepted: true, Settles: policy == metav1.DeletePropagationBackground}
	case ok && !strings.Contains(refused.Message, noDryRun): // before the codes, which webhooks choose
		return &preview.AnswerReport{Refusal: preview.RefusalReportOf(refused, preview.ByUser)}
	case ok:
	case apierrors.IsNotFound(err):
		return &preview.AnswerReport{Error: "it is gone"}
	case apierrors.IsConflict(err):
		return &preview.AnswerReport{Error: "it has changed since it was read"}
	}
	return &preview.AnswerReport{Error: preview.Text(err.Error())}
}
