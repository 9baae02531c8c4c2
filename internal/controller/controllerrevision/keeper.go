package controllerrevision

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/coppice-dev/coppice/internal/controller"
	"github.com/coppice-dev/coppice/internal/pods"
)

// longestPrefix leaves room for a hash in the name of an object.
const longestPrefix = 223

// attempts is how many names are tried for one revision.
const attempts = 5

// Keeper keeps the revisions of the owners of one controller. It is safe for concurrent
// use.
type Keeper struct {
	client     kubernetes.Interface
	dependents *controller.Dependents[*appsv1.ControllerRevision]
	ledger     *controller.Ledger
	hashLabel  string
}

// Subject is an owner and its template.
type Subject struct {
	controller.Owner
	Template *corev1.PodTemplateSpec
	// Collisions is how many names were found taken so far; nil for none.
	Collisions *int32
}

// History is what is known of a Subject.
type History struct {
	// Revisions are all there are, the oldest first.
	Revisions []*appsv1.ControllerRevision
	// Update holds the template; nil where there is none and none is to be made.
	Update *appsv1.ControllerRevision
	// Collisions is for the owner's status.
	Collisions int32
}

// NewKeeper makes a keeper that gives its revisions their hash in that label.
func NewKeeper(w *controller.World, hashLabel string) (*Keeper, error) {
	dependents, err := controller.NewDependents(w.Shared.Apps().V1().ControllerRevisions().Informer(),
		func(ctx context.Context, namespace, name string, kind types.PatchType, patch []byte) (*appsv1.ControllerRevision, error) {
			return w.Client.AppsV1().ControllerRevisions(namespace).Patch(ctx, name, kind, patch, metav1.PatchOptions{})
		})
	if err != nil {
		return nil, err
	}
	return &Keeper{w.Client, dependents, controller.NewLedger(dependents.View()), hashLabel}, nil
}

// Revisions are all revisions that the cache shows.
func (k *Keeper) Revisions() *controller.Dependents[*appsv1.ControllerRevision] { return k.dependents }

// Behind tells whether the cache does not show yet what was done about an owner's
// revisions: their numbers would be wrong.
func (k *Keeper) Behind(owner types.UID) bool { return k.ledger.Behind(owner) }

// Ledger has a page of each owner.
func (k *Keeper) Ledger() *controller.Ledger { return k.ledger }

// Look is the history as it is. Nothing is written, nor adopted or released.
func (k *Keeper) Look(s Subject) (History, error) {
	data, err := Data(s.Template)
	if err != nil {
		return History{}, err
	}
	h := History{Revisions: k.dependents.ControlledBy(s.GetUID()), Collisions: collisions(s)}
	Sort(h.Revisions)
	h.Update = Decide(h.Revisions, data).Update
	return h, nil
}

// Of is the history, with a revision of the template that has the highest number.
func (k *Keeper) Of(ctx context.Context, s Subject) (History, error) {
	h := History{Collisions: collisions(s)}
	data, err := Data(s.Template)
	if err != nil {
		return h, err
	}
	if h.Revisions, err = k.dependents.Of(ctx, s.Owner, k.ledger); err != nil {
		return h, err
	}
	plan := Decide(h.Revisions, data)
	switch {
	case plan.Update == nil:
		h.Update, err = k.create(ctx, s, data, plan.Number, &h.Collisions)
		h.Revisions = append(h.Revisions, h.Update)
	case plan.Update.Revision < plan.Number:
		h.Update, err = k.renumber(ctx, s.GetUID(), plan)
		h.Revisions[slices.Index(h.Revisions, plan.Update)] = h.Update
	default:
		h.Update = plan.Update
	}
	if err != nil {
		return History{}, err
	}
	Sort(h.Revisions)
	return h, nil
}

func collisions(s Subject) int32 {
	if s.Collisions == nil {
		return 0
	}
	return *s.Collisions
}

// create makes a revision. Its name says what it holds, so that the same one is not made
// twice; a name that is taken by another gives way to the next.
func (k *Keeper) create(ctx context.Context, s Subject, data []byte, number int64, collisions *int32) (*appsv1.ControllerRevision, error) {
	for range attempts {
		revision, err := k.draft(s, data, *collisions)
		if err != nil {
			return nil, err
		}
		revision.Revision = number
		created, err := k.client.AppsV1().ControllerRevisions(s.GetNamespace()).Create(ctx, revision, metav1.CreateOptions{})
		if err == nil {
			k.ledger.Created(s.GetUID(), created.ResourceVersion)
			return created, nil
		}
		if !apierrors.IsAlreadyExists(err) {
			return nil, fmt.Errorf("create revision %s: %w", revision.Name, err)
		}
		there, err := k.client.AppsV1().ControllerRevisions(s.GetNamespace()).Get(ctx, revision.Name, metav1.GetOptions{})
		switch {
		case err != nil:
			return nil, fmt.Errorf("read revision %s: %w", revision.Name, err)
		case same(there, data) && metav1.IsControlledBy(there, s):
			k.ledger.Created(s.GetUID(), there.ResourceVersion)
			return there, nil
		case controller.KinshipOf(s.Owner, there) == controller.Orphan:
			return nil, apierrors.NewConflict(appsv1.Resource("controllerrevisions"), there.Name, errors.New("it is to be adopted first"))
		}
		*collisions++
	}
	return nil, apierrors.NewConflict(appsv1.Resource("controllerrevisions"), s.GetName(), errors.New("every name that was tried is taken"))
}

// draft is a revision that is to be created.
func (k *Keeper) draft(s Subject, data []byte, collisions int32) (*appsv1.ControllerRevision, error) {
	salt := &collisions
	if collisions == 0 {
		salt = nil
	}
	hash, err := pods.Hash(json.RawMessage(data), salt)
	if err != nil {
		return nil, err
	}
	revision := &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.GetNamespace(), Name: s.GetName()[:min(len(s.GetName()), longestPrefix)] + "-" + hash,
			Labels: maps.Clone(s.Template.Labels), Annotations: maps.Clone(s.GetAnnotations()),
			OwnerReferences: []metav1.OwnerReference{*s.Reference()},
		},
		Data: runtime.RawExtension{Raw: data},
	}
	// The annotations are there for kubernetes.io/change-cause, which rollout history shows.
	delete(revision.Annotations, corev1.LastAppliedConfigAnnotation)
	metav1.SetMetaDataLabel(&revision.ObjectMeta, k.hashLabel, hash)
	return revision, nil
}

func (k *Keeper) renumber(ctx context.Context, owner types.UID, plan Plan) (*appsv1.ControllerRevision, error) {
	r := plan.Update
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": r.UID, "resourceVersion": r.ResourceVersion}, "revision": plan.Number,
	})
	if err != nil {
		return nil, fmt.Errorf("write a patch: %w", err)
	}
	changed, err := k.client.AppsV1().ControllerRevisions(r.Namespace).Patch(ctx, r.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return nil, fmt.Errorf("number revision %s: %w", r.Name, err)
	}
	k.ledger.Created(owner, changed.ResourceVersion)
	return changed, nil
}

// Trim removes the oldest of the revisions that are not live, down to limit.
func (k *Keeper) Trim(ctx context.Context, h History, live func(*appsv1.ControllerRevision) bool, limit int32) error {
	for _, r := range Surplus(h.Revisions, live, limit) {
		err := k.client.AppsV1().ControllerRevisions(r.Namespace).Delete(ctx, r.Name, metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{UID: &r.UID, ResourceVersion: &r.ResourceVersion},
		})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("remove revision %s: %w", r.Name, err)
		}
	}
	return nil
}

// Hash is what tells the revision apart, as it is in its label; the end of its name where
// another controller has written it without that label.
func (k *Keeper) Hash(owner metav1.Object, revision *appsv1.ControllerRevision) string {
	if hash := revision.Labels[k.hashLabel]; hash != "" {
		return hash
	}
	prefix := len(owner.GetName()) + 1
	if len(revision.Name) > prefix {
		return revision.Name[prefix:]
	}
	return revision.Name
}
