package restriction

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"

	"github.com/coppice-dev/coppice/internal/apiserver/auth/bootstrappolicy"
	"github.com/coppice-dev/coppice/internal/rules/inuse"
	"github.com/coppice-dev/coppice/internal/rules/protection"
)

// Admission refuses writes that the user's restriction does not allow.
type Admission struct {
	*admission.Handler
	restrictions *Restrictions
}

var _ admission.ValidationInterface = (*Admission)(nil)

// NewAdmission returns admission that enforces the restrictions.
func NewAdmission(restrictions *Restrictions) *Admission {
	return &Admission{admission.NewHandler(admission.Create, admission.Update, admission.Delete, admission.Connect), restrictions}
}

// Validate implements admission.ValidationInterface.
func (p *Admission) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	restriction, restricted := p.restrictions.of(a.GetUserInfo())
	if !restricted || isSelfReview(a) {
		return nil
	}
	if err := cmp.Or(checkMarks(a), restriction.checkWrite(ctx, a)); err != nil {
		return admission.NewForbidden(a, refusal(a.GetUserInfo(), err))
	}
	return nil
}

// checkMarks refuses changes of labels and annotations in the domain coppice.dev. They determine whether objects
// are deleted: with coppice.dev/protect, a node could keep administrators from deleting its Node.
func checkMarks(a admission.Attributes) error {
	if a.GetOperation() != admission.Create && a.GetOperation() != admission.Update {
		return nil
	}
	metadata := func(obj runtime.Object) metav1.Object {
		if m, err := meta.Accessor(obj); err == nil {
			return m
		}
		return &metav1.ObjectMeta{} // no object: no labels
	}
	old, now := metadata(a.GetOldObject()), metadata(a.GetObject())
	if !maps.Equal(marks(old.GetLabels()), marks(now.GetLabels())) || !maps.Equal(marks(old.GetAnnotations()), marks(now.GetAnnotations())) {
		return errors.New("it cannot set, change or remove labels and annotations of " + protection.Domain)
	}
	return nil
}

// marks returns the labels or annotations whose keys are in Coppice's domain.
func marks(all map[string]string) map[string]string {
	own := maps.Clone(all)
	maps.DeleteFunc(own, func(key, _ string) bool {
		prefix, _, prefixed := strings.Cut(key, "/")
		return !prefixed || !isIn(prefix, protection.Domain)
	})
	return own
}

// isSelfReview reports whether a write is a review by which a user asks about itself. Reviews are not
// stored.
func isSelfReview(a admission.Attributes) bool {
	group, resource := a.GetResource().Group, a.GetResource().Resource
	return a.GetOperation() == admission.Create && (group == authorizationv1.GroupName || group == authenticationv1.GroupName) &&
		slices.Contains([]string{"selfsubjectaccessreviews", "selfsubjectrulesreviews", "selfsubjectreviews"}, resource)
}

// checkCollectorWrite allows the writes of R16, and Events.
func checkCollectorWrite(_ context.Context, a admission.Attributes) error {
	switch a.GetOperation() {
	case admission.Create:
		if a.GetResource().Resource == "events" && a.GetSubresource() == "" {
			return nil
		}
		return errors.New("it can create Events only")
	case admission.Update:
		return checkCollectorUpdate(a.GetOldObject(), a.GetObject())
	case admission.Delete:
		return checkPreconditions(a, "uid", "resourceVersion")
	case admission.Connect:
	}
	return errors.New("it cannot connect to subresources")
}

// checkCollectorUpdate allows an update that only removes owner references, makes them stop
// blocking, and removes the collector's own finalizers.
func checkCollectorUpdate(old, changed runtime.Object) error {
	if old == nil || changed == nil {
		return errors.New("it cannot create objects by an update")
	}
	before, err := meta.Accessor(old)
	if err != nil {
		return err
	}
	after, err := meta.Accessor(changed)
	if err != nil {
		return err
	}
	if !isSubsequence(before.GetOwnerReferences(), after.GetOwnerReferences(), sameOrUnblocked) {
		return errors.New("it can only remove owner references, or make them stop blocking")
	}
	if err := checkRemovedFinalizers(before.GetFinalizers(), after.GetFinalizers(), metav1.FinalizerDeleteDependents, metav1.FinalizerOrphanDependents); err != nil {
		return err
	}
	if !equalExceptReferences(old, changed) {
		return errors.New("it can change owner references and its own finalizers only")
	}
	return nil
}

// checkRemovedFinalizers allows a change of finalizers that only removes finalizers of own.
func checkRemovedFinalizers[F ~string](before, after []F, own ...F) error {
	for _, finalizer := range before {
		if !slices.Contains(after, finalizer) && !slices.Contains(own, finalizer) {
			return fmt.Errorf("it cannot remove finalizer %s of others", finalizer)
		}
	}
	if !isSubsequence(before, after, func(a, b F) bool { return a == b }) {
		return errors.New("it cannot add finalizers")
	}
	return nil
}

// isSubsequence reports whether left is a subsequence of before.
func isSubsequence[T any](before, left []T, same func(before, left T) bool) bool {
	for _, element := range left {
		i := slices.IndexFunc(before, func(b T) bool { return same(b, element) })
		if i < 0 {
			return false
		}
		before = before[i+1:]
	}
	return true
}

// sameOrUnblocked reports whether a reference is unchanged, or differs only in that it no longer blocks.
func sameOrUnblocked(before, left metav1.OwnerReference) bool {
	stops := left.BlockOwnerDeletion == nil || !*left.BlockOwnerDeletion
	if stops {
		before.BlockOwnerDeletion, left.BlockOwnerDeletion = nil, nil
	}
	return equality.Semantic.DeepEqual(before, left)
}

// equalExceptReferences reports whether two objects differ only in owner references, finalizers, and the
// metadata that changes with every write.
func equalExceptReferences(old, changed runtime.Object) bool {
	return equality.Semantic.DeepEqual(withoutReferences(old), withoutReferences(changed))
}

// withoutReferences returns a copy of an object without owner references, finalizers, and the metadata that
// changes with every write.
func withoutReferences(obj runtime.Object) runtime.Object {
	obj = obj.DeepCopyObject()
	m, err := meta.Accessor(obj)
	if err != nil {
		return obj
	}
	m.SetOwnerReferences(nil)
	m.SetFinalizers(nil)
	m.SetManagedFields(nil)
	m.SetResourceVersion("")
	// The result of a patch has its kind set; an object from the storage may not.
	obj.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	return obj
}

// checkPreconditions returns an error for a precondition that a deletion lacks (R12). The deletion of a
// collection cannot have preconditions.
func checkPreconditions(a admission.Attributes, conditions ...string) error {
	options, ok := a.GetOperationOptions().(*metav1.DeleteOptions)
	if !ok || a.GetName() == "" {
		return errors.New("it can delete one object at a time only")
	}
	for _, condition := range conditions {
		p := options.Preconditions
		given := p != nil && (condition == "uid" && p.UID != nil || condition == "resourceVersion" && p.ResourceVersion != nil)
		if !given {
			return fmt.Errorf("its deletions must have the precondition %s", condition)
		}
	}
	return nil
}

// namespaceController restricts the namespace controller to terminating namespaces.
type namespaceController struct{ namespaces Namespaces }

func (c namespaceController) checkWrite(ctx context.Context, a admission.Attributes) error {
	isNamespace := a.GetResource().Group == "" && a.GetResource().Resource == "namespaces"
	switch {
	case a.GetOperation() == admission.Delete && !isNamespace && a.GetNamespace() != "":
		return c.checkDelete(ctx, a)
	case a.GetOperation() == admission.Update && isNamespace && a.GetSubresource() != "":
		return checkNamespaceUpdate(a)
	}
	return errors.New("it can delete objects in namespaces, and update the status and spec.finalizers of namespaces only")
}

func (c namespaceController) checkDelete(ctx context.Context, a admission.Attributes) error {
	terminating, err := c.namespaces.Terminating(ctx, a.GetNamespace())
	if err != nil {
		return err
	}
	if !terminating {
		return fmt.Errorf("namespace %s is not terminating", a.GetNamespace())
	}
	if a.GetName() == "" {
		return nil
	}
	return checkPreconditions(a, "uid")
}

// checkNamespaceUpdate allows updates of the status of a terminating namespace, and the removal
// of the entry kubernetes from its spec.finalizers.
func checkNamespaceUpdate(a admission.Attributes) error {
	old, ok := a.GetOldObject().(*corev1.Namespace)
	if !ok || old.DeletionTimestamp == nil {
		return errors.New("the namespace is not terminating")
	}
	changed, ok := a.GetObject().(*corev1.Namespace)
	if !ok {
		return errors.New("the object is not a namespace")
	}
	if err := checkRemovedFinalizers(old.Spec.Finalizers, changed.Spec.Finalizers, corev1.FinalizerKubernetes); err != nil {
		return err
	}
	old, changed = old.DeepCopy(), changed.DeepCopy()
	old.Spec, old.Status, changed.Spec, changed.Status = corev1.NamespaceSpec{}, corev1.NamespaceStatus{}, corev1.NamespaceSpec{}, corev1.NamespaceStatus{}
	if checkSameOwnersAndFinalizers(old, changed) != nil || !equalExceptReferences(old, changed) {
		return errors.New("it cannot change metadata")
	}
	return nil
}

// checkProtectionWrite allows the write of R23: the removal of the controller's own finalizer from a
// PersistentVolumeClaim, PersistentVolume or VolumeAttributesClass that is being deleted.
func checkProtectionWrite(_ context.Context, a admission.Attributes) error {
	var own string
	switch {
	case a.GetOperation() != admission.Update || a.GetSubresource() != "":
	case a.GetResource().GroupResource() == corev1.Resource("persistentvolumeclaims"):
		own = inuse.PVCProtection
	case a.GetResource().GroupResource() == corev1.Resource("persistentvolumes"):
		own = inuse.PVProtection
	case a.GetResource().GroupResource() == storagev1.Resource("volumeattributesclasses"):
		own = inuse.VACProtection
	}
	old, ok := a.GetOldObject().(metav1.Object)
	changed, isObject := a.GetObject().(metav1.Object)
	if own == "" || !ok || !isObject {
		return errors.New("it can update PersistentVolumeClaims, PersistentVolumes and VolumeAttributesClasses only")
	}
	if old.GetDeletionTimestamp() == nil {
		return errors.New("the object is not being deleted")
	}
	if err := checkRemovedFinalizers(old.GetFinalizers(), changed.GetFinalizers(), own); err != nil {
		return err
	}
	if !equality.Semantic.DeepEqual(old.GetOwnerReferences(), changed.GetOwnerReferences()) ||
		!equalExceptReferences(a.GetOldObject(), a.GetObject()) {
		return errors.New("it can change its own finalizer only")
	}
	return nil
}

// checkQuotaWrite allows updates of the status of ResourceQuotas.
func checkQuotaWrite(_ context.Context, a admission.Attributes) error {
	if a.GetOperation() != admission.Update || a.GetSubresource() != "status" || a.GetResource().GroupResource() != corev1.Resource("resourcequotas") {
		return errors.New("it can update the status of ResourceQuotas only")
	}
	old, was := a.GetOldObject().(*corev1.ResourceQuota)
	changed, is := a.GetObject().(*corev1.ResourceQuota)
	if !was || !is {
		return errors.New("the object is not a ResourceQuota")
	}
	old = old.DeepCopy()
	old.Status = changed.Status
	if !equalExceptReferences(old, changed) { // the server keeps references and finalizers in an update of a status
		return errors.New("it can change the status only")
	}
	return nil
}

// checkMigratorWrite allows updates of the status of migrations and definitions, and updates that change nothing.
func checkMigratorWrite(_ context.Context, a admission.Attributes) error {
	old, was := a.GetOldObject().(metav1.Object)
	changed, is := a.GetObject().(metav1.Object)
	if a.GetOperation() != admission.Update || !was || !is {
		return errors.New("it can update objects only")
	}
	if a.GetSubresource() == "status" { // of migrations and definitions: it may access no other subresource
		return nil
	}
	if checkSameOwnersAndFinalizers(old, changed) != nil || !equalExceptReferences(a.GetOldObject(), a.GetObject()) {
		return errors.New("its patches must change nothing")
	}
	return nil
}

// checkLeaderElectionWrite allows writes of the Lease of leader election.
func checkLeaderElectionWrite(_ context.Context, a admission.Attributes) error {
	lease, ok := a.GetObject().(*coordinationv1.Lease)
	writes := a.GetOperation() == admission.Create || a.GetOperation() == admission.Update
	if !writes || !ok || a.GetNamespace() != metav1.NamespaceSystem || lease.Name != bootstrappolicy.ControllersLease {
		return fmt.Errorf("it can write the Lease %s/%s only", metav1.NamespaceSystem, bootstrappolicy.ControllersLease)
	}
	if old, updates := a.GetOldObject().(*coordinationv1.Lease); updates {
		return checkSameOwnersAndFinalizers(old, lease)
	}
	return checkNoOwnersOrFinalizers(lease)
}
