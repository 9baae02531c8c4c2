package admissionchain

import (
	"context"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	extensionsv1beta1 "k8s.io/api/extensions/v1beta1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/apiserver/pkg/admission/plugin/resourcequota"
	"k8s.io/client-go/informers"
	corev1listers "k8s.io/client-go/listers/core/v1"

	"github.com/coppice-dev/coppice/internal/apiserver/allocation"
	"github.com/coppice-dev/coppice/internal/controller/quota"
)

// quotaEvaluators is the number of namespaces that are evaluated concurrently.
const quotaEvaluators = 5

// quotaAdmission refuses requests that would exceed a ResourceQuota, and charges others to it. It is the
// plug-in of k8s.io/apiserver, but skips namespaces without a quota, which most are.
type quotaAdmission struct {
	*resourcequota.QuotaAdmission
	quotas corev1listers.ResourceQuotaLister
	synced func() bool
}

var (
	_ admission.ValidationInterface                = (*quotaAdmission)(nil)
	_ initializer.WantsExternalKubeInformerFactory = (*quotaAdmission)(nil)
	_ initializer.WantsDrainedNotification         = (*quotaAdmission)(nil)
)

// newQuotaAdmission returns the plug-in. It works until drained is closed, after the last request has been
// handled.
func newQuotaAdmission(drained <-chan struct{}) (*quotaAdmission, error) {
	upstream, err := resourcequota.NewResourceQuota(nil, quotaEvaluators)
	if err != nil {
		return nil, err
	}
	upstream.SetDrainedNotification(drained)
	return &quotaAdmission{QuotaAdmission: upstream}, nil
}

// SetDrainedNotification implements initializer.WantsDrainedNotification. It ignores the channel of the
// initializer, which is closed earlier: a request would then wait in vain.
func (p *quotaAdmission) SetDrainedNotification(<-chan struct{}) {}

// SetExternalKubeInformerFactory implements initializer.WantsExternalKubeInformerFactory. The client has
// been set before it.
func (p *quotaAdmission) SetExternalKubeInformerFactory(shared informers.SharedInformerFactory) {
	p.QuotaAdmission.SetExternalKubeInformerFactory(shared)
	p.SetQuotaConfiguration(quota.ForAdmission())
	quotas := shared.Core().V1().ResourceQuotas()
	p.quotas, p.synced = quotas.Lister(), quotas.Informer().HasSynced
}

// Validate implements admission.ValidationInterface.
func (p *quotaAdmission) Validate(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	if a.GetNamespace() == "" {
		return nil
	}
	if p.synced() {
		if quotas, err := p.quotas.ResourceQuotas(a.GetNamespace()).List(labels.Everything()); err == nil && len(quotas) == 0 {
			return nil
		}
	}
	if a.GetResource().Group == extensionsv1beta1.GroupName {
		a = inApps{a}
	}
	return allocation.CountOnce(ctx, changeOf(a), func() error { return p.QuotaAdmission.Validate(ctx, a, o) })
}

// changeOf identifies the change of a request. Of an update that begins again with another stored object, it is another one.
// A creation has none, and perhaps another generated name in each attempt.
func changeOf(a admission.Attributes) string {
	before := ""
	if old, err := meta.Accessor(a.GetOldObject()); err == nil {
		before = old.GetResourceVersion()
	}
	return strings.Join([]string{string(a.GetOperation()), a.GetResource().String(), a.GetSubresource(), a.GetNamespace(), before}, " ")
}

// inApps presents a request in the group extensions as one in the group apps: a quota counts the objects of
// both together.
type inApps struct{ admission.Attributes }

// GetResource implements admission.Attributes.
func (a inApps) GetResource() schema.GroupVersionResource {
	return appsv1.SchemeGroupVersion.WithResource(a.Attributes.GetResource().Resource)
}
