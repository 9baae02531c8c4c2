package controller

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

	"github.com/coppice-dev/coppice/internal/controller/pods"
)

// longestRevisionPrefix is the length of the longest name prefix to which a hash can be appended.
const longestRevisionPrefix = 223

// revisionNames is the number of names tried for one revision.
const revisionNames = 5

// RevisionControl maintains the revisions of the owners of one controller. It is safe for concurrent
// use.
type RevisionControl struct {
	client       kubernetes.Interface
	refs         *RefManager[*appsv1.ControllerRevision]
	expectations *Expectations
	hashLabel    string
}

// RevisionSubject is an owner and its template.
type RevisionSubject struct {
	Owner
	Template *corev1.PodTemplateSpec
	// Collisions counts the hash collisions so far; nil means none.
	Collisions *int32
}

// Revisions are the revisions of a RevisionSubject.
type Revisions struct {
	// All is sorted, oldest first.
	All []*appsv1.ControllerRevision
	// Update is the revision that holds the template; nil if it does not exist and must not be
	// created.
	Update *appsv1.ControllerRevision
	// Collisions is the number of collisions for the owner's status.
	Collisions int32
}

// NewRevisionControl returns a RevisionControl of revisions that carry their hash in that label.
func NewRevisionControl(shared *Context, hashLabel string) (*RevisionControl, error) {
	refs, err := NewRefManager(shared.Informers.ControllerRevisions.Informer(),
		func(ctx context.Context, namespace, name string, kind types.PatchType, patch []byte) (*appsv1.ControllerRevision, error) {
			return shared.Client.AppsV1().ControllerRevisions(namespace).Patch(ctx, name, kind, patch, metav1.PatchOptions{})
		})
	if err != nil {
		return nil, err
	}
	return &RevisionControl{shared.Client, refs, NewExpectations(refs.Indexer()), hashLabel}, nil
}

// RefManager returns the manager of the controller references of all revisions.
func (c *RevisionControl) RefManager() *RefManager[*appsv1.ControllerRevision] { return c.refs }

// Satisfied reports whether the cache shows all writes to an owner's revisions. Until then the
// numbers of new ones would be wrong.
func (c *RevisionControl) Satisfied(owner types.UID) bool { return c.expectations.Satisfied(owner) }

// Expectations returns the expectations about the owners' revisions.
func (c *RevisionControl) Expectations() *Expectations { return c.expectations }

// Get returns the existing revisions. Nothing is written, adopted or released.
func (c *RevisionControl) Get(s RevisionSubject) (Revisions, error) {
	data, err := RevisionData(s.Template)
	if err != nil {
		return Revisions{}, err
	}
	r := Revisions{All: c.refs.ControlledBy(s.GetUID()), Collisions: collisionsOf(s)}
	SortRevisions(r.All)
	r.Update = DecideRevision(r.All, data).Update
	return r, nil
}

// Sync adopts and releases revisions and returns the owner's revisions, including one for the
// template, which has the highest number.
func (c *RevisionControl) Sync(ctx context.Context, s RevisionSubject) (Revisions, error) {
	r := Revisions{Collisions: collisionsOf(s)}
	data, err := RevisionData(s.Template)
	if err != nil {
		return r, err
	}
	if r.All, err = c.refs.AdoptAndRelease(ctx, s.Owner, c.expectations); err != nil {
		return r, err
	}
	plan := DecideRevision(r.All, data)
	switch {
	case plan.Update == nil:
		r.Update, err = c.create(ctx, s, data, plan.Number, &r.Collisions)
		r.All = append(r.All, r.Update)
	case plan.Update.Revision < plan.Number:
		r.Update, err = c.renumber(ctx, s.GetUID(), plan)
		r.All[slices.Index(r.All, plan.Update)] = r.Update
	default:
		r.Update = plan.Update
	}
	if err != nil {
		return Revisions{}, err
	}
	SortRevisions(r.All)
	return r, nil
}

func collisionsOf(s RevisionSubject) int32 {
	if s.Collisions == nil {
		return 0
	}
	return *s.Collisions
}

// create creates a revision. Its name contains a hash of its data, so that the same revision is
// not created twice; if another revision has that name, the next hash is tried.
func (c *RevisionControl) create(ctx context.Context, s RevisionSubject, data []byte, number int64, collisions *int32) (*appsv1.ControllerRevision, error) {
	for range revisionNames {
		revision, err := c.draft(s, data, *collisions)
		if err != nil {
			return nil, err
		}
		revision.Revision = number
		created, err := c.client.AppsV1().ControllerRevisions(s.GetNamespace()).Create(ctx, revision, metav1.CreateOptions{})
		if err == nil {
			c.expectations.ExpectVersion(s.GetUID(), created.ResourceVersion)
			return created, nil
		}
		if !IsAlreadyExists(err) {
			return nil, fmt.Errorf("create revision %s: %w", revision.Name, err)
		}
		there, err := c.client.AppsV1().ControllerRevisions(s.GetNamespace()).Get(ctx, revision.Name, metav1.GetOptions{})
		switch {
		case err != nil:
			return nil, fmt.Errorf("read revision %s: %w", revision.Name, err)
		case sameRevision(there, data) && metav1.IsControlledBy(there, s):
			c.expectations.ExpectVersion(s.GetUID(), there.ResourceVersion)
			return there, nil
		case s.Adopts(there):
			return nil, apierrors.NewConflict(appsv1.Resource("controllerrevisions"), there.Name, errors.New("it has to be adopted first"))
		}
		*collisions++
	}
	return nil, apierrors.NewConflict(appsv1.Resource("controllerrevisions"), s.GetName(), errors.New("every name that was tried is taken"))
}

func (c *RevisionControl) draft(s RevisionSubject, data []byte, collisions int32) (*appsv1.ControllerRevision, error) {
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
			Namespace: s.GetNamespace(), Name: s.GetName()[:min(len(s.GetName()), longestRevisionPrefix)] + "-" + hash,
			Labels: maps.Clone(s.Template.Labels), Annotations: maps.Clone(s.GetAnnotations()),
			OwnerReferences: []metav1.OwnerReference{*s.Reference()},
		},
		Data: runtime.RawExtension{Raw: data},
	}
	// The annotations are kept for kubernetes.io/change-cause, which kubectl rollout history
	// shows.
	delete(revision.Annotations, corev1.LastAppliedConfigAnnotation)
	metav1.SetMetaDataLabel(&revision.ObjectMeta, c.hashLabel, hash)
	return revision, nil
}

func (c *RevisionControl) renumber(ctx context.Context, owner types.UID, plan RevisionPlan) (*appsv1.ControllerRevision, error) {
	r := plan.Update
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": r.UID, "resourceVersion": r.ResourceVersion}, "revision": plan.Number,
	})
	if err != nil {
		return nil, fmt.Errorf("write a patch: %w", err)
	}
	changed, err := c.client.AppsV1().ControllerRevisions(r.Namespace).Patch(ctx, r.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return nil, fmt.Errorf("number revision %s: %w", r.Name, err)
	}
	c.expectations.ExpectVersion(owner, changed.ResourceVersion)
	return changed, nil
}

// Truncate removes the oldest of the revisions that are not live, down to limit.
func (c *RevisionControl) Truncate(ctx context.Context, r Revisions, live func(*appsv1.ControllerRevision) bool, limit int32) error {
	return AttemptAll(SurplusRevisions(r.All, live, limit), func(old *appsv1.ControllerRevision) error {
		err := c.client.AppsV1().ControllerRevisions(old.Namespace).Delete(ctx, old.Name, metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{UID: &old.UID, ResourceVersion: &old.ResourceVersion},
		})
		if IgnoreNotFound(err) != nil {
			return fmt.Errorf("remove revision %s: %w", old.Name, err)
		}
		return nil
	})
}

// Hash returns the hash that distinguishes a revision from others: its label or, if another
// controller wrote it without that label, the end of its name.
func (c *RevisionControl) Hash(owner metav1.Object, revision *appsv1.ControllerRevision) string {
	if hash := revision.Labels[c.hashLabel]; hash != "" {
		return hash
	}
	prefix := len(owner.GetName()) + 1
	if len(revision.Name) > prefix {
		return revision.Name[prefix:]
	}
	return revision.Name
}
