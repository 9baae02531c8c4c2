package system

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"github.com/coppice-dev/coppice/internal/apiserver/auth/bootstrappolicy"
	"github.com/coppice-dev/coppice/internal/apiserver/faults"
)

var (
	ownLevel = flag.String("own.level", "realistic", "the level of the faults that the controllers of the control plane meet")
	ownSeed  = flag.Uint64("own.seed", 0, "the seed of the faults that they meet; 0: a random one")
)

// TestControllersMeetFaults checks the control plane's own controllers against the faults that clients meet: whatever
// their caches show and however their writes end, workloads are rolled out, scaled and deleted in the end, at no time are
// there more pods than the rules of each kind allow, and no write is based on an old state.
func TestControllersMeetFaults(t *testing.T) {
	t.Parallel()
	seed := seedOf(ownSeed)
	t.Logf("-own.level=%s -own.seed=%d", *ownLevel, seed)
	plan, err := faults.ParsePlan(fmt.Sprintf("seed=%d; %s user=system:coppice:*", seed, *ownLevel))
	if err != nil {
		t.Fatal(err)
	}
	o := ephemeral(t)
	o.Workloads, o.Scheduler, o.Faults = InProcess, true, plan
	o.Nodes.Nodes = 2
	runWith(t, o, func(ctx context.Context, client kubernetes.Interface) error {
		w := &workloads{t: t, Interface: client}
		sets, err := client.AppsV1().ReplicaSets(metav1.NamespaceDefault).Watch(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		pods, err := client.CoreV1().Pods(metav1.NamespaceDefault).Watch(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		var counting sync.WaitGroup
		counting.Go(func() { w.sum(sets.ResultChan()) })
		counting.Go(func() { w.count(pods.ResultChan()) })
		defer counting.Wait()
		defer pods.Stop()
		defer sets.Stop()
		for _, step := range []struct {
			what  string
			do    func(context.Context) error
			holds func(context.Context) (bool, error)
		}{
			{"the workloads are ready", w.create, w.areReady},
			{"they are rolled out again", w.change, w.areReady},
			{"they are gone", w.remove, w.areGone},
		} {
			if err := step.do(ctx); err != nil {
				return fmt.Errorf("%s: %w", step.what, err)
			}
			if err := becomesTrue(ctx, step.what, step.holds); err != nil {
				return err
			}
		}
		return w.hadNoAnomaly(ctx)
	})
}

// workloads are one of each kind.
type workloads struct {
	kubernetes.Interface
	t *testing.T
}

// The numbers of the pods of the workloads. The Deployment and the StatefulSet have one more in the end.
const (
	webPods  = 3
	dbPods   = 2
	jobPods  = 4
	jobShare = 2 // at a time
)

func podsOf(app, image string, annotations map[string]string) (*metav1.LabelSelector, corev1.PodTemplateSpec) {
	labels := map[string]string{"app": app}
	return &metav1.LabelSelector{MatchLabels: labels}, corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: annotations},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: image}}},
	}
}

func (w *workloads) create(ctx context.Context) error {
	selector, template := podsOf("web", "web:1", nil)
	if _, err := w.AppsV1().Deployments("default").Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec:       appsv1.DeploymentSpec{Replicas: new(int32(webPods)), Selector: selector, Template: template},
	}, metav1.CreateOptions{}); err != nil {
		return err
	}
	selector, template = podsOf("db", "db:1", nil)
	if _, err := w.AppsV1().StatefulSets("default").Create(ctx, &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: "db"},
		Spec:       appsv1.StatefulSetSpec{Replicas: new(int32(dbPods)), ServiceName: "db", Selector: selector, Template: template},
	}, metav1.CreateOptions{}); err != nil {
		return err
	}
	selector, template = podsOf("agent", "agent:1", nil)
	if _, err := w.AppsV1().DaemonSets("default").Create(ctx, &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: "agent"},
		Spec:       appsv1.DaemonSetSpec{Selector: selector, Template: template},
	}, metav1.CreateOptions{}); err != nil {
		return err
	}
	_, template = podsOf("job", "job:1", map[string]string{"simulated.coppice.dev/exit-after": "100ms"})
	template.Spec.RestartPolicy = corev1.RestartPolicyNever
	_, err := w.BatchV1().Jobs("default").Create(ctx, &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: "job"},
		Spec:       batchv1.JobSpec{Completions: new(int32(jobPods)), Parallelism: new(int32(jobShare)), Template: template},
	}, metav1.CreateOptions{})
	return err
}

// change gives each workload another image, and scales two.
func (w *workloads) change(ctx context.Context) error {
	patch := func(image, more string) []byte {
		return []byte(`{"spec":{` + more + `"template":{"spec":{"containers":[{"name":"c","image":"` + image + `"}]}}}}`)
	}
	kind := types.StrategicMergePatchType
	if _, err := w.AppsV1().Deployments("default").Patch(ctx, "web", kind, patch("web:2", `"replicas":4,`), metav1.PatchOptions{}); err != nil {
		return err
	}
	if _, err := w.AppsV1().StatefulSets("default").Patch(ctx, "db", kind, patch("db:2", `"replicas":3,`), metav1.PatchOptions{}); err != nil {
		return err
	}
	_, err := w.AppsV1().DaemonSets("default").Patch(ctx, "agent", kind, patch("agent:2", ""), metav1.PatchOptions{})
	return err
}

func (w *workloads) areReady(ctx context.Context) (bool, error) {
	web, err := w.AppsV1().Deployments("default").Get(ctx, "web", metav1.GetOptions{})
	if err != nil {
		return false, err
	}
	db, err := w.AppsV1().StatefulSets("default").Get(ctx, "db", metav1.GetOptions{})
	if err != nil {
		return false, err
	}
	agent, err := w.AppsV1().DaemonSets("default").Get(ctx, "agent", metav1.GetOptions{})
	if err != nil {
		return false, err
	}
	job, err := w.BatchV1().Jobs("default").Get(ctx, "job", metav1.GetOptions{})
	if err != nil {
		return false, err
	}
	s, d, a := web.Status, db.Status, agent.Status
	return s.ObservedGeneration == web.Generation && s.UpdatedReplicas == *web.Spec.Replicas && s.AvailableReplicas == s.UpdatedReplicas && s.Replicas == s.UpdatedReplicas &&
		d.ObservedGeneration == db.Generation && d.UpdatedReplicas == *db.Spec.Replicas && d.AvailableReplicas == d.UpdatedReplicas && d.CurrentRevision == d.UpdateRevision &&
		a.ObservedGeneration == agent.Generation && a.DesiredNumberScheduled == 2 && a.UpdatedNumberScheduled == 2 && a.NumberAvailable == 2 &&
		job.Status.Succeeded == jobPods && job.Status.CompletionTime != nil, nil
}

// remove deletes each workload, by another policy each.
func (w *workloads) remove(ctx context.Context) error {
	by := func(p metav1.DeletionPropagation) metav1.DeleteOptions {
		return metav1.DeleteOptions{PropagationPolicy: &p}
	}
	if err := w.AppsV1().Deployments("default").Delete(ctx, "web", by(metav1.DeletePropagationForeground)); err != nil {
		return err
	}
	if err := w.AppsV1().StatefulSets("default").Delete(ctx, "db", by(metav1.DeletePropagationBackground)); err != nil {
		return err
	}
	if err := w.AppsV1().DaemonSets("default").Delete(ctx, "agent", by(metav1.DeletePropagationOrphan)); err != nil {
		return err
	}
	return w.BatchV1().Jobs("default").Delete(ctx, "job", by(metav1.DeletePropagationForeground))
}

// areGone reports whether nothing is left but the pods of the DaemonSet, without an owner.
func (w *workloads) areGone(ctx context.Context) (bool, error) {
	pods, err := w.CoreV1().Pods("default").List(ctx, metav1.ListOptions{})
	if err != nil {
		return false, err
	}
	sets, err := w.AppsV1().ReplicaSets("default").List(ctx, metav1.ListOptions{})
	if err != nil {
		return false, err
	}
	revisions, err := w.AppsV1().ControllerRevisions("default").List(ctx, metav1.ListOptions{})
	if err != nil {
		return false, err
	}
	isOrphan := func(p corev1.Pod) bool { return p.Labels["app"] == "agent" && len(p.OwnerReferences) == 0 }
	isOfDaemonSet := func(r appsv1.ControllerRevision) bool {
		return r.Labels["app"] == "agent" && len(r.OwnerReferences) == 0
	}
	return len(pods.Items) == 2 && !slices.ContainsFunc(pods.Items, func(p corev1.Pod) bool { return !isOrphan(p) }) &&
		!slices.ContainsFunc(revisions.Items, func(r appsv1.ControllerRevision) bool { return !isOfDaemonSet(r) }) && len(sets.Items) == 0, nil
}

// sum fails the test if the ReplicaSets of the Deployment are to have more pods than it and its surge of one pod allow.
// There may be more pods for a moment: those that a ReplicaSet has not deleted yet.
func (w *workloads) sum(events <-chan watch.Event) {
	wanted := map[string]int32{}
	for event := range events {
		set, ok := event.Object.(*appsv1.ReplicaSet)
		if !ok {
			continue
		}
		wanted[set.Name] = *set.Spec.Replicas
		if event.Type == watch.Deleted {
			delete(wanted, set.Name)
		}
		var all int32
		for _, n := range wanted {
			all += n
		}
		if all > webPods+2 {
			w.t.Errorf("the ReplicaSets are to have these numbers of pods: %v, %d at most are allowed", wanted, webPods+2)
		}
	}
}

// count fails the test if a workload has more pods at any time than its kind allows.
func (w *workloads) count(events <-chan watch.Event) {
	pods, ofJob := map[types.UID]*corev1.Pod{}, map[types.UID]bool{}
	for event := range events {
		pod, ok := event.Object.(*corev1.Pod)
		if !ok {
			continue
		}
		pods[pod.UID] = pod
		if event.Type == watch.Deleted || pod.DeletionTimestamp != nil {
			delete(pods, pod.UID)
		}
		if pod.Labels["app"] == "job" {
			ofJob[pod.UID] = true
		}
		number := map[string]int{}
		for each := range maps.Values(pods) {
			number[group(each)]++
		}
		number["all of the job"] = len(ofJob)
		for of, n := range number {
			most := webPods + 1 // of a ReplicaSet
			switch {
			case strings.HasPrefix(of, "agent"):
				most = 1
			case of == "db":
				most = dbPods + 1
			case of == "job":
				most = jobShare
			case of == "all of the job":
				most = jobPods
			}
			if n > most && of != "" {
				w.t.Errorf("after %s of %s there are %d pods of %s, at most %d are allowed", event.Type, pod.Name, n, of, most)
			}
		}
	}
}

// group returns whose pods a pod is counted with; empty: it is not.
func group(pod *corev1.Pod) string {
	switch app := pod.Labels["app"]; {
	case app == "agent": // for one node, even if it has not been placed yet
		return "agent " + pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchFields[0].Values[0]
	case app == "web":
		return pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey]
	case app == "job" && pod.Status.Phase == corev1.PodSucceeded:
		return ""
	default:
		return app
	}
}

// hadNoAnomaly returns an error if the controllers have met no faults, or have acted on an old state.
func (w *workloads) hadNoAnomaly(ctx context.Context) error {
	text, err := w.CoreV1().RESTClient().Get().AbsPath(faults.Path).DoRaw(ctx)
	if err != nil {
		return err
	}
	var state faults.State
	if err := json.Unmarshal(text, &state); err != nil {
		return err
	}
	// How many writes are refused is a matter of luck; the watches of each controller are late.
	if !slices.ContainsFunc(state.Happened, func(h faults.Happened) bool { return h.User == bootstrappolicy.WorkloadControllers }) {
		return fmt.Errorf("the controllers of workloads have met no faults: %v", state.Happened)
	}
	for _, a := range state.Anomalies {
		w.t.Errorf("%s %s: %s %s %s: %s", a.User, a.Client, a.Kind, a.Resource, a.Name, a.Text)
	}
	return nil
}
