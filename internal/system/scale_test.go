package system

import (
	"context"
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"runtime/pprof"
	"testing"
	"time"

	"github.com/prometheus/procfs"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

var (
	scalePods    = flag.Int("scale.pods", 0, "how many pods TestCostOfManyNodesAndPods has; it is skipped if 0")
	scaleNodes   = flag.Int("scale.nodes", 1000, "how many nodes TestCostOfManyNodesAndPods has")
	scaleProfile = flag.String("scale.profile", "", "file for a heap profile of TestCostOfManyNodesAndPods")
)

// replicasEach is the number of pods of each Deployment in TestCostOfManyNodesAndPods.
const replicasEach = 100

// TestCostOfManyNodesAndPods prints the cost of a control plane with many simulated nodes and pods, all in this process: the
// time from the first Deployment until all pods run, and the memory at that point.
//
//	make nodes
func TestCostOfManyNodesAndPods(t *testing.T) {
	if *scalePods == 0 {
		t.Skip("no -scale.pods")
	}
	o := options(t.TempDir())
	o.Nodes.Nodes, o.Scheduler = *scaleNodes, true
	runWith(t, o, func(ctx context.Context, client kubernetes.Interface) error {
		err := waits(ctx, "nodes", func() (bool, error) {
			nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{ResourceVersion: "0"})
			return err == nil && len(nodes.Items) == *scaleNodes, err
		})
		if err != nil {
			return err
		}
		idle := liveBytesNow()
		began := time.Now()
		if err := deployMany(ctx, client, *scalePods/replicasEach); err != nil {
			return err
		}
		took := time.Since(began)
		settle(ctx)
		heap := liveBytesNow()
		now, err := status()
		if err != nil {
			return err
		}
		t.Logf("%d pods on %d nodes: all run after %.1f s; RSS %d MB, at most %d MB; heap in use %d MB, %d bytes per pod more than with the nodes alone",
			*scalePods, *scaleNodes, took.Seconds(), now.VmRSS>>20, now.VmHWM>>20, heap>>20, (heap-idle)/uint64(*scalePods))
		debug.FreeOSMemory()
		if now, err = status(); err != nil {
			return err
		}
		t.Logf("RSS after free memory was returned to the operating system: %d MB, anonymous %d MB", now.VmRSS>>20, now.RssAnon>>20)
		return writeProfile()
	})
}

// deployMany creates Deployments and waits until all their pods are ready.
func deployMany(ctx context.Context, client kubernetes.Interface, count int) error {
	for i := range count {
		labels := map[string]string{"app": fmt.Sprintf("web-%d", i)}
		deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: labels["app"], Labels: labels}, Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(replicasEach)), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "registry.example/web:1"}}},
			},
		}}
		if _, err := client.AppsV1().Deployments("default").Create(ctx, deployment, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	return waits(ctx, "pods", func() (bool, error) {
		list, err := client.AppsV1().Deployments("default").List(ctx, metav1.ListOptions{ResourceVersion: "0"})
		if err != nil {
			return false, err
		}
		ready := int32(0)
		for i := range list.Items {
			ready += list.Items[i].Status.ReadyReplicas
		}
		return int(ready) == count*replicasEach, nil
	})
}

// waits polls, with an interval that causes little load.
func waits(ctx context.Context, what string, holds func() (bool, error)) error {
	for tick := time.NewTicker(500 * time.Millisecond); ; {
		done, err := holds()
		if err != nil || done {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", what, ctx.Err())
		}
	}
}

// settle waits until the effects of the last changes have been handled: heartbeats, statuses.
func settle(ctx context.Context) {
	select {
	case <-time.After(15 * time.Second):
	case <-ctx.Done():
	}
}

// liveBytesNow returns the size of the live heap after a garbage collection.
func liveBytesNow() uint64 {
	runtime.GC()
	samples := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(samples)
	return samples[0].Value.Uint64()
}

// status returns the memory of this process, in bytes.
func status() (procfs.ProcStatus, error) {
	self, err := procfs.Self()
	if err != nil {
		return procfs.ProcStatus{}, err
	}
	return self.NewStatus()
}

func writeProfile() error {
	if *scaleProfile == "" {
		return nil
	}
	file, err := os.Create(*scaleProfile)
	if err != nil {
		return err
	}
	defer file.Close()
	return pprof.Lookup("heap").WriteTo(file, 0)
}
