package cli

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/coppice-dev/coppice/internal/rules/protection"
	"github.com/coppice-dev/coppice/internal/tools/reader"
	"github.com/coppice-dev/coppice/internal/tools/terminal"
)

// defaults returns the default modes of the server. If a user may not read them, it warns, and there are none.
func (w *protecting) defaults(ctx context.Context) (protection.Defaults, error) {
	config, err := w.flags.cluster.config()
	if err != nil {
		return nil, err
	}
	facts, err := reader.NewFacts(config)
	if err != nil {
		return nil, err
	}
	defaults, err := facts.Defaults(ctx)
	if err != nil {
		terminal.Fprintf(w.s.Err, "warning: it is unknown whether the server has default modes; if objects stay protected, label them with %s=%s: %v\n", protection.Label, protection.None, err)
	}
	return defaults, nil
}

// warnUnenforced warns on stderr if the server does not enforce the protection of labelled objects.
func (w *protecting) warnUnenforced(ctx context.Context) {
	server, err := (&collectorFlags{cluster: w.flags.cluster}).client()
	if err == nil && server.IsCoppice(ctx) {
		return
	}
	policy, policyErr := w.exists("validatingadmissionpolicies")
	binding, bindingErr := w.exists("validatingadmissionpolicybindings")
	webhook, webhookErr := w.exists("validatingwebhookconfigurations")
	switch {
	case policy && binding, webhook:
	case policyErr != nil, bindingErr != nil, webhookErr != nil:
		fmt.Fprintln(w.s.Err, "warning: you may not read admission policies and webhooks, so it is unknown whether this server protects labelled objects")
	default:
		fmt.Fprintln(w.s.Err, "warning: this server does not protect labelled objects: it has neither the policy nor the webhook of Coppice, see docs/protect.md")
	}
}

func (w *protecting) exists(resource string) (bool, error) {
	of := schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: resource}
	_, err := w.client.Resource(of).Get(w.ctx, protection.Enforcer, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}
