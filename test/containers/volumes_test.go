package containers

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

// TestFollowingVolumes: a volume has a token of the pod's service account that the API server
// accepts, and follows a config map, a secret and the pod's labels while the pod runs. Variables
// do not, but tell where the API server is.
func TestFollowingVolumes(t *testing.T) {
	t.Parallel()
	p, _ := sharedPlane(t)
	s := newStory(t, p)
	p.run(t, "create", "serviceaccount", "robot")
	p.run(t, "create", "configmap", "followed", "--from-literal=a=first")
	p.run(t, "create", "secret", "generic", "followed", "--from-literal=key=first")
	at := corev1.EnvVar{Name: "A", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{
		LocalObjectReference: corev1.LocalObjectReference{Name: "followed"}, Key: "a",
	}}}
	followed := corev1.LocalObjectReference{Name: "followed"}
	s.create(corev1.PodSpec{
		ServiceAccountName: "robot", HostNetwork: true,
		Volumes: []corev1.Volume{{Name: "all", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
			{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token", ExpirationSeconds: new(int64(600))}},
			{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: followed}},
			{Secret: &corev1.SecretProjection{LocalObjectReference: followed}},
			{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{
				{Path: "labels", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels"}},
			}}},
		}}}}},
		Containers: []corev1.Container{{
			Name: "main", Env: []corev1.EnvVar{at}, VolumeMounts: []corev1.VolumeMount{{Name: "all", MountPath: "/all"}},
			Command: shell(`trap 'exit 0' TERM; cat /all/token > /out/token; echo $KUBERNETES_SERVICE_HOST:$KUBERNETES_SERVICE_PORT > /out/api
				while :; do echo $(cat /all/a) $(cat /all/key) $(cat /all/labels) $A > /out/new; mv /out/new /out/seen; touch /out/up; sleep 0.2; done`),
		}},
	})
	pod := p.eventuallyReady(t, s.name)
	s.mark("up")
	s.authenticates(pod, s.read("token"))
	server := p.run(t, "config", "view", "-o", "jsonpath={.clusters[0].cluster.server}")
	if got, want := strings.TrimSpace(s.read("api")), strings.TrimPrefix(server, "https://"); got != want {
		t.Errorf("its variables name the server %s, want %s", got, want)
	}
	if got := s.read("seen"); got != "first first first\n" {
		t.Errorf("it sees %q", got)
	}
	p.run(t, "label", "pod", s.name, "role=other")
	p.run(t, "patch", "configmap", "followed", "-p", `{"data":{"a":"second"}}`)
	p.run(t, "patch", "secret", "followed", "-p", `{"stringData":{"key":"third"}}`)
	eventually.Agrees(t, func() string {
		if got, want := s.read("seen"), "second third role=\"other\" first\n"; got != want {
			return fmt.Sprintf("it sees %q, want %q", got, want)
		}
		return ""
	})
	p.run(t, "delete", "pod", s.name)
	p.run(t, "delete", "configmap/followed", "secret/followed", "serviceaccount/robot")
}

// authenticates checks that the API server takes a token for one of the service account of a pod,
// and of that very pod.
func (s *story) authenticates(pod *corev1.Pod, token string) {
	t := s.t
	t.Helper()
	text, err := json.Marshal(map[string]any{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": map[string]any{"token": token}})
	if err != nil {
		t.Fatal(err)
	}
	out, err := s.p.try(string(text), "create", "-f", "-", "-o", "json")
	if err != nil {
		t.Fatal(err)
	}
	var review authenticationv1.TokenReview
	if err := json.Unmarshal([]byte(out), &review); err != nil {
		t.Fatal(err)
	}
	who := review.Status.User
	if !review.Status.Authenticated || who.Username != "system:serviceaccount:default:robot" {
		t.Errorf("the token is for %+v", review.Status)
	}
	if uids := who.Extra["authentication.kubernetes.io/pod-uid"]; strings.Join(uids, " ") != string(pod.UID) {
		t.Errorf("the token is for pod %q, want %s", uids, pod.UID)
	}
}
