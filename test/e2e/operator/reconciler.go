package operator

import (
	"context"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	appsv1apply "k8s.io/client-go/applyconfigurations/apps/v1"
	corev1apply "k8s.io/client-go/applyconfigurations/core/v1"
	metav1apply "k8s.io/client-go/applyconfigurations/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
)

const (
	finalizer  = "example.com/domain"
	fieldOwner = client.FieldOwner("site-operator")
)

// Reconciler creates the ConfigMap and the Deployment of each Site.
type Reconciler struct {
	Client client.Client
	Server client.Reader // the server itself, not a cache

	mu       sync.Mutex
	returned map[types.UID]bool // guarded by mu; Sites whose domain was released
}

// SetUp adds the reconciler to a manager.
func (r *Reconciler) SetUp(manager ctrl.Manager) error {
	r.Client, r.Server = manager.GetClient(), manager.GetAPIReader()
	return ctrl.NewControllerManagedBy(manager).For(&Site{}).Owns(&appsv1.Deployment{}).Owns(&corev1.ConfigMap{}).Complete(r)
}

// Reconcile implements reconcile.Reconciler.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	var site Site
	if err := r.Client.Get(ctx, request.NamespacedName, &site); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !site.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, r.release(ctx, &site)
	}
	if controllerutil.AddFinalizer(&site, finalizer) {
		return ctrl.Result{}, r.Client.Update(ctx, &site) // the event of the update triggers the next reconciliation
	}
	if applied, err := r.apply(ctx, &site); err != nil || !applied {
		return ctrl.Result{}, err
	}
	return ctrl.Result{}, r.report(ctx, &site)
}

// release releases the domain and removes the finalizer of the Site. It is called again if the Site
// has changed meanwhile.
func (r *Reconciler) release(ctx context.Context, site *Site) error {
	if !controllerutil.RemoveFinalizer(site, finalizer) {
		return nil
	}
	r.mu.Lock()
	if r.returned == nil {
		r.returned = make(map[types.UID]bool)
	}
	r.returned[site.UID] = true
	r.mu.Unlock()
	return client.IgnoreNotFound(r.Client.Update(ctx, site))
}

// apply writes the page and the Deployment of a Site that is not being deleted. The cache may hide a deletion with Orphan,
// after which a write must not add owner references again. So apply reads the objects from the server, then the Site, and
// writes an object on the condition that its resourceVersion is still the same.
func (r *Reconciler) apply(ctx context.Context, site *Site) (applied bool, err error) {
	key := client.ObjectKeyFromObject(site)
	var pageNow corev1.ConfigMap
	var deploymentNow appsv1.Deployment
	for _, now := range []client.Object{&pageNow, &deploymentNow} {
		if err := r.Server.Get(ctx, key, now); client.IgnoreNotFound(err) != nil {
			return false, err
		}
	}
	var siteNow Site
	if err := r.Server.Get(ctx, key, &siteNow); err != nil || siteNow.UID != site.UID || !siteNow.DeletionTimestamp.IsZero() {
		return false, client.IgnoreNotFound(err)
	}
	page, deployment := dependents(site)
	if pageNow.UID != "" {
		page.WithResourceVersion(pageNow.ResourceVersion)
	}
	if err := r.Client.Apply(ctx, page, fieldOwner, client.ForceOwnership); err != nil {
		return false, err
	}
	if deploymentNow.UID != "" {
		deployment.WithResourceVersion(deploymentNow.ResourceVersion)
	}
	err = r.Client.Apply(ctx, deployment, fieldOwner, client.ForceOwnership)
	return err == nil, err
}

// dependents returns the page and the Deployment as a Site wants them.
func dependents(site *Site) (*corev1apply.ConfigMapApplyConfiguration, *appsv1apply.DeploymentApplyConfiguration) {
	owner := metav1apply.OwnerReference().WithAPIVersion(GroupVersion.String()).WithKind("Site").WithName(site.Name).
		WithUID(site.UID).WithController(true).WithBlockOwnerDeletion(true)
	page := corev1apply.ConfigMap(site.Name, site.Namespace).WithOwnerReferences(owner).WithData(map[string]string{"index.html": site.Spec.Page})
	labels := map[string]string{"site": site.Name}
	server := corev1apply.Container().WithName("server").WithImage("httpd").
		WithVolumeMounts(corev1apply.VolumeMount().WithName("page").WithMountPath("/srv"))
	volume := corev1apply.Volume().WithName("page").WithConfigMap(corev1apply.ConfigMapVolumeSource().WithName(site.Name))
	return page, appsv1apply.Deployment(site.Name, site.Namespace).WithOwnerReferences(owner).WithSpec(appsv1apply.DeploymentSpec().
		WithReplicas(site.Spec.Replicas).
		WithSelector(metav1apply.LabelSelector().WithMatchLabels(labels)).
		WithTemplate(corev1apply.PodTemplateSpec().WithLabels(labels).
			WithSpec(corev1apply.PodSpec().WithContainers(server).WithVolumes(volume))))
}

func (r *Reconciler) report(ctx context.Context, site *Site) error {
	before := site.deepCopy()
	site.Status.ObservedGeneration = site.Generation
	apimeta.SetStatusCondition(&site.Status.Conditions, metav1.Condition{
		Type: "Applied", Status: metav1.ConditionTrue, Reason: "Applied", ObservedGeneration: site.Generation,
	})
	return r.Client.Status().Patch(ctx, site, client.MergeFrom(&before))
}

func (r *Reconciler) gaveBack(uid types.UID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.returned[uid]
}
