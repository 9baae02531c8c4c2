package nodeconfig

import (
	"bufio"
	"bytes"
	"cmp"
	"fmt"
	"net"
	"os"
	"runtime"
	"strings"

	"github.com/prometheus/procfs"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/coppice-dev/coppice/internal/node/agent"
)

// thisMachine returns a node that describes this machine.
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
		corev1.ResourceCPU:  *resource.NewQuantity(int64(runtime.NumCPU()), resource.DecimalSI),
		corev1.ResourcePods: resource.MustParse(mostPods),
	}
	if bytes := memory(); bytes > 0 {
		capacity[corev1.ResourceMemory] = *resource.NewQuantity(bytes, resource.BinarySI)
	}
	if bytes := disk(o.Dir); bytes > 0 {
		capacity[corev1.ResourceEphemeralStorage] = *resource.NewQuantity(bytes, resource.BinarySI)
	}
	return agent.Node{
		Name: name, Capacity: capacity, Addresses: []string{cmp.Or(o.Address, address())},
		Info: corev1.NodeSystemInfo{
			OperatingSystem: runtime.GOOS, Architecture: runtime.GOARCH, OSImage: osImage(read("/etc/os-release")), KubeletVersion: o.Version,
			KernelVersion: line(read("/proc/sys/kernel/osrelease")), MachineID: line(read("/etc/machine-id")), BootID: line(read("/proc/sys/kernel/random/boot_id")),
		},
	}, nil
}

// memory returns the size of the machine's memory in bytes, or 0 if it is unknown.
func memory() int64 {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return 0
	}
	info, err := fs.Meminfo()
	if err != nil || info.MemTotalBytes == nil {
		return 0
	}
	return int64(*info.MemTotalBytes)
}

// read returns the contents of a file, or nil, because not every machine has it.
func read(path string) []byte {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	return data
}

func line(data []byte) string { return strings.TrimSpace(string(data)) }

// osImage returns the name of the operating system in the contents of /etc/os-release.
func osImage(release []byte) string {
	for lines := bufio.NewScanner(bytes.NewReader(release)); lines.Scan(); {
		if name, ok := strings.CutPrefix(lines.Text(), "PRETTY_NAME="); ok {
			return strings.Trim(name, `"'`)
		}
	}
	return runtime.GOOS
}

// address returns the first address at which other machines may reach this one, preferably IPv4. The default is
// loopback.
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
