// Package admissionchain sets up admission: which plug-ins a request passes, and in which order. A file beside
// chain.go, or several with its name, has a plug-in that k8s.io/apiserver does not have.
package admissionchain

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/apiserver/pkg/admission/plugin/namespace/lifecycle"
	mutatingpolicy "k8s.io/apiserver/pkg/admission/plugin/policy/mutating"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch"
	policy "k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/resourcequota"
	webhookinitializer "k8s.io/apiserver/pkg/admission/plugin/webhook/initializer"
	mutatingwebhook "k8s.io/apiserver/pkg/admission/plugin/webhook/mutating"
	validatingwebhook "k8s.io/apiserver/pkg/admission/plugin/webhook/validating"
	apiserverapi "k8s.io/apiserver/pkg/apis/apiserver/install"
	"k8s.io/apiserver/pkg/authentication/user"
	genericapiserver "k8s.io/apiserver/pkg/server"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"

	"github.com/coppice-dev/coppice/internal/apiserver/auth/ownerreferences"
	"github.com/coppice-dev/coppice/internal/apiserver/auth/restriction"
	"github.com/coppice-dev/coppice/internal/apiserver/definitions"
	"github.com/coppice-dev/coppice/internal/apiserver/deleteflow"
	"github.com/coppice-dev/coppice/internal/apiserver/serviceendpoints"
	"github.com/coppice-dev/coppice/internal/rules/protection"
)

// The names of plug-ins that k8s.io/apiserver does not have. The first three exist in Kubernetes.
const (
	nodeTaintName              = "TaintNodesByCondition"
	podTopologyLabelsName      = "PodTopologyLabels"
	storageInUseProtectionName = "StorageObjectInUseProtection"
	deleteFlowName             = "DeleteFlow"
	componentRestrictionName   = "ComponentRestriction"
	ownerBacklogName           = "OwnerBacklog"
	outlivedName               = "OutlivedObjects"
	confirmedName              = "ConfirmedDeletions"
	customMistakesName         = "CustomResourceMistakes"
)

// Config configures the plug-ins. All fields but the last four are required.
type Config struct {
	Client       kubernetes.Interface
	Informers    informers.SharedInformerFactory
	Mapper       meta.RESTMapper
	Flow         *deleteflow.Flow
	Restrictions *restriction.Restrictions
	// Served, OwnerExists and Backlog are for the plug-ins that check owner references.
	Served      ownerreferences.Kinds
	OwnerExists ownerreferences.Exists
	Backlog     func(namespace string) int
	// Outlived returns an error if the user may not read an object of the added entries: objects that a
	// protected object in the namespace outlives (R28).
	Outlived func(ctx context.Context, who user.Info, namespace string, added []protection.Outlived) error
	// Now is the clock of confirmations (R32).
	Now func() time.Time
	// MergeTypes are the types with which MutatingAdmissionPolicies apply their changes.
	MergeTypes patch.TypeConverterManager
	// Mistakes checks custom resources.
	Mistakes *definitions.Checker
	// Webhooks configures how the server reaches webhooks.
	Webhooks serviceendpoints.Webhooks

	// Features determine which plug-ins are left out.
	Features Features
	// Disabled are the names of additional plug-ins to leave out, from Optional().
	Disabled []string
	// File is the path of an AdmissionConfiguration for webhooks and PodSecurity; none if empty.
	File string
}

// Features are what the server relies on besides itself. The zero value is a server without controllers.
type Features struct {
	// Collector: a garbage collector runs, here or elsewhere. Deletions may add the finalizers that it removes.
	Collector bool
	// VolumeProtection: a volume protection controller runs. New PersistentVolumeClaims and PersistentVolumes
	// get the finalizers that it removes (StorageObjectInUseProtection).
	VolumeProtection bool
	// ServiceAccounts: a controller creates the service account "default" in each namespace. Pods need an
	// existing account and get a token (serviceaccount.go).
	ServiceAccounts bool
	// NodeTaints: a node controller runs. New Nodes get the taint that it removes (TaintNodesByCondition).
	NodeTaints bool
	// OwnerChecks: owner references are checked (package ownerreferences).
	OwnerChecks bool
}

// AllFeatures returns the features of a server with all controllers.
func AllFeatures() Features {
	return Features{Collector: true, VolumeProtection: true, ServiceAccounts: true, NodeTaints: true, OwnerChecks: true}
}

// Optional returns the names of the plug-ins that Config.Disabled may leave out: those of Kubernetes.
// Without the other plug-ins, deletions would break our rules, or users could escalate their privileges.
func Optional() []string {
	return []string{
		lifecycle.PluginName, limitRangerName, serviceAccountName, mutatingpolicy.PluginName, mutatingwebhook.PluginName,
		nodeTaintName, podSecurityName, podTopologyLabelsName, storageInUseProtectionName, claimResizeName, ownerreferences.PluginName,
		certificateApprovalName, certificateSigningName, trustBundleName,
		certificateSubjectRestrictionName, policy.PluginName, validatingwebhook.PluginName, resourcequota.PluginName,
	}
}

// Later returns the plug-ins that Kubernetes 1 enables by default only in minors after this one.
func Later(minor uint) []string {
	var later []string
	for since, name := range map[uint]string{35: podTopologyLabelsName, 36: mutatingpolicy.PluginName} {
		if since > minor {
			later = append(later, name)
		}
	}
	return later
}

// plugin is an admission plug-in and its name.
type plugin struct {
	name string
	new  func(config io.Reader) (admission.Interface, error)
}

// plugins returns the plug-ins in the order in which requests pass them; k8s.io/apiserver calls mutating
// plug-ins before validating ones. Our plug-ins have no configuration. API objects configure those of
// k8s.io/apiserver, and Config.File configures webhooks and PodSecurity.
func plugins(c Config, base *genericapiserver.Config) []plugin {
	instance := func(p admission.Interface) func(io.Reader) (admission.Interface, error) {
		return func(io.Reader) (admission.Interface, error) { return p, nil }
	}
	authorize := base.Authorization.Authorizer
	all := []plugin{
		{deleteFlowName, instance(c.Flow.OptionsPlugin())},
		{lifecycle.PluginName, func(io.Reader) (admission.Interface, error) { return newNamespaceLifecycle(c.Client) }},
		{limitRangerName, instance(newLimitRanger(c.Client, c.Informers))},
	}
	if c.Features.NodeTaints {
		all = append(all, plugin{nodeTaintName, instance(nodeTaint{})})
	}
	if c.Features.ServiceAccounts {
		all = append(all, plugin{serviceAccountName, instance(newServiceAccount(c.Client, c.Informers))})
	}
	all = append(all, []plugin{
		{podSecurityName, func(config io.Reader) (admission.Interface, error) {
			return newPodSecurity(config, c.Client, c.Informers)
		}},
		{podTopologyLabelsName, instance(newPodTopologyLabels(c.Informers))},
		{mutatingpolicy.PluginName, instance(newMutatingPolicies(c.MergeTypes))},
		{mutatingwebhook.PluginName, func(config io.Reader) (admission.Interface, error) { return mutatingwebhook.NewMutatingWebhook(config) }},
		{componentRestrictionName, instance(restriction.NewAdmission(c.Restrictions))},
		{outlivedName, instance(newOutlived(c.Outlived))},
		{confirmedName, instance(newConfirmed(authorize, c.Now))},
	}...)
	if c.Features.VolumeProtection {
		all = append(all, plugin{storageInUseProtectionName, instance(storageInUseProtection{})})
	}
	if c.Features.OwnerChecks {
		all = append(all,
			plugin{ownerreferences.PluginName, func(io.Reader) (admission.Interface, error) {
				return ownerreferences.NewAdmission(c.Served, authorize)
			}},
			plugin{ownerBacklogName, func(io.Reader) (admission.Interface, error) {
				return ownerreferences.NewBacklogLimit(c.Backlog, c.OwnerExists)
			}})
	}
	return append(all,
		plugin{certificateApprovalName, func(io.Reader) (admission.Interface, error) { return newCertificateApproval(authorize) }},
		plugin{certificateSigningName, func(io.Reader) (admission.Interface, error) { return newCertificateSigning(authorize) }},
		plugin{trustBundleName, func(io.Reader) (admission.Interface, error) { return newTrustBundleAttest(authorize) }},
		plugin{podCertificateSigningName, func(io.Reader) (admission.Interface, error) { return newPodCertificateSigning(authorize) }},
		plugin{certificateSubjectRestrictionName, instance(newCertificateSubjectRestriction())},
		plugin{claimResizeName, instance(newClaimResize(c.Informers))},
		plugin{claimStatusName, func(io.Reader) (admission.Interface, error) { return newClaimStatus(authorize, c.Client) }},
		plugin{policy.PluginName, func(io.Reader) (admission.Interface, error) { return policy.NewPlugin(nil) }},
		plugin{validatingwebhook.PluginName, func(config io.Reader) (admission.Interface, error) {
			return validatingwebhook.NewValidatingAdmissionWebhook(config)
		}},
		// Last: a request that another plug-in refuses is not charged.
		plugin{resourcequota.PluginName, func(io.Reader) (admission.Interface, error) { return newQuotaAdmission(base.DrainedNotify()) }},
		// After the mutating plug-ins.
		plugin{customMistakesName, instance(newCustomMistakes(c.Mistakes))},
	)
}

// Apply sets up admission in the configuration of the generic server, whose loopback client
// and authorizer have been set.
func Apply(ctx context.Context, base *genericapiserver.Config, c Config) error {
	dynamicClient, err := dynamic.NewForConfig(base.LoopbackClientConfig)
	if err != nil {
		return fmt.Errorf("create the dynamic loopback client: %w", err)
	}
	registered := admission.NewPlugins()
	var names []string
	for _, p := range plugins(c, base) {
		if slices.Contains(c.Disabled, p.name) && slices.Contains(Optional(), p.name) {
			continue
		}
		registered.Register(p.name, p.new)
		names = append(names, p.name)
	}
	configured, err := configuration(names, c.File)
	if err != nil {
		return err
	}
	chain, err := registered.NewFromPlugins(names, configured, admission.PluginInitializers{
		initializer.New(c.Client, dynamicClient, untilShutdown{c.Informers, ctx.Done()}, base.Authorization.Authorizer, utilfeature.DefaultFeatureGate, base.EffectiveVersion, ctx.Done(), c.Mapper),
		withoutReviews{},
		webhookinitializer.NewPluginInitializer(c.Webhooks.Authentication(), serviceendpoints.ServiceResolver()),
	}, admission.Decorators{})
	if err != nil {
		return fmt.Errorf("set up admission: %w", err)
	}
	base.AdmissionControl = c.Flow.ContinueOnRefusal(chain)
	return nil
}

// untilShutdown is the factory of informers for plug-ins. The plug-ins of policies start the informer of a kind of
// parameters until the last policy with parameters of that kind is deleted. A shared informer does not start again: the
// next such policy would find no new parameters, and would refuse everything, or nothing. Here it runs until stop is
// closed.
type untilShutdown struct {
	informers.SharedInformerFactory

	stop <-chan struct{}
}

// Start implements informers.SharedInformerFactory.
func (f untilShutdown) Start(<-chan struct{}) { f.SharedInformerFactory.Start(f.stop) }

// configuration reads the AdmissionConfiguration in file for the named plug-ins.
func configuration(names []string, file string) (admission.ConfigProvider, error) {
	scheme := runtime.NewScheme()
	if file != "" {
		apiserverapi.Install(scheme)
	}
	configured, err := admission.ReadAdmissionConfiguration(names, file, scheme)
	if err != nil {
		return nil, fmt.Errorf("configure admission: %w", err)
	}
	return configured, nil
}
