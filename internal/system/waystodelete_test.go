package system

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"

	"github.com/coppice-dev/coppice/internal/controller"
	"github.com/coppice-dev/coppice/internal/controller/nodelifecycle"
)

func configMaps() schema.GroupVersionResource {
	return corev1.SchemeGroupVersion.WithResource("configmaps")
}

func pods() schema.GroupVersionResource { return corev1.SchemeGroupVersion.WithResource("pods") }

func jobs() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "batch", Version: "v1", Resource: "jobs"}
}

func deployments() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
}

// waysToDelete returns the ways in which an object of our server may be deleted.
func waysToDelete() []way {
	return []way{
		{name: "DELETE in the background", requested: true, prepare: aConfigMap, begin: deleteWith(metav1.DeletePropagationBackground)},
		{name: "DELETE in the foreground", requested: true, prepare: aConfigMap, begin: deleteWith(metav1.DeletePropagationForeground)},
		{name: "DELETE that orphans", requested: true, prepare: aConfigMap, begin: deleteWith(metav1.DeletePropagationOrphan)},
		{name: "DELETE without grace", requested: true, prepare: aPod, begin: func(ctx context.Context, in attempt, what subject) error {
			return in.of(what).Delete(ctx, what.name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))})
		}},
		{name: "DELETE of a collection", requested: true, prepare: aConfigMap, begin: deleteCollection, refused: othersGo},
		{name: "DELETE of a collection of custom resources", requested: true, prepare: aCustomResource, begin: deleteCollection, refused: othersGo},
		{name: "DELETE of a custom resource", requested: true, prepare: aCustomResource, begin: deleteWith(metav1.DeletePropagationForeground)},
		{name: "DELETE in an older group", requested: true, prepare: aDeployment, begin: inOlderGroup(deleteWith(metav1.DeletePropagationBackground))},
		{name: "DELETE of a collection in an older group", requested: true, prepare: aDeployment, begin: inOlderGroup(deleteCollection), refused: othersGo},
		{name: "DELETE of a namespace", requested: true, prepare: aNamespace, begin: deleteWith(metav1.DeletePropagationBackground)},
		{name: "eviction", requested: true, prepare: aPod, begin: evict},
		{name: "the pods' garbage collector", prepare: aPod, begin: collectPods, refused: refusedInAudit},
		{name: "a ReplicaSet that is scaled down", prepare: aPodOfReplicaSet, begin: scaleDown, refused: refusedInAudit},
		{name: "the time to live of a Job", prepare: aFinishedJob, begin: expireJob, refused: refusedInAudit},
		{name: "the history of a CronJob", prepare: aFinishedJob, begin: forgetJob, refused: refusedInAudit},
		{name: "the garbage collector, in the background", cascade: true, prepare: aDependent, begin: deleteOwner(metav1.DeletePropagationBackground), refused: refusedInAudit},
		{name: "the garbage collector, in the foreground", cascade: true, prepare: aDependent, begin: deleteOwner(metav1.DeletePropagationForeground), refused: ownerSaysSo},
		{name: "the namespace controller", cascade: true, prepare: aConfigMap, begin: deleteNamespace, refused: namespaceSaysSo},
		{name: "the deletion of a CustomResourceDefinition", cascade: true, prepare: aCustomResource, begin: deleteDefinition, refused: othersGoAndHeldStays, slow: true},
	}
}

func aConfigMap(ctx context.Context, in attempt) (subject, error) {
	what := subject{configMaps(), in.namespace, "kept"}
	for _, name := range []string{what.name, "other"} {
		if _, err := create(ctx, in.of(what), `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"`+name+`","labels":{"app":"web"}}}`); err != nil {
			return what, err
		}
	}
	return what, nil
}

func aDeployment(ctx context.Context, in attempt) (subject, error) {
	what := subject{deployments(), in.namespace, "kept"}
	for _, name := range []string{what.name, "other"} {
		if _, err := create(ctx, in.of(what), `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"`+name+`","labels":{"app":"web"}},"spec":{"replicas":0,
			"selector":{"matchLabels":{"of":"`+name+`"}},"template":{"metadata":{"labels":{"of":"`+name+`"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`); err != nil {
			return what, err
		}
	}
	return what, nil
}

// inOlderGroup deletes by the path that the resource had before it moved to another group.
func inOlderGroup(begin func(context.Context, attempt, subject) error) func(context.Context, attempt, subject) error {
	return func(ctx context.Context, in attempt, what subject) error {
		what.resource.Group, what.resource.Version = "extensions", "v1beta1"
		return begin(ctx, in, what)
	}
}

// aPod creates a pod that no scheduler binds. If it were on a missing node, the pod garbage collector of another attempt
// could delete it before it is protected.
func aPod(ctx context.Context, in attempt) (subject, error) {
	what := subject{pods(), in.namespace, "kept"}
	return what, becomesTrue(ctx, "a pod is created", func(ctx context.Context) (bool, error) {
		_, err := create(ctx, in.of(what), `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"kept"},"spec":{"schedulerName":"none","containers":[{"name":"c","image":"i"}]}}`)
		if err != nil && strings.Contains(err.Error(), "serviceaccount") {
			return false, nil // the service account does not exist yet
		}
		return err == nil, err
	})
}

func aNamespace(_ context.Context, in attempt) (subject, error) {
	return subject{resource: corev1.SchemeGroupVersion.WithResource("namespaces"), name: in.namespace}, nil
}

func aDependent(ctx context.Context, in attempt) (subject, error) {
	what := subject{configMaps(), in.namespace, "kept"}
	owner, err := create(ctx, in.of(what), `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"owner"}}`)
	if err != nil {
		return what, err
	}
	_, err = create(ctx, in.of(what), fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"kept","ownerReferences":[
		{"apiVersion":"v1","kind":"ConfigMap","name":"owner","uid":%q,"blockOwnerDeletion":true}]}}`, owner.GetUID()))
	return what, err
}

// aCustomResource creates an object of a kind of its own.
func aCustomResource(ctx context.Context, in attempt) (subject, error) {
	group := in.namespace + ".example.com"
	_, err := create(ctx, in.objects.Resource(customResourceDefinitions()), `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"widgets.`+group+`"},
		"spec":{"group":"`+group+`","scope":"Namespaced","names":{"plural":"widgets","singular":"widget","kind":"Widget","listKind":"WidgetList"},
		"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}`)
	what := subject{schema.GroupVersionResource{Group: group, Version: "v1", Resource: "widgets"}, in.namespace, "kept"}
	if err != nil {
		return what, err
	}
	for _, name := range []string{what.name, "other"} {
		err := becomesTrue(ctx, "a custom resource is created", func(ctx context.Context) (bool, error) {
			_, err := create(ctx, in.of(what), `{"apiVersion":"`+group+`/v1","kind":"Widget","metadata":{"name":"`+name+`","labels":{"app":"web"}}}`)
			return err == nil, unlessMissing(err)
		})
		if err != nil {
			return what, err
		}
	}
	return what, nil
}

func customResourceDefinitions() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
}

func aPodOfReplicaSet(ctx context.Context, in attempt) (subject, error) {
	what := subject{resource: pods(), namespace: in.namespace}
	_, err := create(ctx, in.objects.Resource(replicaSets()).Namespace(in.namespace), `{"apiVersion":"apps/v1","kind":"ReplicaSet","metadata":{"name":"web"},"spec":{"replicas":1,
		"selector":{"matchLabels":{"app":"web"}},"template":{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`)
	if err != nil {
		return what, err
	}
	return what, becomesTrue(ctx, "a pod of a ReplicaSet", func(ctx context.Context) (bool, error) {
		list, err := in.of(what).List(ctx, metav1.ListOptions{})
		if err != nil || len(list.Items) == 0 {
			return false, err
		}
		what.name = list.Items[0].GetName()
		return true, nil
	})
}

func replicaSets() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "replicasets"}
}

func scaleDown(ctx context.Context, in attempt, _ subject) error {
	return in.patchSpec(ctx, subject{replicaSets(), in.namespace, "web"}, `{"spec":{"replicas":0}}`)
}

// aFinishedJob creates a Job that needs no pod. The CronJob that owns it keeps one finished Job, and is
// suspended.
func aFinishedJob(ctx context.Context, in attempt) (subject, error) {
	what := subject{jobs(), in.namespace, "kept"}
	pod := `{"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"i"}]}}`
	cron, err := create(ctx, in.objects.Resource(cronJobs()).Namespace(in.namespace), `{"apiVersion":"batch/v1","kind":"CronJob","metadata":{"name":"nightly"},
		"spec":{"schedule":"0 0 1 1 *","suspend":true,"successfulJobsHistoryLimit":1,"jobTemplate":{"spec":{"template":`+pod+`}}}}`)
	if err != nil {
		return what, err
	}
	_, err = create(ctx, in.of(what), fmt.Sprintf(`{"apiVersion":"batch/v1","kind":"Job","metadata":{"name":"kept","ownerReferences":[
		{"apiVersion":"batch/v1","kind":"CronJob","name":"nightly","uid":%q,"controller":true}]},"spec":{"completions":0,"template":%s}}`, cron.GetUID(), pod))
	if err != nil {
		return what, err
	}
	return what, becomesTrue(ctx, "the job is complete", func(ctx context.Context) (bool, error) {
		job, err := in.client.BatchV1().Jobs(in.namespace).Get(ctx, what.name, metav1.GetOptions{})
		return err == nil && job.Status.CompletionTime != nil, err
	})
}

func cronJobs() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "batch", Version: "v1", Resource: "cronjobs"}
}

func expireJob(ctx context.Context, in attempt, what subject) error {
	return in.patchSpec(ctx, what, `{"spec":{"ttlSecondsAfterFinished":0}}`)
}

func forgetJob(ctx context.Context, in attempt, _ subject) error {
	return in.patchSpec(ctx, subject{cronJobs(), in.namespace, "nightly"}, `{"spec":{"successfulJobsHistoryLimit":0}}`)
}

func deleteWith(policy metav1.DeletionPropagation) func(context.Context, attempt, subject) error {
	return func(ctx context.Context, in attempt, what subject) error {
		return errors.Join(
			in.of(what).Delete(ctx, what.name, metav1.DeleteOptions{PropagationPolicy: &policy, DryRun: []string{metav1.DryRunAll}}),
			in.of(what).Delete(ctx, what.name, metav1.DeleteOptions{PropagationPolicy: &policy}))
	}
}

func deleteCollection(ctx context.Context, in attempt, what subject) error {
	return in.of(what).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "app=web"})
}

// othersGo waits until the other object of the resource is being deleted, or no longer exists.
func othersGo(ctx context.Context, in attempt, what subject) error {
	return in.goes(ctx, subject{what.resource, what.namespace, "other"})
}

func evict(ctx context.Context, in attempt, what subject) error {
	return in.client.PolicyV1().Evictions(in.namespace).Evict(ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: what.name, Namespace: in.namespace}})
}

// collectPods binds the pod to a node that does not exist, and runs the pod garbage collector with a shorter limit for
// missing nodes.
func collectPods(ctx context.Context, in attempt, what subject) error {
	gone := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: what.name}, Target: corev1.ObjectReference{Kind: "Node", Name: "gone"}}
	if err := in.client.CoreV1().Pods(in.namespace).Bind(ctx, gone, metav1.CreateOptions{}); err != nil {
		return err
	}
	shared, err := controller.NewContext(in.client, clock.RealClock{}, silent())
	if err != nil {
		return err
	}
	collector := nodelifecycle.NewPodGC(shared, nodelifecycle.PodLimits{Finished: 1000, Missing: time.Millisecond})
	go func() { _ = shared.Run(ctx, collector) }()
	return nil
}

func deleteOwner(policy metav1.DeletionPropagation) func(context.Context, attempt, subject) error {
	return func(ctx context.Context, in attempt, what subject) error {
		return in.of(what).Delete(ctx, "owner", metav1.DeleteOptions{PropagationPolicy: &policy})
	}
}

// ownerSaysSo waits for the Event that names the object for which the owner waits.
func ownerSaysSo(ctx context.Context, in attempt, what subject) error {
	return becomesTrue(ctx, "an Event about the owner", func(ctx context.Context) (bool, error) {
		events, err := in.client.CoreV1().Events(in.namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		for _, e := range events.Items {
			if e.InvolvedObject.Name == "owner" && strings.Contains(e.Message, "waits for ConfigMap "+in.namespace+"/"+what.name+", which is protected by ") {
				return true, nil
			}
		}
		return false, nil
	})
}

func deleteNamespace(ctx context.Context, in attempt, _ subject) error {
	return in.client.CoreV1().Namespaces().Delete(ctx, in.namespace, metav1.DeleteOptions{})
}

// namespaceSaysSo waits for the condition that names the object for which the namespace waits.
func namespaceSaysSo(ctx context.Context, in attempt, what subject) error {
	return becomesTrue(ctx, "a condition of the namespace", func(ctx context.Context) (bool, error) {
		namespace, err := in.client.CoreV1().Namespaces().Get(ctx, in.namespace, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		for _, c := range namespace.Status.Conditions {
			if c.Status == corev1.ConditionTrue && strings.Contains(c.Message, "configmaps "+what.name+" is protected by ") {
				return true, nil
			}
		}
		return false, nil
	})
}

// deleteDefinition first creates another protected instance with a finalizer: its deletion would only mark
// it, not remove it.
func deleteDefinition(ctx context.Context, in attempt, what subject) error {
	held := subject{what.resource, what.namespace, "held"}
	_, err := create(ctx, in.of(held), `{"apiVersion":"`+what.resource.GroupVersion().String()+`","kind":"Widget","metadata":{"name":"held","finalizers":["example.com/hold"]}}`)
	if err != nil {
		return err
	}
	if err := in.protect(ctx, held); err != nil {
		return err
	}
	return in.objects.Resource(customResourceDefinitions()).Delete(ctx, what.resource.Resource+"."+what.resource.Group, metav1.DeleteOptions{})
}

func othersGoAndHeldStays(ctx context.Context, in attempt, what subject) error {
	if err := othersGo(ctx, in, what); err != nil {
		return err
	}
	held, err := in.of(what).Get(ctx, "held", metav1.GetOptions{})
	if err == nil && held.GetDeletionTimestamp() != nil {
		err = errors.New("a hole: what has a finalizer is being deleted")
	}
	return err
}
