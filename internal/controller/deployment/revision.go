package deployment

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/internal/controller/pods"
)

// Annotations of deployments and their replica sets, as kubectl reads them.
const (
	annotationRevision = "deployment.kubernetes.io/revision"
	annotationHistory  = "deployment.kubernetes.io/revision-history"
	annotationDesired  = "deployment.kubernetes.io/desired-replicas"
	annotationMax      = "deployment.kubernetes.io/max-replicas"
	annotationRollback = "deprecated.deployment.rollback.to"
)

// isOwn reports whether an annotation of a deployment is not copied to its replica sets.
func isOwn(annotation string) bool {
	switch annotation {
	case annotationRevision, annotationHistory, annotationDesired, annotationMax, annotationRollback, corev1.LastAppliedConfigAnnotation:
		return true
	}
	return false
}

// planNewest plans the replica set of the deployment's template, unless it exists.
func (r *rollout) planNewest(size int32) error {
	if r.newest != nil {
		return nil
	}
	hash, err := pods.Hash(&r.d.Spec.Template, r.d.Status.CollisionCount)
	if err != nil {
		return err
	}
	template := r.d.Spec.Template.DeepCopy()
	template.Labels = with(template.Labels, hash)
	selector := r.d.Spec.Selector.DeepCopy()
	selector.MatchLabels = with(selector.MatchLabels, hash)
	r.newest = &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: r.d.Namespace, Name: r.d.Name + "-" + hash, Labels: maps.Clone(template.Labels),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(r.d, appsv1.SchemeGroupVersion.WithKind("Deployment"))},
		},
		Spec: appsv1.ReplicaSetSpec{Replicas: &size, MinReadySeconds: r.d.Spec.MinReadySeconds, Selector: selector, Template: *template},
	}
	r.plan.Create = r.newest
	return nil
}

func with(labels map[string]string, hash string) map[string]string {
	labels = maps.Clone(labels)
	if labels == nil {
		labels = map[string]string{}
	}
	labels[appsv1.DefaultDeploymentUniqueLabelKey] = hash
	return labels
}

// describe sets the annotations of the sets: the revision and the deployment's annotations on
// the newest, and the deployment's size and limits on the sets with pods.
func (r *rollout) describe() {
	if r.newest != nil {
		r.describeNewest()
	}
	for _, set := range r.sets() {
		if *set.Spec.Replicas > 0 || set == r.plan.Create {
			annotate(set, annotationDesired, strconv.Itoa(int(r.size)))
			annotate(set, annotationMax, strconv.Itoa(int(r.size+r.surge)))
		}
	}
}

func (r *rollout) describeNewest() {
	latest := int64(0)
	for _, set := range r.older {
		latest = max(latest, revisionOf(set))
	}
	for name, value := range r.d.Annotations {
		if !isOwn(name) {
			annotate(r.newest, name, value)
		}
	}
	if revisionOf(r.newest) <= latest {
		// A rollback makes an old set the newest again; its former revision numbers stay on
		// record.
		if former := r.newest.Annotations[annotationRevision]; former != "" {
			annotate(r.newest, annotationHistory, strings.TrimPrefix(r.newest.Annotations[annotationHistory]+","+former, ","))
		}
		annotate(r.newest, annotationRevision, strconv.FormatInt(latest+1, 10))
	}
	r.newest.Spec.MinReadySeconds = r.d.Spec.MinReadySeconds
	if revision := r.newest.Annotations[annotationRevision]; revision != r.d.Annotations[annotationRevision] {
		r.plan.Revision = revision
	}
}

func annotate(set *appsv1.ReplicaSet, name, value string) {
	if set.Annotations == nil {
		set.Annotations = map[string]string{}
	}
	set.Annotations[name] = value
}

// number returns the value of an annotation; false if it is absent or not a number.
func number(set *appsv1.ReplicaSet, annotation string) (int32, bool) {
	n, err := strconv.ParseInt(set.Annotations[annotation], 10, 32)
	return int32(n), err == nil
}

// revisionOf returns 0 for a set without a revision number.
func revisionOf(set *appsv1.ReplicaSet) int64 {
	n, err := strconv.ParseInt(set.Annotations[annotationRevision], 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// collides reports whether an existing replica set already uses the name of a new one but
// differs from it: it is not the deployment's, or has another template. Then the next hash must
// be tried.
func collides(d *appsv1.Deployment, there *appsv1.ReplicaSet) bool {
	return !metav1.IsControlledBy(there, d) || !sameTemplate(&there.Spec.Template, &d.Spec.Template)
}

// conditionOf returns the condition of that type, or nil.
func conditionOf(conditions []appsv1.DeploymentCondition, kind appsv1.DeploymentConditionType) *appsv1.DeploymentCondition {
	i := slices.IndexFunc(conditions, func(c appsv1.DeploymentCondition) bool { return c.Type == kind })
	if i < 0 {
		return nil
	}
	return &conditions[i]
}
