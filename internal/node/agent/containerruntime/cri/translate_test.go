package cri

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/clock"

	"github.com/coppice-dev/coppice/internal/node/agent/lifecycle"
)

func aPod() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop", UID: "u-1", Labels: map[string]string{"app": "web"}},
		Spec:       corev1.PodSpec{NodeName: "here", Containers: []corev1.Container{{Name: "c", Image: "image:1"}}},
		Status:     corev1.PodStatus{PodIP: "10.0.0.7"},
	}
}

func TestReferencesToVariablesAreExpanded(t *testing.T) {
	values := map[string]string{"A": "1", "B": "2"}
	for text, want := range map[string]string{
		"":            "",
		"$(A)-$(B)":   "1-2",
		"$(C)":        "$(C)",
		"$$(A)":       "$(A)",
		"$$$(A)":      "$1",
		"$A":          "$A",
		"$(A":         "$(A",
		"100$":        "100$",
		"a)$(A)":      "a)1",
		"$(A)$(A)":    "11",
		"$($(A))":     "$($(A))",
		"price: $$5 ": "price: $5 ",
	} {
		if got := expand(text, values); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestEnvironmentIsInTheOrderOfTheSpec(t *testing.T) {
	missing := apierrors.NewNotFound(corev1.Resource("configmaps"), "gone")
	m := &references{
		configMaps: map[string]found[corev1.ConfigMap]{
			"settings": {object: &corev1.ConfigMap{Data: map[string]string{"b": "2", "a": "1"}}},
			"gone":     {err: missing},
		},
		secrets: map[string]found[corev1.Secret]{"keys": {object: &corev1.Secret{Data: map[string][]byte{"k": []byte("s3")}}}},
	}
	ref := func(name string) corev1.LocalObjectReference { return corev1.LocalObjectReference{Name: name} }
	field := func(path string) *corev1.EnvVarSource {
		return &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}
	}
	for name, test := range map[string]struct {
		services []variable
		from     []corev1.EnvFromSource
		env      []corev1.EnvVar
		want     []variable
		wrong    string
	}{
		"services give way, and can be referred to": {
			services: []variable{{"B", "of a service"}, {"C_HOST", "10.0.0.1"}},
			env:      []corev1.EnvVar{{Name: "A", Value: "$(C_HOST)"}, {Name: "B", Value: "b"}},
			want:     []variable{{"B", "b"}, {"C_HOST", "10.0.0.1"}, {"A", "10.0.0.1"}},
		},
		"literals, in their order": {
			env:  []corev1.EnvVar{{Name: "B", Value: "b"}, {Name: "A", Value: "$(B)$(C)"}, {Name: "C", Value: "c"}},
			want: []variable{{"B", "b"}, {"A", "b$(C)"}, {"C", "c"}},
		},
		"the pod's own": {
			env: []corev1.EnvVar{
				{Name: "NAME", ValueFrom: field("metadata.name")},
				{Name: "APP", ValueFrom: field("metadata.labels['app']")},
				{Name: "IP", ValueFrom: field("status.podIP")},
				{Name: "NODE", ValueFrom: field("spec.nodeName")},
			},
			want: []variable{{"NAME", "web"}, {"APP", "web"}, {"IP", "10.0.0.7"}, {"NODE", "here"}},
		},
		"whole objects come first, and give way": {
			from: []corev1.EnvFromSource{{Prefix: "P_", ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: ref("settings")}}},
			env:  []corev1.EnvVar{{Name: "P_a", Value: "mine"}},
			want: []variable{{"P_a", "mine"}, {"P_b", "2"}},
		},
		"a key of a secret": {
			env:  []corev1.EnvVar{{Name: "K", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: ref("keys"), Key: "k"}}}},
			want: []variable{{"K", "s3"}},
		},
		"a key that is missing": {
			env:   []corev1.EnvVar{{Name: "K", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: ref("keys"), Key: "x"}}}},
			wrong: "couldn't find key x in Secret shop/keys",
		},
		"an object that is missing": {
			from:  []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: ref("gone")}}},
			wrong: "not found",
		},
		"what is missing may be": {
			from: []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: ref("gone"), Optional: new(true)}}},
			env: []corev1.EnvVar{
				{Name: "K", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: ref("settings"), Key: "x", Optional: new(true)}}},
			},
			want: []variable{},
		},
	} {
		pod := aPod()
		c := &pod.Spec.Containers[0]
		c.EnvFrom, c.Env = test.from, test.env
		got, err := environment(pod, c, test.services, m)
		if test.wrong != "" {
			if err == nil || !strings.Contains(err.Error(), test.wrong) {
				t.Errorf("%s: %v, want %s", name, err, test.wrong)
			}
			continue
		}
		if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(variable{})); err != nil || diff != "" {
			t.Errorf("%s: %v\n%s", name, err, diff)
		}
	}
}

func TestContainerConfig(t *testing.T) {
	pod := aPod()
	pod.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsUser: new(int64(7)), RunAsGroup: new(int64(8)), FSGroup: new(int64(9))}
	c := &pod.Spec.Containers[0]
	c.Command, c.Args, c.WorkingDir = []string{"serve", "$(PORT)"}, []string{"$$x"}, "/srv"
	c.Resources.Limits = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("500m"), corev1.ResourceMemory: resource.MustParse("64Mi")}
	c.SecurityContext = &corev1.SecurityContext{
		RunAsUser: new(int64(42)), ReadOnlyRootFilesystem: new(true), AllowPrivilegeEscalation: new(false),
		Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}
	got := containerConfig(blueprint{
		pod: pod, container: c, start: lifecycle.Start{Container: "c", Attempt: 3, Backoff: 20 * time.Second},
		image: &runtimeapi.Image{Id: "sha256:1"}, variables: []variable{{"PORT", "80"}}, own: map[string]string{labelAgent: "me"},
	})
	type short struct {
		Command, Args      []string
		Dir, Log, Image    string
		Attempt            uint32
		User, Group        int64
		Groups             []int64
		Shares, Quota, Mem int64
		ReadOnly, NoNew    bool
		Masked             bool
		Drop               []string
	}
	s, r := got.Linux.SecurityContext, got.Linux.Resources
	want := short{
		[]string{"serve", "80"}, []string{"$x"}, "/srv", "c/3.log", "sha256:1", 3, 42, 8, []int64{9}, 512, 50_000, 64 << 20, true, true, true, []string{"ALL"},
	}
	if diff := cmp.Diff(want, short{
		got.Command, got.Args, got.WorkingDir, got.LogPath, got.Image.Image, got.Metadata.Attempt, s.RunAsUser.GetValue(), s.RunAsGroup.GetValue(), s.SupplementalGroups,
		r.CpuShares, r.CpuQuota, r.MemoryLimitInBytes, s.ReadonlyRootfs, s.NoNewPrivs, len(s.MaskedPaths) > 0, s.Capabilities.GetDropCapabilities(),
	}); diff != "" {
		t.Error(diff)
	}
	if got.Labels[labelPodUID] != "u-1" || got.Labels[labelContainerName] != "c" || got.Labels[labelAgent] != "me" {
		t.Errorf("labels %v", got.Labels)
	}
	if back := backoffOf(got.Annotations); back != 20*time.Second {
		t.Errorf("back-off %s is not the one that was recorded", back)
	}
}

// TestEphemeralContainerSeesTheProcessesOfItsTarget checks that an ephemeral container sees the processes of its target, unless it sees all processes of the
// pod anyway.
func TestEphemeralContainerSeesTheProcessesOfItsTarget(t *testing.T) {
	pod := aPod()
	pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{
		{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "look", Image: "i"}, TargetContainerName: "c"},
		{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "alone", Image: "i"}},
	}
	if look, alone, c := targetOf(pod, "look"), targetOf(pod, "alone"), targetOf(pod, "c"); look != "c" || alone+c != "" {
		t.Errorf("targets %q, %q, %q", look, alone, c)
	}
	b := blueprint{pod: pod, container: find(pod, "look"), image: &runtimeapi.Image{}, target: "id-of-c"}
	if n := containerConfig(b).Linux.SecurityContext.NamespaceOptions; n.Pid != runtimeapi.NamespaceMode_TARGET || n.TargetId != "id-of-c" {
		t.Errorf("with a target: %v", n)
	}
	b.pod.Spec.ShareProcessNamespace = new(true)
	if n := containerConfig(b).Linux.SecurityContext.NamespaceOptions; n.Pid != runtimeapi.NamespaceMode_POD || n.TargetId != "" {
		t.Errorf("in a pod that shares its processes: %v", n)
	}
}

// TestStrictGroupsReachTheRuntime checks that a process gets the groups of the image unless its pod forbids it.
func TestStrictGroupsReachTheRuntime(t *testing.T) {
	merge, strict := corev1.SupplementalGroupsPolicyMerge, corev1.SupplementalGroupsPolicyStrict
	for name, test := range map[string]struct {
		of   *corev1.PodSecurityContext
		want runtimeapi.SupplementalGroupsPolicy
	}{
		"no context": {nil, runtimeapi.SupplementalGroupsPolicy_Merge},
		"no policy":  {&corev1.PodSecurityContext{}, runtimeapi.SupplementalGroupsPolicy_Merge},
		"merge":      {&corev1.PodSecurityContext{SupplementalGroupsPolicy: &merge}, runtimeapi.SupplementalGroupsPolicy_Merge},
		"strict":     {&corev1.PodSecurityContext{SupplementalGroupsPolicy: &strict}, runtimeapi.SupplementalGroupsPolicy_Strict},
	} {
		pod := aPod()
		pod.Spec.SecurityContext = test.of
		container := containerSecurity(blueprint{pod: pod, container: &pod.Spec.Containers[0]}).SupplementalGroupsPolicy
		if sandbox := sandboxSecurity(pod).SupplementalGroupsPolicy; container != test.want || sandbox != test.want {
			t.Errorf("%s: container %s, sandbox %s, want %s", name, container, sandbox, test.want)
		}
	}
}

// TestFeaturesAreThoseOfTheRuntime checks that a node promises what its runtime reports, and that a runtime too old to
// report anything promises nothing: the node rejects pods that need it.
func TestFeaturesAreThoseOfTheRuntime(t *testing.T) {
	for name, test := range map[string]struct {
		reported *runtimeapi.RuntimeFeatures
		want     *corev1.NodeFeatures
	}{
		"old":      {nil, nil},
		"without":  {&runtimeapi.RuntimeFeatures{}, &corev1.NodeFeatures{SupplementalGroupsPolicy: new(false)}},
		"with all": {&runtimeapi.RuntimeFeatures{SupplementalGroupsPolicy: true}, &corev1.NodeFeatures{SupplementalGroupsPolicy: new(true)}},
	} {
		if diff := cmp.Diff(test.want, featuresOf(&runtimeapi.StatusResponse{Features: test.reported})); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestPrivilegedContainerHasNoMaskedPaths(t *testing.T) {
	pod := aPod()
	pod.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{Privileged: new(true)}
	s := containerSecurity(blueprint{pod: pod, container: &pod.Spec.Containers[0]})
	if !s.Privileged || len(s.MaskedPaths) > 0 || !sandboxSecurity(pod).Privileged {
		t.Errorf("%+v", s)
	}
}

// TestSeccompProfilesAreInTheirDirectory checks that the runtime gets the whole path of a profile of the administrator, that no
// name leads out of their directory, and that a sandbox has the runtime's profile.
func TestSeccompProfilesAreInTheirDirectory(t *testing.T) {
	local := func(name *string) *corev1.SeccompProfile {
		return &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeLocalhost, LocalhostProfile: name}
	}
	for name, test := range map[string]struct {
		pod, container *corev1.SeccompProfile
		kind           runtimeapi.SecurityProfile_ProfileType
		path, wrong    string
	}{
		"none":             {kind: runtimeapi.SecurityProfile_Unconfined},
		"the runtime's":    {pod: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}, kind: runtimeapi.SecurityProfile_RuntimeDefault},
		"the pod's":        {pod: local(new("p.json")), kind: runtimeapi.SecurityProfile_Localhost, path: "/node/seccomp/p.json"},
		"the container's":  {pod: local(new("p.json")), container: local(new("a/c.json")), kind: runtimeapi.SecurityProfile_Localhost, path: "/node/seccomp/a/c.json"},
		"without a name":   {pod: local(nil), wrong: "must be set"},
		"an empty name":    {container: local(new("")), wrong: "must be set"},
		"absolute":         {pod: local(new("/node/pods/u-1/volumes/data/p.json")), wrong: "is not a path below"},
		"leads up":         {container: local(new("../pods/u-1/volumes/data/p.json")), wrong: "is not a path below"},
		"leads up, inside": {pod: local(new("a/../p.json")), kind: runtimeapi.SecurityProfile_Localhost, path: "/node/seccomp/p.json"},
	} {
		pod := aPod()
		pod.Spec.SecurityContext = &corev1.PodSecurityContext{SeccompProfile: test.pod}
		got, err := seccomp(&corev1.SecurityContext{SeccompProfile: test.container}, pod.Spec.SecurityContext, "/node/seccomp")
		if got.GetProfileType() != test.kind || got.GetLocalhostRef() != test.path || (err == nil) != (test.wrong == "") || err != nil && !strings.Contains(err.Error(), test.wrong) {
			t.Errorf("%s: %v, %v; want %s %s, %q", name, got, err, test.kind, test.path, test.wrong)
		}
		if got := sandboxSecurity(pod).Seccomp; got == nil || got.ProfileType != runtimeapi.SecurityProfile_RuntimeDefault {
			t.Errorf("%s: the sandbox has %s", name, got)
		}
	}
}

// TestUserOfASandbox checks that a sandbox has no group without a user.
func TestUserOfASandbox(t *testing.T) {
	pod := aPod()
	pod.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsGroup: new(int64(7))}
	if s := sandboxSecurity(pod); s.RunAsUser != nil || s.RunAsGroup != nil {
		t.Errorf("a group only: %v:%v", s.RunAsUser, s.RunAsGroup)
	}
	pod.Spec.SecurityContext.RunAsUser = new(int64(5))
	if s := sandboxSecurity(pod); s.RunAsUser.GetValue() != 5 || s.RunAsGroup.GetValue() != 7 {
		t.Errorf("both: %v:%v", s.RunAsUser, s.RunAsGroup)
	}
}

// TestUserOfAContainer checks that a container of an image without a user runs as root, explicitly: a runtime refuses a group
// without a user.
func TestUserOfAContainer(t *testing.T) {
	for name, test := range map[string]struct {
		own   *corev1.SecurityContext
		image *runtimeapi.Image
		want  *runtimeapi.Int64Value
		named string
	}{
		"its own":            {&corev1.SecurityContext{RunAsUser: new(int64(5))}, &runtimeapi.Image{Username: "app"}, &runtimeapi.Int64Value{Value: 5}, ""},
		"the image's":        {nil, &runtimeapi.Image{Uid: &runtimeapi.Int64Value{Value: 6}}, &runtimeapi.Int64Value{Value: 6}, ""},
		"the image's, named": {&corev1.SecurityContext{RunAsGroup: new(int64(7))}, &runtimeapi.Image{Username: "app"}, nil, "app"},
		"none":               {nil, &runtimeapi.Image{}, &runtimeapi.Int64Value{Value: 0}, ""},
		"a group only":       {&corev1.SecurityContext{RunAsGroup: new(int64(7))}, &runtimeapi.Image{}, &runtimeapi.Int64Value{Value: 0}, ""},
	} {
		pod := aPod()
		pod.Spec.Containers[0].SecurityContext = test.own
		s := containerSecurity(blueprint{pod: pod, container: &pod.Spec.Containers[0], image: test.image})
		if (s.RunAsUser == nil) != (test.want == nil) || s.RunAsUser.GetValue() != test.want.GetValue() || s.RunAsUsername != test.named {
			t.Errorf("%s: user %v, %q; want %v, %q", name, s.RunAsUser, s.RunAsUsername, test.want, test.named)
		}
	}
}

func TestNonRoot(t *testing.T) {
	root, other := int64(0), int64(5)
	for name, test := range map[string]struct {
		u     user
		image *runtimeapi.Image
		may   bool
	}{
		"nobody minds":             {user{}, &runtimeapi.Image{}, true},
		"root by its own word":     {user{id: &root, nonRoot: true}, nil, false},
		"another by its own word":  {user{id: &other, nonRoot: true}, nil, true},
		"the image says nothing":   {user{nonRoot: true}, &runtimeapi.Image{}, false},
		"the image says root":      {user{nonRoot: true}, &runtimeapi.Image{Uid: &runtimeapi.Int64Value{Value: 0}}, false},
		"the image says another":   {user{nonRoot: true}, &runtimeapi.Image{Uid: &runtimeapi.Int64Value{Value: 5}}, true},
		"the image says some name": {user{nonRoot: true}, &runtimeapi.Image{Username: "app"}, false},
	} {
		if reason := test.u.mayRun(test.image); (reason == "") != test.may {
			t.Errorf("%s: %q", name, reason)
		}
	}
}

func TestSandboxConfig(t *testing.T) {
	pod := aPod()
	pod.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80, HostPort: 8080, Protocol: corev1.ProtocolTCP}, {ContainerPort: 81}}
	got, err := sandboxConfig(pod, 2, map[string]string{labelAgent: "me"}, cgroupPath, "/logs")
	if err != nil {
		t.Fatal(err)
	}
	n := got.Linux.SecurityContext.NamespaceOptions
	if got.Metadata.Attempt != 2 || got.Hostname != "web" || got.LogDirectory != "/logs" || got.Labels[labelAgent] != "me" ||
		len(got.PortMappings) != 1 || got.PortMappings[0].HostPort != 8080 || n.Network != runtimeapi.NamespaceMode_POD || n.Pid != runtimeapi.NamespaceMode_CONTAINER {
		t.Errorf("%+v", got)
	}
	pod.Spec.HostNetwork, pod.Spec.ShareProcessNamespace = true, new(true)
	if got, err = sandboxConfig(pod, 0, nil, cgroupPath, ""); err != nil {
		t.Fatal(err)
	}
	n = got.Linux.SecurityContext.NamespaceOptions
	if got.Hostname != "" || len(got.PortMappings) != 0 || n.Network != runtimeapi.NamespaceMode_NODE || n.Pid != runtimeapi.NamespaceMode_POD {
		t.Errorf("%+v", got)
	}
}

func TestLongNameOfAPodIsCutForItsHostname(t *testing.T) {
	pod := aPod()
	pod.Name = strings.Repeat("a", 62) + "-tail"
	if got, want := hostname(pod), strings.Repeat("a", 62); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	pod.Spec.Hostname = "own"
	if got := hostname(pod); got != "own" {
		t.Errorf("%q, want own", got)
	}
}

func TestFullHostnameIsAtMostSixtyFourCharacters(t *testing.T) {
	for name, test := range map[string]struct {
		spec corev1.PodSpec
		want string // "" for an error
	}{
		"plain":         {corev1.PodSpec{SetHostnameAsFQDN: new(true)}, "web"},
		"named":         {corev1.PodSpec{Subdomain: "sub", Hostname: "own"}, "own"},
		"full":          {corev1.PodSpec{Subdomain: "sub", Hostname: "own", SetHostnameAsFQDN: new(true)}, "own.sub.shop.svc.cluster.local"},
		"not full":      {corev1.PodSpec{Subdomain: "sub", SetHostnameAsFQDN: new(false)}, "web"},
		"64 characters": {corev1.PodSpec{Subdomain: strings.Repeat("s", 37), SetHostnameAsFQDN: new(true)}, "web." + strings.Repeat("s", 37) + ".shop.svc.cluster.local"},
		"too long":      {corev1.PodSpec{Subdomain: strings.Repeat("s", 38), SetHostnameAsFQDN: new(true)}, ""},
	} {
		pod := aPod()
		pod.Spec = test.spec
		got, err := nodename(pod)
		if got != test.want || (err != nil) != (test.want == "") {
			t.Errorf("%s: %q, %v; want %q", name, got, err, test.want)
		}
	}
	pod := aPod()
	pod.Spec.Subdomain, pod.Spec.SetHostnameAsFQDN, pod.Spec.HostNetwork = strings.Repeat("s", 63), new(true), true
	if _, err := sandboxConfig(pod, 0, nil, cgroupPath, ""); err != nil {
		t.Errorf("in the host's network: %v", err)
	}
}

func TestObservedInstance(t *testing.T) {
	now := time.Unix(1000, 0)
	meta := &runtimeapi.ContainerMetadata{Name: "c", Attempt: 2}
	for name, test := range map[string]struct {
		status *runtimeapi.ContainerStatus
		want   lifecycle.Instance
		is     bool
	}{
		"created": {status: &runtimeapi.ContainerStatus{State: runtimeapi.ContainerState_CONTAINER_CREATED}},
		"running": {
			&runtimeapi.ContainerStatus{State: runtimeapi.ContainerState_CONTAINER_RUNNING, StartedAt: 5e9, CreatedAt: 4e9, ImageRef: "sha256:1"},
			lifecycle.Instance{Started: time.Unix(5, 0), ImageID: "sha256:1"},
			true,
		},
		"exited": {
			&runtimeapi.ContainerStatus{State: runtimeapi.ContainerState_CONTAINER_EXITED, StartedAt: 5e9, FinishedAt: 6e9, ExitCode: 3, Reason: "Error"},
			lifecycle.Instance{Started: time.Unix(5, 0), Finished: time.Unix(6, 0), ExitCode: 3, Reason: "Error"},
			true,
		},
		"failed to start": {
			&runtimeapi.ContainerStatus{State: runtimeapi.ContainerState_CONTAINER_EXITED, CreatedAt: 4e9, FinishedAt: 6e9, ExitCode: 128, Reason: "StartError"},
			lifecycle.Instance{Started: time.Unix(4, 0), Finished: time.Unix(6, 0), ExitCode: 128, Reason: "StartError"},
			true,
		},
		"exited, nobody knows when": {
			&runtimeapi.ContainerStatus{State: runtimeapi.ContainerState_CONTAINER_EXITED, StartedAt: 5e9},
			lifecycle.Instance{Started: time.Unix(5, 0), Finished: now, ExitCode: lost},
			true,
		},
		"with a user": {
			&runtimeapi.ContainerStatus{StartedAt: 5e9, State: runtimeapi.ContainerState_CONTAINER_RUNNING, User: &runtimeapi.ContainerUser{Linux: &runtimeapi.LinuxContainerUser{Uid: 1, Gid: 2, SupplementalGroups: []int64{3}}}},
			lifecycle.Instance{Started: time.Unix(5, 0), User: &corev1.LinuxContainerUser{UID: 1, GID: 2, SupplementalGroups: []int64{3}}},
			true,
		},
		"unknown may be alive": {
			&runtimeapi.ContainerStatus{State: runtimeapi.ContainerState_CONTAINER_UNKNOWN, StartedAt: 5e9},
			lifecycle.Instance{Started: time.Unix(5, 0)},
			true,
		},
	} {
		test.status.Id, test.status.Metadata = "abc", meta
		test.status.Annotations = map[string]string{annotationBackoff: "10000"}
		got, is := observedInstance("containerd", test.status, now)
		if is != test.is {
			t.Errorf("%s: %t, want %t", name, is, test.is)
		}
		if !is {
			continue
		}
		test.want.ID, test.want.Container, test.want.Attempt, test.want.Backoff = "containerd://abc", "c", 2, 10*time.Second
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestObservedSandbox(t *testing.T) {
	s := &runtimeapi.PodSandboxStatus{
		Id: "s", Metadata: &runtimeapi.PodSandboxMetadata{Attempt: 1}, CreatedAt: 5e9,
		Network: &runtimeapi.PodSandboxNetworkStatus{Ip: "10.0.0.1", AdditionalIps: []*runtimeapi.PodIP{{Ip: "fd00::1"}}},
	}
	want := lifecycle.Sandbox{ID: "s", Attempt: 1, Ready: true, Created: time.Unix(5, 0), IPs: []string{"10.0.0.1", "fd00::1"}}
	if diff := cmp.Diff(want, observedSandbox(s, []string{"192.0.2.1"})); diff != "" {
		t.Error(diff)
	}
	s.Linux = &runtimeapi.LinuxPodSandboxStatus{Namespaces: &runtimeapi.Namespace{Options: &runtimeapi.NamespaceOption{Network: runtimeapi.NamespaceMode_NODE}}}
	s.State = runtimeapi.PodSandboxState_SANDBOX_NOTREADY
	want.Ready, want.IPs = false, []string{"192.0.2.1"}
	if diff := cmp.Diff(want, observedSandbox(s, []string{"192.0.2.1"})); diff != "" {
		t.Error(diff)
	}
	s = &runtimeapi.PodSandboxStatus{Id: "s", CreatedAt: 5e9, Network: &runtimeapi.PodSandboxNetworkStatus{}}
	want = lifecycle.Sandbox{ID: "s", NoAddress: true, Created: time.Unix(5, 0)}
	if diff := cmp.Diff(want, observedSandbox(s, []string{"192.0.2.1"})); diff != "" {
		t.Errorf("without an address: %s", diff)
	}
}

// TestEarlierTurnDoesNotOverwriteALaterOne checks that an earlier turn that took longer does not overwrite the result of a later one.
func TestEarlierTurnDoesNotOverwriteALaterOne(t *testing.T) {
	v := newPodCache()
	first, second := v.turn(), v.turn()
	see := func(id string) cachedPod {
		return cachedPod{observed: lifecycle.Observed{Sandbox: lifecycle.Sandbox{ID: id}}}
	}
	v.publish("u", second, see("new"))
	v.publish("u", first, see("old"))
	if got := v.observe("u").Sandbox.ID; got != "new" {
		t.Errorf("%s, want new", got)
	}
}

func TestVolumesThatCannotBeMountedAreRefused(t *testing.T) {
	for name, test := range map[string]struct {
		source corev1.VolumeSource
		wrong  string
	}{
		"emptyDir":      {source: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		"memory":        {corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}}, "medium Memory is not supported"},
		"host":          {source: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}},
		"host, socket":  {corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/dev/null", Type: new(corev1.HostPathSocket)}}, "/dev/null is not a socket file"},
		"host, device":  {source: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/dev/null", Type: new(corev1.HostPathCharDev)}}},
		"host, block":   {corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/dev/null", Type: new(corev1.HostPathBlockDev)}}, "is not a block device"},
		"host, created": {source: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: filepath.Join(t.TempDir(), "f"), Type: new(corev1.HostPathFileOrCreate)}}},
		"host, nowhere": {corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: filepath.Join(t.TempDir(), "d/f"), Type: new(corev1.HostPathFileOrCreate)}}, "is not a file"},
		"host, missing": {corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: filepath.Join(t.TempDir(), "d"), Type: new(corev1.HostPathDirectory)}}, "is not a directory"},
		"host, no file": {corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/", Type: new(corev1.HostPathFile)}}, "is not a file"},
		"claim":         {corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{}}, "persistentVolumeClaim volumes are not supported"},
		"token":         {corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "t"}}}}}, "tokens cannot be read by this node"},
		"no such map":   {corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "m"}}}, errNoObjects.Error()},
	} {
		s, err := openStore(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		pod := aPod()
		pod.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: test.source}}
		for range 2 { // also if the pod gets another sandbox
			if err := s.prepare(pod, gatherVolumes(t.Context(), nil, issuers{newTokens(nil, clock.RealClock{}), newCertificates(nil, clock.RealClock{})}, pod)); (err == nil) != (test.wrong == "") || err != nil && !strings.Contains(err.Error(), test.wrong) {
				t.Errorf("%s: %v, want %q", name, err, test.wrong)
			}
		}
	}
}
