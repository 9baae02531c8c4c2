package apiserver

import (
	"context"
	"fmt"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/apiserver/pkg/admission/plugin/namespace/lifecycle"
	policy "k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	webhookinitializer "k8s.io/apiserver/pkg/admission/plugin/webhook/initializer"
	mutatingwebhook "k8s.io/apiserver/pkg/admission/plugin/webhook/mutating"
	validatingwebhook "k8s.io/apiserver/pkg/admission/plugin/webhook/validating"
	genericapiserver "k8s.io/apiserver/pkg/server"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/restmapper"

	"github.com/coppice-dev/coppice/internal/apiserver/auth/ownerreferences"
	"github.com/coppice-dev/coppice/internal/apiserver/auth/restriction"
	"github.com/coppice-dev/coppice/internal/apiserver/auth/roles"
	"github.com/coppice-dev/coppice/internal/apiserver/deleteflow"
)

// plugin is one admission plug-in, under its name.
type plugin struct {
	name string
	make func() (admission.Interface, error)
}

// plugins are what requests pass, in this order; the library has those that change
// objects come before those that check them. What is ours has no configuration, and
// what is the library's is configured by objects of the API.
func plugins(c Config, base *genericapiserver.Config, flow *deleteflow.Flow, d *doors) []plugin {
	ready := func(p admission.Interface) func() (admission.Interface, error) {
		return func() (admission.Interface, error) { return p, nil }
	}
	authorize := base.Authorization.Authorizer
	all := []plugin{
		{"DeleteFlow", ready(flow.OptionsPlugin())},
		{lifecycle.PluginName, func() (admission.Interface, error) {
			return lifecycle.NewLifecycle(sets.New(metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic))
		}},
		{mutatingwebhook.PluginName, func() (admission.Interface, error) { return mutatingwebhook.NewMutatingWebhook(nil) }},
		{"ComponentConfinement", ready(restriction.NewAdmission(d.confined))},
		{"RBACEscalation", ready(roles.NewEscalation(d.policy, authorize))},
	}
	if !c.ProtectionDisabled {
		all = append(all, plugin{"StorageProtection", ready(protect{})})
	}
	if !c.OwnersUnchecked {
		all = append(all,
			plugin{ownerreferences.PluginName, func() (admission.Interface, error) { return ownerreferences.NewAdmission(d.kinds.where, authorize) }},
			plugin{"OwnerBacklog", func() (admission.Interface, error) { return ownerreferences.NewBacklog(d.waiting, d.ownerExists) }})
	}
	return append(all,
		plugin{policy.PluginName, func() (admission.Interface, error) { return policy.NewPlugin(nil) }},
		plugin{validatingwebhook.PluginName, func() (admission.Interface, error) { return validatingwebhook.NewValidatingAdmissionWebhook(nil) }},
	)
}

// admit sets up admission.
func admit(ctx context.Context, c Config, base *genericapiserver.Config, flow *deleteflow.Flow, d *doors) error {
	objects, err := dynamic.NewForConfig(base.LoopbackClientConfig)
	if err != nil {
		return fmt.Errorf("create the dynamic loopback client: %w", err)
	}
	if d.metadata, err = metadata.NewForConfig(base.LoopbackClientConfig); err != nil {
		return fmt.Errorf("create the metadata loopback client: %w", err)
	}
	d.mapper = restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(d.client.Discovery()))
	registered := admission.NewPlugins()
	var names []string
	for _, p := range plugins(c, base, flow, d) {
		registered.Register(p.name, func(io.Reader) (admission.Interface, error) { return p.make() })
		names = append(names, p.name)
	}
	unconfigured, err := admission.ReadAdmissionConfiguration(names, "", runtime.NewScheme())
	if err != nil {
		return fmt.Errorf("configure admission: %w", err)
	}
	chain, err := registered.NewFromPlugins(names, unconfigured, admission.PluginInitializers{
		initializer.New(d.client, objects, d.shared, base.Authorization.Authorizer, utilfeature.DefaultFeatureGate, base.EffectiveVersion, ctx.Done(), d.mapper),
		webhookinitializer.NewPluginInitializer(webhookAuthentication(base.LoopbackClientConfig), clusterServices{}),
	}, admission.Decorators{})
	if err != nil {
		return fmt.Errorf("set up admission: %w", err)
	}
	base.AdmissionControl = flow.ContinueOnRefusal(chain)
	return nil
}
