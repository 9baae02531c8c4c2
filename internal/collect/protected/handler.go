package protected

import (
	"context"
	"fmt"
	"net/http"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"

	"github.com/coppice-dev/coppice/internal/rules/protection"
)

// NewHandler returns the Webhook for the server of config, at WebhookPath, and below it at a path for each default mode. It
// asks the server for the name of config's user, which counts as a collector. carries reports whether any object has a
// finalizer.
func NewHandler(ctx context.Context, config *rest.Config, carries func(finalizer string) (bool, error)) (http.Handler, error) {
	config = rest.CopyConfig(config)
	config.WarningHandlerWithContext = rest.NoWarnings{}
	objects, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client for metadata: %w", err)
	}
	discover, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client for discovery: %w", err)
	}
	whole, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client for whole objects: %w", err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	self, err := client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("ask the server who the collector is: %w", err)
	}
	mux := http.NewServeMux()
	webhook := Webhook{
		Collector: self.Status.UserInfo.Username, Reviews: client.AuthorizationV1().SubjectAccessReviews(),
		Now: time.Now, //nolint:forbidigo // only which advice users get depends on it
		Checker: func(ctx context.Context) protection.Checker {
			return Checker(ctx, client.AdmissionregistrationV1().ValidatingWebhookConfigurations())
		},
		Outlived: Lookup{
			Mapper: restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(discover)), Metadata: objects,
			Objects: whole, Discovery: discover,
			Carried: func(_ context.Context, finalizer string) (bool, error) { return carries(finalizer) },
			Surveys: NewSurveys(),
		},
	}
	mux.Handle(WebhookPath, webhook)
	for _, mode := range protection.DefaultModes() {
		webhook.Default = mode
		mux.Handle(WebhookPath+"/"+string(mode), webhook)
	}
	return mux, nil
}
