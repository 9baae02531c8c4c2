package census

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func (g *generator) makeDeployments() func(context.Context, int) error {
	places := g.places(g.count(deployments))
	g.deployments = make([]owner, len(places))
	return func(ctx context.Context, i int) error {
		labels := map[string]string{"app": fmt.Sprintf("d-%d", i)}
		d, err := g.client.AppsV1().Deployments(places[i]).Create(ctx, &appsv1.Deployment{
			ObjectMeta: meta(labels["app"], labels),
			Spec:       appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: template(labels)},
		}, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		g.deployments[i] = owner{places[i], *metav1.NewControllerRef(d, appsv1.SchemeGroupVersion.WithKind("Deployment"))}
		return nil
	}
}

func (g *generator) makeReplicaSets() func(context.Context, int) error {
	g.replicaSets = make([]owner, g.count(replicaSets))
	return func(ctx context.Context, i int) error {
		of := g.deployments[i%len(g.deployments)]
		labels := map[string]string{"app": of.reference.Name, "pod-template-hash": fmt.Sprint(i)}
		rs, err := g.client.AppsV1().ReplicaSets(of.namespace).Create(ctx, &appsv1.ReplicaSet{
			ObjectMeta: meta(fmt.Sprintf("rs-%d", i), labels, of.reference),
			Spec:       appsv1.ReplicaSetSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: template(labels)},
		}, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		g.replicaSets[i] = owner{of.namespace, *metav1.NewControllerRef(rs, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))}
		return nil
	}
}

func (g *generator) makeJobs() func(context.Context, int) error {
	places := g.places(g.count(jobs))
	g.jobs = make([]owner, len(places))
	return func(ctx context.Context, i int) error {
		pod := template(nil)
		pod.Spec.RestartPolicy = corev1.RestartPolicyNever
		j, err := g.client.BatchV1().Jobs(places[i]).Create(ctx, &batchv1.Job{
			ObjectMeta: meta(fmt.Sprintf("j-%d", i), nil), Spec: batchv1.JobSpec{Template: pod},
		}, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		g.jobs[i] = owner{places[i], *metav1.NewControllerRef(j, batchv1.SchemeGroupVersion.WithKind("Job"))}
		return nil
	}
}

// makePods makes the pods of the newest ReplicaSet of each Deployment and the pods of Jobs.
func (g *generator) makePods() func(context.Context, int) error {
	running := g.count(deployments) + g.count(jobs)
	chosen := make([]int, g.count(pods))
	for i := range chosen {
		chosen[i] = g.random.IntN(running)
	}
	return func(ctx context.Context, i int) error {
		var of owner
		if n := chosen[i]; n < g.count(deployments) {
			of = g.replicaSets[n]
		} else {
			of = g.jobs[n-g.count(deployments)]
		}
		labels := map[string]string{"app": of.reference.Name}
		pod := &corev1.Pod{ObjectMeta: meta(fmt.Sprintf("p-%d", i), labels, of.reference), Spec: template(labels).Spec}
		pod.Spec.NodeName = nodeName(i % g.count(nodes))
		_, err := g.client.CoreV1().Pods(of.namespace).Create(ctx, pod, metav1.CreateOptions{})
		return err
	}
}

func (g *generator) makeOthers() func(context.Context, int) error {
	places := g.places(g.count(all - nodes - namespaces - deployments - replicaSets - pods - jobs))
	return func(ctx context.Context, i int) error {
		m, core := meta(fmt.Sprintf("o-%d", i), nil), g.client.CoreV1()
		var err error
		switch i % 3 {
		case 0:
			_, err = core.ConfigMaps(places[i]).Create(ctx, &corev1.ConfigMap{ObjectMeta: m, Data: map[string]string{"key": "value"}}, metav1.CreateOptions{})
		case 1:
			_, err = core.Secrets(places[i]).Create(ctx, &corev1.Secret{ObjectMeta: m, StringData: map[string]string{"key": "value"}}, metav1.CreateOptions{})
		default:
			_, err = core.Services(places[i]).Create(ctx, &corev1.Service{
				ObjectMeta: m, Spec: corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone, Selector: map[string]string{"app": m.Name}},
			}, metav1.CreateOptions{})
		}
		return err
	}
}

func meta(name string, labels map[string]string, owners ...metav1.OwnerReference) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Labels: labels, OwnerReferences: owners}
}

// template returns a pod template of realistic size: two containers with environment, resources and
// probes.
func template(labels map[string]string) corev1.PodTemplateSpec {
	var containers []corev1.Container
	for _, name := range []string{"main", "sidecar"} {
		c := corev1.Container{
			Name: name, Image: "registry.example.com/team/" + name + ":v1.2.3",
			Ports: []corev1.ContainerPort{{Name: "http-" + name, ContainerPort: int32(8080 + len(containers))}},
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("128Mi"),
			}},
			ReadinessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/ready", Port: intstr.FromString("http-" + name)}}},
		}
		for i := range 10 {
			c.Env = append(c.Env, corev1.EnvVar{Name: fmt.Sprintf("SETTING_%d", i), Value: "a value of some length"})
		}
		containers = append(containers, c)
	}
	return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: containers}}
}
