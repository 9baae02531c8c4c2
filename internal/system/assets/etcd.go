package assets

import (
	"os"
	"slices"
	"strings"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

// etcdDefaults returns flags that precede the given ones. A single member elects itself; the intervals only
// determine how soon after its start.
func etcdDefaults() []string {
	return []string{"--heartbeat-interval=10", "--election-timeout=100", "--log-level=fatal"}
}

// RunEtcd runs etcd with these flags. It returns only after etcd has ended, and may exit the process.
func RunEtcd(args []string) {
	if !Outlives() {
		dir := etcdDataDir(args)
		wasEmpty := dir != "" && IsEmpty(dir)
		ended := ParentEnded()
		go func() {
			<-ended
			RemoveLeftovers(dir, wasEmpty)
			os.Exit(0)
		}()
	}
	etcdmain.Main(slices.Concat([]string{"etcd"}, etcdDefaults(), args))
}

// etcdDataDir returns the data directory in the flags of etcd, or else in the environment.
func etcdDataDir(args []string) string {
	dir := os.Getenv("ETCD_DATA_DIR")
	for i, arg := range args {
		name, value, hasValue := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		if name != "data-dir" || !strings.HasPrefix(arg, "-") {
			continue
		}
		switch {
		case hasValue:
			dir = value
		case i+1 < len(args):
			dir = args[i+1]
		}
	}
	return dir
}

// outliveVariable is the environment variable that lets a process continue after its parent has ended.
const outliveVariable = "COPPICE_OUTLIVE_PARENT"

// Outlives reports whether the process should continue after its parent has ended.
func Outlives() bool { return os.Getenv(outliveVariable) != "" }
