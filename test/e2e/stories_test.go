package e2e

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

// slowly are annotations of pods that take some time to become ready and to end, so that a
// missing wait is noticed.
const slowly = `{simulated.coppice.dev/ready-after: 100ms, simulated.coppice.dev/term-takes: 200ms}`

// TestWorkloadsWithNodes runs typical actions of users with workloads on a control plane of coppice up, with
// nodes: pods are placed, run, and end with a grace period.
func TestWorkloadsWithNodes(t *testing.T) {
	t.Parallel()
	k := ourKubectl(startPlane(t, "--ephemeral", "--secure-port=0", "--nodes=3"))
	for name, story := range map[string]func(*testing.T, stage){
		"ReplicaSet background":                  func(t *testing.T, s stage) { s.replicaSet(t, "background") },
		"ReplicaSet foreground":                  func(t *testing.T, s stage) { s.replicaSet(t, "foreground") },
		"ReplicaSet orphan":                      func(t *testing.T, s stage) { s.replicaSet(t, "orphan") },
		"ReplicationController orphanDependents": func(t *testing.T, s stage) { s.replicationController(t, `,"orphanDependents":true`, true) },
		"ReplicationController not orphanDependents": func(t *testing.T, s stage) {
			s.replicationController(t, `,"orphanDependents":false`, false)
		},
		"ReplicationController by default": func(t *testing.T, s stage) { s.replicationController(t, "", true) },
		"StatefulSet orphan and adoption":  func(t *testing.T, s stage) { s.statefulSet(t) },
		"DaemonSet orphan":                 func(t *testing.T, s stage) { s.daemonSet(t) },
		"CronJob, Job and Pods":            func(t *testing.T, s stage) { s.cronJob(t) },
		"rolling update":                   func(t *testing.T, s stage) { s.rollingUpdate(t) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			story(t, stage{k, newNamespace(t, k)})
		})
	}
}

// stage is a namespace for one story.
type stage struct {
	kubectl

	namespace string
}

// pods waits until that many pods are ready, and returns their names and uids.
func (s stage) pods(t *testing.T, count int) string {
	t.Helper()
	eventually.Agrees(t, func() string {
		ready := s.get(t, s.namespace, "pods", `{.items[*].status.conditions[?(@.type=="Ready")].status}`)
		return differs(ready, strings.TrimSpace(strings.Repeat("True ", count)))
	})
	return s.get(t, s.namespace, "pods", "{.items[*].metadata.uid}")
}

// runOn fails unless the pods with these uids exist, are ready, and have no owner.
func (s stage) runOn(t *testing.T, uids string) {
	t.Helper()
	if after := s.pods(t, len(strings.Fields(uids))); after != uids {
		t.Errorf("the pods are %s, and were %s", after, uids)
	}
	if owners := s.get(t, s.namespace, "pods", "{.items[*].metadata.ownerReferences}"); owners != "" {
		t.Errorf("they have owners: %s", owners)
	}
}

func (s stage) replicaSet(t *testing.T, policy string) {
	s.apply(t, s.namespace, strings.Replace(frontend, "template:\n    metadata:\n", "template:\n    metadata:\n      annotations: "+slowly+"\n", 1))
	if annotations := s.get(t, s.namespace, "replicaset/frontend", "{.spec.template.metadata.annotations}"); annotations == "" {
		t.Fatal("the pods do not take their time")
	}
	uids := s.pods(t, 3)
	s.run(t, "delete", "-n", s.namespace, "replicaset/frontend", "--cascade="+policy)
	switch policy {
	case "orphan":
		s.runOn(t, uids)
	case "foreground": // kubectl has waited for the set, and the set for its pods
		if left := s.names(t, s.namespace, "replicasets,pods"); len(left) > 0 {
			t.Errorf("%v outlived their owner", left)
		}
	default:
		s.eventuallyNames(t, s.namespace, "replicasets,pods")
	}
}

func (s stage) replicationController(t *testing.T, option string, orphans bool) {
	s.apply(t, s.namespace, `
apiVersion: v1
kind: ReplicationController
metadata: {name: web}
spec:
  replicas: 2
  selector: {app: web}
  template:
    metadata: {labels: {app: web}, annotations: `+slowly+`}
    spec: {containers: [{name: web, image: web}]}
`)
	uids := s.pods(t, 2)
	code, answer := s.plane.curl(t, "-X", "DELETE", s.plane.server+"/api/v1/namespaces/"+s.namespace+"/replicationcontrollers/web",
		"-H", "Content-Type: application/json", "-d", `{"kind":"DeleteOptions","apiVersion":"v1"`+option+`}`)
	if code != "200" {
		t.Fatalf("DELETE answered %s: %s", code, answer)
	}
	s.eventuallyNames(t, s.namespace, "replicationcontrollers")
	if orphans {
		s.runOn(t, uids)
	} else {
		s.eventuallyNames(t, s.namespace, "pods")
	}
}

// statefulSet leaves pods with the label that names their revision; a set of the same name
// and selector adopts them and the revision, although it wants fewer of them, and replaces none.
func (s stage) statefulSet(t *testing.T) {
	s.apply(t, s.namespace, statefulWeb)
	s.run(t, "rollout", "status", "-n", s.namespace, "statefulset/web", "--timeout=2m")
	uids, revisions := s.pods(t, 3), s.names(t, s.namespace, "controllerrevisions")
	if len(revisions) != 1 {
		t.Fatal(revisions)
	}
	s.run(t, "delete", "-n", s.namespace, "statefulset/web", "--cascade=orphan")
	s.runOn(t, uids)
	revision := strings.TrimPrefix(revisions[0], "controllerrevision.apps/")
	hashes := s.get(t, s.namespace, "pods", `{.items[*].metadata.labels.controller-revision-hash}`)
	if want := strings.Join([]string{revision, revision, revision}, " "); hashes != want {
		t.Errorf("the pods are of %s, want %s", hashes, want)
	}
	s.eventuallyNames(t, s.namespace, "controllerrevisions", revisions...)

	s.apply(t, s.namespace, strings.Replace(statefulWeb, "replicas: 3", "replicas: 2", 1))
	uid := uidOf(t, s.kubectl, s.namespace, "statefulset/web")
	eventually.Agrees(t, func() string {
		return differs(s.get(t, s.namespace, "pods,controllerrevisions", "{.items[*].metadata.ownerReferences[*].uid}"), strings.Join([]string{uid, uid, uid}, " "))
	})
	if after := strings.Join(strings.Fields(s.pods(t, 2)), " "); after != strings.Join(strings.Fields(uids)[:2], " ") {
		t.Errorf("the pods are %s, and were %s", after, uids)
	}
	s.run(t, "delete", "-n", s.namespace, "statefulset/web", "--cascade=foreground")
	if left := s.names(t, s.namespace, "pods,controllerrevisions"); len(left) > 0 {
		t.Errorf("%v outlived their owner", left)
	}
}

// daemonSet leaves a pod on each node, and the revision that they are of.
func (s stage) daemonSet(t *testing.T) {
	s.apply(t, s.namespace, daemonAgent)
	uids, revisions := s.pods(t, 3), s.names(t, s.namespace, "controllerrevisions")
	if len(revisions) != 1 {
		t.Fatal(revisions)
	}
	s.run(t, "delete", "-n", s.namespace, "daemonset/agent", "--cascade=orphan")
	s.runOn(t, uids)
	s.eventuallyNames(t, s.namespace, "controllerrevisions", revisions...)
	if owners := s.get(t, s.namespace, "controllerrevisions", "{.items[*].metadata.ownerReferences}"); owners != "" {
		t.Errorf("the revision has owners: %s", owners)
	}
}

// cronJob goes, and with it the job that it owns, and with that the pod that runs and the
// pod that has ended, finalizers and all.
func (s stage) cronJob(t *testing.T) {
	s.apply(t, s.namespace, `
apiVersion: batch/v1
kind: CronJob
metadata: {name: nightly}
spec:
  schedule: "0 3 29 2 *"
  jobTemplate:
    spec:
      completions: 2
      completionMode: Indexed
      template:
        metadata: {annotations: {simulated.coppice.dev/exit-after: 100ms}}
        spec: {restartPolicy: Never, containers: [{name: main, image: main}]}
`)
	s.run(t, "create", "job", "-n", s.namespace, "now", "--from=cronjob/nightly")
	s.run(t, "wait", "-n", s.namespace, "--for=condition=Complete", "job/now", "--timeout=2m")
	if phases := s.get(t, s.namespace, "pods", "{.items[*].status.phase}"); phases != "Succeeded Succeeded" {
		t.Errorf("the pods are %s", phases)
	}
	s.run(t, "delete", "-n", s.namespace, "cronjob/nightly", "--cascade=foreground")
	if left := s.names(t, s.namespace, "cronjobs,jobs,pods"); len(left) > 0 {
		t.Errorf("%v outlived their owner", left)
	}
}

func (s stage) rollingUpdate(t *testing.T) {
	s.apply(t, s.namespace, `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 4
  selector: {matchLabels: {app: web}}
  strategy: {rollingUpdate: {maxUnavailable: 1, maxSurge: 1}}
  template:
    metadata: {labels: {app: web}, annotations: `+slowly+`}
    spec: {containers: [{name: web, image: "web:1"}]}
`)
	s.run(t, "rollout", "status", "-n", s.namespace, "deployment/web", "--timeout=2m")
	s.pods(t, 4)
	for _, c := range []struct {
		strategy string
		args     []string
		least    int
	}{
		{`{"maxUnavailable":1,"maxSurge":1}`, []string{"set", "image", "deployment/web", "web=web:2"}, 3},
		{`{"maxUnavailable":0,"maxSurge":2}`, []string{"rollout", "undo", "deployment/web"}, 4},
	} {
		s.run(t, "patch", "-n", s.namespace, "deployment/web", "--type=merge", "-p", `{"spec":{"strategy":{"rollingUpdate":`+c.strategy+`}}}`)
		least := s.watchReady(t)
		s.run(t, append(c.args, "-n", s.namespace)...)
		s.run(t, "rollout", "status", "-n", s.namespace, "deployment/web", "--timeout=2m")
		if got, changes := least(); got < c.least || changes == 0 {
			t.Errorf("with %s at least %d pods were ready, want %d (%d changes)", c.strategy, got, c.least, changes)
		}
	}
}

// mark is a pod that ends a watch.
const mark = "mark"

// watchReady watches the pods from now on. least ends that, and returns the lowest number
// of pods that were ready and not terminating at any revision, and how many events there were.
func (s stage) watchReady(t *testing.T) (least func() (lowest, changes int)) {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", s.plane.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	pods := kubernetes.NewForConfigOrDie(config).CoreV1().Pods(s.namespace)
	ctx, stop := context.WithCancel(t.Context())
	list, err := pods.List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	events, err := pods.Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	ready := map[types.UID]bool{}
	for i := range list.Items {
		if serves(&list.Items[i]) {
			ready[list.Items[i].UID] = true
		}
	}
	lowest, changes, done := len(ready), 0, make(chan struct{})
	go func() {
		defer close(done)
		for e := range events.ResultChan() {
			pod, ok := e.Object.(*corev1.Pod)
			if !ok {
				return
			}
			if pod.Name == mark {
				return
			}
			delete(ready, pod.UID)
			if e.Type != watch.Deleted && serves(pod) {
				ready[pod.UID] = true
			}
			lowest, changes = min(lowest, len(ready)), changes+1
		}
	}()
	return func() (int, int) {
		// The watch delivers everything that has happened until now before this.
		s.apply(t, s.namespace, pod(mark, ""))
		select {
		case <-done:
		case <-time.After(patience):
			t.Fatal("the watch does not come to an end")
		}
		stop()
		s.run(t, "delete", "-n", s.namespace, "pod/"+mark, "--now")
		return lowest, changes
	}
}

func serves(pod *corev1.Pod) bool {
	if pod.DeletionTimestamp != nil {
		return false
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
