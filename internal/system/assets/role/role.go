// Package role defines the names under which test frameworks start this binary: kube-apiserver, etcd and
// kubectl.
//
// It imports little, and answers kube-apiserver --help during initialization, before slower packages: test
// frameworks request it before each start to find the supported flags.
package role

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Role is the name of a binary that this one replaces.
type Role string

// The roles.
const (
	APIServer Role = "kube-apiserver"
	Etcd      Role = "etcd"
	Kubectl   Role = "kubectl"
	// None is the role of a binary with its own name.
	None Role = ""
)

// All returns the roles besides None.
func All() []Role { return []Role{APIServer, Etcd, Kubectl} }

// Of returns the role of a process from the path with which it was started.
func Of(path string) Role {
	name := Role(strings.TrimSuffix(strings.ToLower(filepath.Base(path)), ".exe"))
	if slices.Contains(All(), name) {
		return name
	}
	return None
}

func init() { //nolint:gochecknoinits // only what comes before main comes before the other packages
	if Of(os.Args[0]) == APIServer && asksForHelp(os.Args[1:]) {
		_, err := io.WriteString(os.Stdout, Help())
		if err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
}

// asksForHelp reports whether a flag requests help.
func asksForHelp(args []string) bool {
	return slices.ContainsFunc(args, func(arg string) bool { return arg == "--help" || arg == "-h" || arg == "--help=true" })
}

// Help returns the help of kube-apiserver. Each flag begins a line.
func Help() string {
	var b strings.Builder
	b.WriteString(`The API server of coppice, as a replacement of kube-apiserver in test frameworks. As with
kube-apiserver, no controllers run by default, so owned objects and the contents of namespaces
stay. --controllers, or else $COPPICE_CONTROLLERS, or else the file coppice-controllers beside
this program, names the controllers to run: COPPICE_CONTROLLERS=gc,namespace deletes owned objects
and the contents of namespaces, like coppice assets --collect. $COPPICE_NODES adds simulated nodes.
$COPPICE_KUBERNETES, or else the file coppice-kubernetes, names an older minor of Kubernetes to serve.
The server ends with its parent process, unless $COPPICE_OUTLIVE_PARENT is set.

Usage:
  kube-apiserver [flags]

Flags:
`)
	idle := map[string][]Flag{}
	var reasons []string
	for _, f := range Flags() {
		if f.Idle == "" {
			writeFlag(&b, f, f.Usage)
			continue
		}
		if idle[f.Idle] == nil {
			reasons = append(reasons, f.Idle)
		}
		idle[f.Idle] = append(idle[f.Idle], f)
	}
	b.WriteString("      --help   print this\n      --version   print the version\n")
	b.WriteString("\nFlags of kube-apiserver that have no effect here, and give one line on stderr:\n")
	for _, reason := range reasons {
		for _, f := range idle[reason] {
			writeFlag(&b, f, reason)
		}
	}
	return b.String()
}

func writeFlag(b *strings.Builder, f Flag, text string) {
	b.WriteString("      --" + f.Name)
	if f.Kind != Bool {
		b.WriteString(" " + f.Kind.String())
	}
	b.WriteString("   " + text + "\n")
}
