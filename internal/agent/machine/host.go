package machine

import (
	"bufio"
	"bytes"
	"cmp"
	"fmt"
	"net"
	"os"
	goruntime "runtime"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/coppice-dev/coppice/internal/agent"
)

// thisMachine is the node that this machine is.
func thisMachine(o Options) (agent.Node, error) {
	name := o.Name
	if name == "" {
		host, err := os.Hostname()
		if err != nil {
			return agent.Node{}, fmt.Errorf("name the node after this machine: %w", err)
		}
		name = strings.ToLower(strings.TrimSpace(host))
	}
	if wrong := validation.IsDNS1123Subdomain(name); len(wrong) > 0 {
		return agent.Node{}, fmt.Errorf("the node cannot be named %q: %s", name, strings.Join(wrong, "; "))
	}
	capacity := corev1.ResourceList{
		corev1.ResourceCPU:  *resource.NewQuantity(int64(goruntime.NumCPU()), resource.DecimalSI),
		corev1.ResourcePods: resource.MustParse(mostPods),
	}
	if memory := memoryOf(read("/proc/meminfo")); memory > 0 {
		capacity[corev1.ResourceMemory] = *resource.NewQuantity(memory, resource.BinarySI)
	}
	return agent.Node{
		Name: name, Capacity: capacity, Addresses: []string{cmp.Or(o.Address, address())},
		Info: corev1.NodeSystemInfo{
			OperatingSystem: goruntime.GOOS, Architecture: goruntime.GOARCH, OSImage: osImage(read("/etc/os-release")), KubeletVersion: o.Version,
			KernelVersion: line(read("/proc/sys/kernel/osrelease")), MachineID: line(read("/etc/machine-id")), BootID: line(read("/proc/sys/kernel/random/boot_id")),
		},
	}, nil
}

// read reads a file that a machine may not have.
func read(path string) []byte {
	data, err := os.ReadFile(path) //nolint:gosec // the paths are those above
	if err != nil {
		return nil
	}
	return data
}

func line(data []byte) string { return strings.TrimSpace(string(data)) }

// memoryOf is how much memory there is, in bytes, by /proc/meminfo; 0 if it does not tell.
func memoryOf(meminfo []byte) int64 {
	for lines := bufio.NewScanner(bytes.NewReader(meminfo)); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) == 3 && fields[0] == "MemTotal:" && fields[2] == "kB" {
			if n, err := strconv.ParseInt(fields[1], 10, 64); err == nil {
				return n << 10
			}
		}
	}
	return 0
}

// osImage is what an operating system calls itself, by /etc/os-release.
func osImage(release []byte) string {
	for lines := bufio.NewScanner(bytes.NewReader(release)); lines.Scan(); {
		if name, ok := strings.CutPrefix(lines.Text(), "PRETTY_NAME="); ok {
			return strings.Trim(name, `"'`)
		}
	}
	return goruntime.GOOS
}

// address is the first address by which others may reach this machine, IPv4 if it has
// one; loopback if there is none.
func address() string {
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return "127.0.0.1"
	}
	return chooseAddress(addresses)
}

func chooseAddress(addresses []net.Addr) string {
	chosen := "127.0.0.1"
	for _, a := range addresses {
		network, ok := a.(*net.IPNet)
		if !ok || !network.IP.IsGlobalUnicast() {
			continue
		}
		if network.IP.To4() != nil {
			return network.IP.String()
		}
		if chosen == "127.0.0.1" {
			chosen = network.IP.String()
		}
	}
	return chosen
}
