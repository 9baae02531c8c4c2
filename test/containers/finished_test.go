package containers

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

// TestFinishedPod: a pod that has finished frees its sandbox, and with it its address; its logs can be read until it is
// deleted.
func TestFinishedPod(t *testing.T) {
	p, d := sharedPlane(t)
	s := newStory(t, p)
	s.create(corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "main", Command: shell("echo done")}}})
	pod := p.eventuallySucceeded(t, s.name)
	eventually.Agrees(t, func() string { return d.readySandboxes(t, pod) })
	pod = p.pod(t, s.name)
	if pod.Status.PodIP == "" {
		t.Error("its status has no address any more")
	}
	if got := p.run(t, "logs", s.name); got != "done\n" {
		t.Errorf("its log is %q", got)
	}
	p.run(t, "delete", "pod", s.name)
	d.nothingIsLeft(t, idsOf(t, pod))
}

// readySandboxes returns an error text if a pod has a sandbox that is ready.
func (d *daemon) readySandboxes(t *testing.T, pod *corev1.Pod) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	ready := &runtimeapi.PodSandboxStateValue{State: runtimeapi.PodSandboxState_SANDBOX_READY}
	all, err := d.runtime.ListPodSandbox(ctx, &runtimeapi.PodSandboxFilter{State: ready})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		if s.GetMetadata().GetUid() == string(pod.UID) {
			return fmt.Sprintf("sandbox %s is ready", s.GetId())
		}
	}
	return ""
}

// TestPullIsGivenUp: a pod whose image is being pulled goes before the registry has answered. Another image does not
// wait for the answer either.
func TestPullIsGivenUp(t *testing.T) {
	p, _ := sharedPlane(t)
	s := newStory(t, p)
	other := &story{t, p, s.name + "-other", s.out}
	asked := make(chan struct{}, 100)
	registry := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		<-r.Context().Done() // the client has given up
	}))
	t.Cleanup(registry.Close)
	_, at, err := net.SplitHostPort(registry.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []*story{s, other} {
		s.create(corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "127.0.0.1:" + at + "/" + s.name + ":1", Command: shell(idle)}}})
		select {
		case <-asked:
		case <-t.Context().Done():
			t.Fatal("the registry was not asked")
		}
	}
	p.run(t, "delete", "pod", s.name) // returns within patience, or fails
	p.run(t, "set", "image", "pod/"+other.name, "main="+image)
	p.eventuallyReady(t, other.name)
	p.run(t, "delete", "pod", other.name)
}

// TestHostsFile: containers find the names of their pod, and its aliases, in their hosts file.
func TestHostsFile(t *testing.T) {
	p, d := sharedPlane(t)
	s := newStory(t, p)
	s.create(corev1.PodSpec{
		Hostname: "own", Subdomain: "sub", HostAliases: []corev1.HostAlias{{IP: "192.0.2.9", Hostnames: []string{"alias.test", "other.test"}}},
		Containers: []corev1.Container{{Name: "main", Command: shell("cat /etc/hosts > /out/seen; touch /out/done; " + idle)}},
	})
	pod := p.eventuallyReady(t, s.name)
	s.mark("done")
	want := []string{"\n# Entries added by HostAliases.\n192.0.2.9\talias.test\tother.test\n"}
	if d.network {
		want = append(want, "\n"+pod.Status.PodIP+"\town.sub.default.svc.cluster.local\town\n")
	}
	for _, line := range want {
		if got := s.read("seen"); !strings.Contains(got, line) {
			t.Errorf("the hosts file is\n%s\nwithout%s", got, line)
		}
	}
	p.run(t, "delete", "pod", s.name)
}

// TestDNSConfigAddsToTheNodes: a pod adds to the DNS configuration of the node, whatever its policy is.
func TestDNSConfigAddsToTheNodes(t *testing.T) {
	p, _ := sharedPlane(t)
	host, err := os.ReadFile("/etc/resolv.conf")
	if err != nil {
		t.Skip(err)
	}
	for _, policy := range []corev1.DNSPolicy{corev1.DNSClusterFirst, corev1.DNSDefault, corev1.DNSNone} {
		t.Run(string(policy), func(t *testing.T) {
			s := newStory(t, p)
			s.create(corev1.PodSpec{
				DNSPolicy: policy,
				DNSConfig: &corev1.PodDNSConfig{
					Nameservers: []string{"192.0.2.53"}, Searches: []string{"own.test"}, Options: []corev1.PodDNSConfigOption{{Name: "ndots", Value: new("3")}},
				},
				Containers: []corev1.Container{{Name: "main", Command: shell("cat /etc/resolv.conf > /out/seen; touch /out/done; " + idle)}},
			})
			s.mark("done")
			got := s.read("seen")
			for _, word := range []string{"own.test", "ndots:3"} {
				if !strings.Contains(got, word) {
					t.Errorf("the configuration is\n%s\nwithout %s", got, word)
				}
			}
			line := regexp.MustCompile(`(?m)^nameserver\s+\S+`).FindString(string(host))
			if line != "" && strings.Contains(got, line) == (policy == corev1.DNSNone) {
				t.Errorf("the configuration is\n%s\nand the node has %s", got, line)
			}
			p.run(t, "delete", "pod", s.name)
		})
	}
}

// TestFullHostname: the hostname of a pod is its full name if it asks for that; with a full name of more than 64
// characters it does not start, and an Event says why.
func TestFullHostname(t *testing.T) {
	p, d := sharedPlane(t)
	if !d.network {
		t.Skip("pods have the host's name")
	}
	s := newStory(t, p)
	spec := corev1.PodSpec{
		Hostname: "own", Subdomain: "sub", SetHostnameAsFQDN: new(true),
		Containers: []corev1.Container{{Name: "main", Command: shell("busybox hostname > /out/seen; cat /etc/hosts > /out/hosts; touch /out/done; " + idle)}},
	}
	s.create(spec)
	pod := p.eventuallyReady(t, s.name)
	s.mark("done")
	if got, want := s.read("seen"), "own.sub.default.svc.cluster.local\n"; got != want {
		t.Errorf("the hostname is %q, want %q", got, want)
	}
	if want := "\n" + pod.Status.PodIP + "\town.sub.default.svc.cluster.local\town\n"; !strings.Contains(s.read("hosts"), want) {
		t.Errorf("the hosts file is\n%s\nwithout%s", s.read("hosts"), want)
	}
	long := &story{t, p, s.name + "-long", s.out}
	spec.Subdomain = strings.Repeat("s", 63)
	spec.Volumes, spec.Containers[0].VolumeMounts = nil, nil
	long.create(spec)
	eventually.Agrees(t, func() string {
		events := p.run(t, "get", "events", "-o", "jsonpath={range .items[*]}{.reason}: {.message}{'\\n'}{end}",
			"--field-selector=involvedObject.name="+long.name)
		if !strings.Contains(events, "FailedCreatePodSandBox: Failed to create pod sandbox: failed to construct FQDN") {
			return "the Events are " + events
		}
		return ""
	})
	if got := p.pod(t, long.name).Status.Phase; got != corev1.PodPending {
		t.Errorf("the pod with the long name is %s", got)
	}
	p.run(t, "delete", "pod", s.name, long.name)
}

// TestLimitsOfTheNode: the downward API reports the node's allocatable memory and storage as the limits of a container
// without limits, which may request of them.
func TestLimitsOfTheNode(t *testing.T) {
	p, _ := sharedPlane(t)
	s := newStory(t, p)
	limit := &corev1.ResourceFieldSelector{ContainerName: "main", Resource: "limits.memory"}
	disk := &corev1.ResourceFieldSelector{ContainerName: "main", Resource: "limits.ephemeral-storage"}
	s.create(corev1.PodSpec{
		Volumes: []corev1.Volume{{Name: "self", VolumeSource: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{
			Items: []corev1.DownwardAPIVolumeFile{{Path: "memory", ResourceFieldRef: limit}},
		}}}},
		Containers: []corev1.Container{{
			Name: "main", Env: []corev1.EnvVar{
				{Name: "MEMORY", ValueFrom: &corev1.EnvVarSource{ResourceFieldRef: limit}}, {Name: "DISK", ValueFrom: &corev1.EnvVarSource{ResourceFieldRef: disk}},
			},
			Resources:    corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceEphemeralStorage: resource.MustParse("1Mi")}},
			VolumeMounts: []corev1.VolumeMount{{Name: "self", MountPath: "/self"}},
			Command:      shell("echo $(cat /self/memory) $MEMORY $DISK > /out/seen; touch /out/done; " + idle),
		}},
	})
	s.mark("done")
	var amounts []string
	for text := range strings.FieldsSeq(p.run(t, "get", "nodes", "-o", "jsonpath={.items[0].status.allocatable.memory} {.items[0].status.allocatable.ephemeral-storage}")) {
		amount, err := resource.ParseQuantity(text)
		if err != nil {
			t.Fatal(err)
		}
		amounts = append(amounts, fmt.Sprint(amount.Value()))
	}
	if len(amounts) != 2 {
		t.Fatalf("the node can allocate memory and storage of %q", amounts)
	}
	if got, want := s.read("seen"), fmt.Sprintf("%s %[1]s %s\n", amounts[0], amounts[1]); got != want {
		t.Errorf("it is told %q, want %q", got, want)
	}
	p.run(t, "delete", "pod", s.name)
}
