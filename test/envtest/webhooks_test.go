package envtest

import (
	"context"
	"net"
	"strconv"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// A suite's webhook is installed, and asked.
func TestWebhookOfASuiteIsAsked(t *testing.T) {
	path, none, scope := "/validate", admissionv1.SideEffectClassNone, admissionv1.NamespacedScope
	environment := &envtest.Environment{WebhookInstallOptions: envtest.WebhookInstallOptions{ValidatingWebhooks: []*admissionv1.ValidatingWebhookConfiguration{{
		ObjectMeta: metav1.ObjectMeta{Name: "names"},
		Webhooks: []admissionv1.ValidatingWebhook{{
			Name: "names.example.com", AdmissionReviewVersions: []string{"v1"}, SideEffects: &none,
			ClientConfig: admissionv1.WebhookClientConfig{Service: &admissionv1.ServiceReference{Namespace: "default", Name: "webhooks", Path: &path}},
			Rules: []admissionv1.RuleWithOperations{{
				Operations: []admissionv1.OperationType{admissionv1.Create},
				Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}, Scope: &scope},
			}},
		}},
	}}}}
	c := newClient(t, start(t, environment))
	options := environment.WebhookInstallOptions
	server := webhook.NewServer(webhook.Options{Host: options.LocalServingHost, Port: options.LocalServingPort, CertDir: options.LocalServingCertDir})
	server.Register(path, &webhook.Admission{Handler: admission.HandlerFunc(func(_ context.Context, r admission.Request) admission.Response {
		if r.Name == "bad" {
			return admission.Denied("a bad name")
		}
		return admission.Allowed("")
	})})
	ended := make(chan error, 1)
	ctx, stop := context.WithCancel(t.Context())
	go func() { ended <- server.Start(ctx) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	eventually(t, "the webhook does not listen", func(ctx context.Context) (bool, error) {
		connection, err := new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(options.LocalServingHost, strconv.Itoa(options.LocalServingPort)))
		if err == nil {
			connection.Close()
		}
		return err == nil, err
	})
	eventually(t, "the webhook is not asked", func(ctx context.Context) (bool, error) {
		err := c.Create(ctx, configMap("bad"))
		if err == nil {
			err = c.Delete(ctx, configMap("bad"))
		}
		return apierrors.IsForbidden(err), nil
	})
	create(t, c, configMap("good"))
}
