package restriction

import (
	"context"
	"errors"
	"fmt"
	"slices"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"

	"github.com/coppice-dev/coppice/internal/apiserver/auth/rbac"
	"github.com/coppice-dev/coppice/internal/controller/volumeprotection"
)

// Admission refuses the writes of confined users that are outside their envelope.
type Admission struct {
	*admission.Handler
	users *Users
}

var _ admission.ValidationInterface = (*Admission)(nil)

// NewAdmission confines the users.
func NewAdmission(users *Users) *Admission {
	return &Admission{admission.NewHandler(admission.Create, admission.Update, admission.Delete, admission.Connect), users}
}

// Validate implements admission.ValidationInterface.
func (p *Admission) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	envelope, confined := p.users.envelope(a.GetUserInfo())
	if !confined || isQuestionOfOneself(a) {
		return nil
	}
	if err := envelope.write(ctx, a); err != nil {
		return admission.NewForbidden(a, fmt.Errorf("%s is confined: %w", a.GetUserInfo().GetName(), err))
	}
	return nil
}

// isQuestionOfOneself: what is created there is answered, and not stored.
func isQuestionOfOneself(a admission.Attributes) bool {
	group, resource := a.GetResource().Group, a.GetResource().Resource
	return a.GetOperation() == admission.Create && (group == authorizationv1.GroupName || group == authenticationv1.GroupName) &&
		slices.Contains([]string{"selfsubjectaccessreviews", "selfsubjectrulesreviews", "selfsubjectreviews"}, resource)
}

// collectorWrites are R16, and Events.
func collectorWrites(_ context.Context, a admission.Attributes) error {
	switch a.GetOperation() {
	case admission.Create:
		if a.GetResource().Resource == "events" && a.GetSubresource() == "" {
			return nil
		}
		return errors.New("it creates Events only")
	case admission.Update:
		return collectorChanges(a.GetOldObject(), a.GetObject())
	case admission.Delete:
		return conditioned(a, "uid", "resourceVersion")
	case admission.Connect:
	}
	return errors.New("it has no use for this")
}

// collectorChanges tells what else an update does than to take owner references away,
// to make them stop blocking, and to take the collector's own finalizers away.
func collectorChanges(old, changed runtime.Object) error {
	if old == nil || changed == nil {
		return errors.New("it does not make objects")
	}
	before, err := meta.Accessor(old)
	if err != nil {
		return err
	}
	after, err := meta.Accessor(changed)
	if err != nil {
		return err
	}
	if !takesAway(before.GetOwnerReferences(), after.GetOwnerReferences(), lessOwned) {
		return errors.New("it adds no owner reference and changes none, but to make it stop blocking")
	}
	if err := releases(before.GetFinalizers(), after.GetFinalizers(), metav1.FinalizerDeleteDependents, metav1.FinalizerOrphanDependents); err != nil {
		return err
	}
	if !sameButFor(old, changed) {
		return errors.New("it changes owner references and its own finalizers only")
	}
	return nil
}

// releases tells what else is done to finalizers than to take some of own away.
func releases[F ~string](before, after []F, own ...F) error {
	for _, finalizer := range before {
		if !slices.Contains(after, finalizer) && !slices.Contains(own, finalizer) {
			return fmt.Errorf("finalizer %s is not its own", finalizer)
		}
	}
	if !takesAway(before, after, func(a, b F) bool { return a == b }) {
		return errors.New("it adds no finalizers")
	}
	return nil
}

// takesAway tells whether what is left are elements of before, in their order.
func takesAway[T any](before, left []T, same func(before, left T) bool) bool {
	for _, element := range left {
		i := slices.IndexFunc(before, func(b T) bool { return same(b, element) })
		if i < 0 {
			return false
		}
		before = before[i+1:]
	}
	return true
}

func lessOwned(before, left metav1.OwnerReference) bool {
	stops := left.BlockOwnerDeletion == nil || !*left.BlockOwnerDeletion
	if stops {
		before.BlockOwnerDeletion, left.BlockOwnerDeletion = nil, nil
	}
	return equality.Semantic.DeepEqual(before, left)
}

// sameButFor tells whether two objects differ in nothing but what the collector may change.
func sameButFor(old, changed runtime.Object) bool {
	return equality.Semantic.DeepEqual(without(old), without(changed))
}

// without is an object without what the collector may change, and what changes with every write.
func without(obj runtime.Object) runtime.Object {
	obj = obj.DeepCopyObject()
	m, err := meta.Accessor(obj)
	if err != nil {
		return obj
	}
	m.SetOwnerReferences(nil)
	m.SetFinalizers(nil)
	m.SetManagedFields(nil)
	m.SetResourceVersion("")
	// What comes from a patch names its kind; what comes from the storage may not.
	obj.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	return obj
}

// conditioned tells which precondition a deletion lacks (R12). Whole collections can be
// deleted on no condition.
func conditioned(a admission.Attributes, conditions ...string) error {
	options, ok := a.GetOperationOptions().(*metav1.DeleteOptions)
	if !ok || a.GetName() == "" {
		return errors.New("it deletes one object at a time")
	}
	for _, condition := range conditions {
		p := options.Preconditions
		given := p != nil && (condition == "uid" && p.UID != nil || condition == "resourceVersion" && p.ResourceVersion != nil)
		if !given {
			return fmt.Errorf("it deletes on condition of %s", condition)
		}
	}
	return nil
}

// sweeper is what the namespace controller is confined to: namespaces that are being deleted.
type sweeper struct{ namespaces Namespaces }

func (s sweeper) writes(ctx context.Context, a admission.Attributes) error {
	isNamespace := a.GetResource().Group == "" && a.GetResource().Resource == "namespaces"
	switch {
	case a.GetOperation() == admission.Delete && !isNamespace && a.GetNamespace() != "":
		return s.sweeps(ctx, a)
	case a.GetOperation() == admission.Update && isNamespace && a.GetSubresource() != "":
		return finishes(a)
	}
	return errors.New("it deletes what is in namespaces, and writes their status and their finalizers")
}

func (s sweeper) sweeps(ctx context.Context, a admission.Attributes) error {
	terminating, err := s.namespaces.Terminating(ctx, a.GetNamespace())
	if err != nil {
		return err
	}
	if !terminating {
		return fmt.Errorf("namespace %s is not being deleted", a.GetNamespace())
	}
	if a.GetName() == "" {
		return nil
	}
	return conditioned(a, "uid")
}

// finishes: of a namespace that is being deleted, it writes the status, and takes its
// own token off the finalizers of the spec.
func finishes(a admission.Attributes) error {
	old, ok := a.GetOldObject().(*corev1.Namespace)
	if !ok || old.DeletionTimestamp == nil {
		return errors.New("the namespace is not being deleted")
	}
	changed, ok := a.GetObject().(*corev1.Namespace)
	if !ok {
		return errors.New("this is no namespace")
	}
	if err := releases(old.Spec.Finalizers, changed.Spec.Finalizers, corev1.FinalizerKubernetes); err != nil {
		return err
	}
	if !equality.Semantic.DeepEqual(old.Finalizers, changed.Finalizers) || !equality.Semantic.DeepEqual(old.OwnerReferences, changed.OwnerReferences) {
		return errors.New("it changes no metadata")
	}
	return nil
}

// protectorWrites are R23: of a claim or a volume that is being deleted, the controller
// takes its own finalizer away.
func protectorWrites(_ context.Context, a admission.Attributes) error {
	var own string
	switch {
	case a.GetOperation() != admission.Update || a.GetSubresource() != "":
	case a.GetResource().GroupResource() == corev1.Resource("persistentvolumeclaims"):
		own = volumeprotection.ClaimFinalizer
	case a.GetResource().GroupResource() == corev1.Resource("persistentvolumes"):
		own = volumeprotection.VolumeFinalizer
	}
	old, ok := a.GetOldObject().(metav1.Object)
	changed, isObject := a.GetObject().(metav1.Object)
	if own == "" || !ok || !isObject {
		return errors.New("it releases claims and volumes")
	}
	if old.GetDeletionTimestamp() == nil {
		return errors.New("the object is not being deleted")
	}
	if err := releases(old.GetFinalizers(), changed.GetFinalizers(), own); err != nil {
		return err
	}
	if !equality.Semantic.DeepEqual(old.GetOwnerReferences(), changed.GetOwnerReferences()) ||
		!equality.Semantic.DeepEqual(without(a.GetOldObject()), without(a.GetObject())) {
		return errors.New("it changes its own finalizer only")
	}
	return nil
}

// candidateWrites: who campaigns writes the one Lease.
func candidateWrites(_ context.Context, a admission.Attributes) error {
	lease, ok := a.GetObject().(*coordinationv1.Lease)
	writes := a.GetOperation() == admission.Create || a.GetOperation() == admission.Update
	if !writes || !ok || a.GetNamespace() != metav1.NamespaceSystem || lease.Name != rbac.ControllersLease {
		return fmt.Errorf("it writes the Lease %s/%s only", metav1.NamespaceSystem, rbac.ControllersLease)
	}
	return nil
}
