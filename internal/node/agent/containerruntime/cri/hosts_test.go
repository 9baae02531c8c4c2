package cri

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/coppice-dev/coppice/internal/node/agent/lifecycle"
)

func TestHostsFile(t *testing.T) {
	const top = "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n" +
		"fe00::0\tip6-localnet\nfe00::0\tip6-mcastprefix\nfe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n"
	aliases := []corev1.HostAlias{{IP: "192.0.2.5", Hostnames: []string{"foo.local", "bar.local"}}, {IP: "192.0.2.6", Hostnames: []string{"baz"}}}
	const aliased = "\n# Entries added by HostAliases.\n192.0.2.5\tfoo.local\tbar.local\n192.0.2.6\tbaz\n"
	for name, test := range map[string]struct {
		spec corev1.PodSpec
		want string
	}{
		"plain":          {corev1.PodSpec{}, top + "10.0.0.7\tweb\nfd00::7\tweb\n"},
		"named":          {corev1.PodSpec{Hostname: "busy", Subdomain: "box"}, top + "10.0.0.7\tbusy.box.shop.svc.cluster.local\tbusy\nfd00::7\tbusy.box.shop.svc.cluster.local\tbusy\n"},
		"overridden":     {corev1.PodSpec{HostnameOverride: new("own.example"), Subdomain: "box"}, top + "10.0.0.7\town.example\nfd00::7\town.example\n"},
		"aliased":        {corev1.PodSpec{HostAliases: aliases}, top + "10.0.0.7\tweb\nfd00::7\tweb\n" + aliased},
		"host's":         {corev1.PodSpec{HostNetwork: true}, "# Kubernetes-managed hosts file (host network).\n127.0.0.1 here\n"},
		"host's aliased": {corev1.PodSpec{HostNetwork: true, HostAliases: aliases}, "# Kubernetes-managed hosts file (host network).\n127.0.0.1 here\n" + aliased},
	} {
		pod := aPod()
		pod.Spec = test.spec
		pod.Status.PodIPs = []corev1.PodIP{{IP: "10.0.0.7"}, {IP: "fd00::7"}}
		if diff := cmp.Diff(test.want, string(hostsFile(pod, []byte("127.0.0.1 here\n")))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestMountHosts checks that the hosts file is written in place when a container starts. A container that mounts a
// volume at its path gets none, and neither does a container whose pod has no address.
func TestMountHosts(t *testing.T) {
	r, pod := newFake().open(t, t.TempDir()), aPod()
	mustDo(t, r, pod, lifecycle.CreateSandbox{})
	c := &pod.Spec.Containers[0]
	if m, err := r.mountHosts(pod, c); m != nil || err != nil {
		t.Errorf("without an address: %v, %v", m, err)
	}
	pod.Status.PodIPs = []corev1.PodIP{{IP: "10.0.0.7"}}
	m, err := r.mountHosts(pod, c)
	if err != nil || m.ContainerPath != "/etc/hosts" || m.Readonly || filepath.Dir(m.HostPath) != r.store.pod(pod.UID) {
		t.Fatalf("%v, %v", m, err)
	}
	before, err := os.Stat(m.HostPath)
	if err != nil || before.Mode().Perm() != 0o644 {
		t.Fatalf("%v, %v", before, err)
	}
	if err := os.WriteFile(m.HostPath, []byte("written by a container"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := r.mountHosts(pod, c); err != nil {
		t.Fatal(err)
	}
	after, err := os.Stat(m.HostPath)
	if err != nil || !os.SameFile(before, after) {
		t.Errorf("another file is in its place, %v", err)
	}
	if text, err := os.ReadFile(m.HostPath); err != nil || string(text) != string(hostsFile(pod, nil)) {
		t.Errorf("%q, %v", text, err)
	}
	c.VolumeMounts = []corev1.VolumeMount{{Name: "v", MountPath: "/etc/hosts"}}
	if m, err := r.mountHosts(pod, c); m != nil || err != nil {
		t.Errorf("with a volume in its place: %v, %v", m, err)
	}
}

// TestLimitsOfTheNode checks that a container without a limit gets the limit of its pod, or the allocatable amount of
// the node, in its environment.
func TestLimitsOfTheNode(t *testing.T) {
	amounts := func(cpu, memory string) corev1.ResourceList {
		all := corev1.ResourceList{}
		for name, text := range map[corev1.ResourceName]string{corev1.ResourceCPU: cpu, corev1.ResourceMemory: memory} {
			if text != "" {
				all[name] = resource.MustParse(text)
			}
		}
		return all
	}
	for name, test := range map[string]struct {
		own, shared          corev1.ResourceList
		cpu, memory, storage string
	}{
		"none":        {nil, nil, "8", "17179869184", "0"},
		"one":         {amounts("2", ""), nil, "2", "17179869184", "0"},
		"zero":        {amounts("0", "1Gi"), nil, "8", "1073741824", "0"},
		"of the pod":  {amounts("", "1Gi"), amounts("3", "2Gi"), "3", "1073741824", "0"},
		"of both":     {amounts("1", "1Gi"), amounts("3", "2Gi"), "1", "1073741824", "0"},
		"only shared": {nil, amounts("", "2Gi"), "8", "2147483648", "0"},
	} {
		pod := aPod()
		pod.Spec.Containers[0].Resources.Limits = test.own
		if test.shared != nil {
			pod.Spec.Resources = &corev1.ResourceRequirements{Limits: test.shared}
		}
		described := withLimits(pod, amounts("8", "16Gi"))
		for resource, want := range map[string]string{"limits.cpu": test.cpu, "limits.memory": test.memory, "limits.ephemeral-storage": test.storage} {
			ref := &corev1.ResourceFieldSelector{Resource: resource}
			env, err := resourceOf(described, find(described, "c"), ref)
			if err != nil || env != want {
				t.Errorf("%s: %s is %q, %v; want %s", name, resource, env, err, want)
			}
			files, err := ofPod(described, []corev1.DownwardAPIVolumeFile{{Path: "f", ResourceFieldRef: &corev1.ResourceFieldSelector{ContainerName: "c", Resource: resource}}}, 0o644)
			if err != nil {
				t.Fatal(err)
			}
			if got := string(files[0].data); got != want {
				t.Errorf("%s: the file of %s has %q, want %s", name, resource, got, want)
			}
		}
		if len(pod.Spec.Containers[0].Resources.Limits) != len(test.own) {
			t.Errorf("%s: the pod itself has changed", name)
		}
	}
}
