package cri

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// hostsPath is the path of the hosts file, in containers and on the node.
const hostsPath = "/etc/hosts"

// mountHosts writes the hosts file of a pod and returns its mount. It returns nil if the pod has no address, or if the
// container mounts a volume at the path. The containers of a pod share the file, and their changes to it are lost when
// one of them starts.
func (r *Runtime) mountHosts(of *corev1.Pod, c *corev1.Container) (*runtimeapi.Mount, error) {
	if !of.Spec.HostNetwork && len(of.Status.PodIPs) == 0 {
		return nil, nil // there is nothing to mount
	}
	if slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return filepath.Clean(m.MountPath) == hostsPath }) {
		return nil, nil // there is nothing to mount
	}
	var host []byte
	if of.Spec.HostNetwork {
		var err error
		if host, err = os.ReadFile(hostsPath); err != nil {
			return nil, fmt.Errorf("read the hosts file of the node: %w", err)
		}
	}
	path := r.store.hosts(of.UID)
	defer r.files.lock(of.UID)()
	err := os.MkdirAll(filepath.Dir(path), 0o700)
	if err == nil {
		err = writeInPlace(path, hostsFile(of, host))
	}
	if err != nil {
		return nil, fmt.Errorf("write the hosts file: %w", err)
	}
	return &runtimeapi.Mount{ContainerPath: hostsPath, HostPath: path}, nil
}

// hosts returns the path of a pod's hosts file.
func (s *store) hosts(uid types.UID) string { return filepath.Join(s.pod(uid), "etc-hosts") }

// hostsFile returns the hosts file of a pod: its addresses with its names or, in the host network, the host's file;
// then the pod's hostAliases.
func hostsFile(of *corev1.Pod, host []byte) []byte {
	var out bytes.Buffer
	if of.Spec.HostNetwork {
		out.WriteString("# Kubernetes-managed hosts file (host network).\n")
		out.Write(host)
	} else {
		out.WriteString("# Kubernetes-managed hosts file.\n")
		for _, line := range []string{
			"127.0.0.1\tlocalhost", "::1\tlocalhost ip6-localhost ip6-loopback", "fe00::0\tip6-localnet",
			"fe00::0\tip6-mcastprefix", "fe00::1\tip6-allnodes", "fe00::2\tip6-allrouters",
		} {
			out.WriteString(line + "\n")
		}
		for _, ip := range of.Status.PodIPs {
			fmt.Fprintf(&out, "%s\t%s\n", ip.IP, strings.Join(namesOf(of), "\t"))
		}
	}
	if len(of.Spec.HostAliases) > 0 {
		out.WriteString("\n# Entries added by HostAliases.\n")
	}
	for _, alias := range of.Spec.HostAliases {
		fmt.Fprintf(&out, "%s\t%s\n", alias.IP, strings.Join(alias.Hostnames, "\t"))
	}
	return out.Bytes()
}

// namesOf returns the names of a pod in its own hosts file, the full one first.
func namesOf(of *corev1.Pod) []string {
	if full := fullName(of); full != "" {
		return []string{full, hostname(of)}
	}
	return []string{hostname(of)}
}
