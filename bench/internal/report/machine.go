package report

import (
	"fmt"
	"os"
	"runtime"
	"strings"

	"github.com/prometheus/procfs"

	"github.com/coppice-dev/coppice/bench/internal/stopwatch"
)

// Machine describes the hardware and the versions that the figures depend on.
type Machine struct {
	Date       string `json:"date"` // UTC
	Processor  string `json:"processor"`
	Cores      int    `json:"cores"`
	MemoryGiB  int    `json:"memoryGiB"`
	Kernel     string `json:"kernel"`
	Go         string `json:"go"`
	Coppice    string `json:"coppice"`
	Kubernetes string `json:"kubernetes"` // empty when no section needs it
	Quick      bool   `json:"quick,omitempty"`
}

// ThisMachine describes the machine that the benchmark runs on.
func ThisMachine() (Machine, error) {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return Machine{}, err
	}
	memory, err := fs.Meminfo()
	if err != nil {
		return Machine{}, fmt.Errorf("read the size of memory: %w", err)
	}
	if memory.MemTotalBytes == nil {
		return Machine{}, fmt.Errorf("/proc/meminfo has no MemTotal")
	}
	processors, err := fs.CPUInfo()
	if err != nil {
		return Machine{}, fmt.Errorf("read the name of the processor: %w", err)
	}
	kernel, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return Machine{}, fmt.Errorf("read the version of the kernel: %w", err)
	}
	m := Machine{
		Date: stopwatch.Now().UTC().Format("2006-01-02"), Cores: runtime.NumCPU(), MemoryGiB: int(*memory.MemTotalBytes >> 30),
		Kernel: strings.TrimSpace(string(kernel)), Go: runtime.Version(),
	}
	if len(processors) > 0 {
		m.Processor = processors[0].ModelName
	}
	return m, nil
}
