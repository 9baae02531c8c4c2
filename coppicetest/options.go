package coppicetest

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Option is an option of Start and Open.
type Option func(*settings)

type settings struct {
	binary       string
	definitions  []source
	workloads    bool
	nodes        int
	movableClock bool
	ownerChecks  bool
	audit        bool
	bare         bool
	noNamespaces bool
	faults       string
	arguments    []string
}

// source is a source of definitions: a path, or bytes.
type source struct {
	path string
	data []byte
}

// WithBinary runs this binary instead of the result of Binary.
func WithBinary(path string) Option { return func(s *settings) { s.binary = path } }

// WithCRDs applies the CustomResourceDefinitions in files and directories, and waits until they are
// served. The files of a directory end in .yaml, .yml or .json; documents of other kinds are ignored.
func WithCRDs(paths ...string) Option {
	return func(s *settings) {
		for _, path := range paths {
			s.definitions = append(s.definitions, source{path: path})
		}
	}
}

// WithCRDBytes applies CustomResourceDefinitions in YAML or JSON. A text may contain several.
func WithCRDBytes(texts ...[]byte) Option {
	return func(s *settings) {
		for _, text := range texts {
			s.definitions = append(s.definitions, source{data: text})
		}
	}
}

// WithWorkloads runs the controllers of Deployments, StatefulSets, Jobs and so on. Without it, a
// test sets the status of these itself, as with envtest. It needs nodes for pods to run: WithNodes.
func WithWorkloads() Option { return func(s *settings) { s.workloads = true } }

// WithNodes runs a scheduler and n simulated nodes, whose pods start, run and end as their
// annotations say, without containers. It includes WithWorkloads.
func WithNodes(n int) Option {
	return func(s *settings) { s.nodes, s.workloads = n, s.workloads || n > 0 }
}

// WithMovableClock lets Plane.Advance move the clock of the simulated nodes, so that a grace period
// takes no time. Settled then does not wait for pods that only need time to pass.
func WithMovableClock() Option { return func(s *settings) { s.movableClock = true } }

// WithOwnerReferenceChecks refuses owner references that are invalid or that their writer may not
// set. kube-apiserver accepts them.
func WithOwnerReferenceChecks() Option { return func(s *settings) { s.ownerChecks = true } }

// WithFaults makes clients meet the faults of a plan from the beginning, as Plane.Faults does. Without it, the
// environment variable COPPICE_FAULTS has the plan.
func WithFaults(plan string) Option { return func(s *settings) { s.faults = plan } }

// WithAudit adds all requests that change something to the output of a test that fails.
func WithAudit() Option { return func(s *settings) { s.audit = true } }

// WithoutControllers starts only an API server, for Attach or for tests that run their own
// controllers. Settled, and methods that need it, do not work then.
func WithoutControllers() Option { return func(s *settings) { s.bare = true } }

// WithoutNamespaceController leaves terminating namespaces to a controller elsewhere.
func WithoutNamespaceController() Option { return func(s *settings) { s.noNamespaces = true } }

// WithArguments passes further arguments to coppice up; or, with Attach, to coppice collect.
func WithArguments(arguments ...string) Option {
	return func(s *settings) { s.arguments = append(s.arguments, arguments...) }
}

// validate returns an error if the options contradict each other.
func (s settings) validate() error {
	if s.nodes < 0 {
		return fmt.Errorf("WithNodes(%d): there cannot be fewer than none", s.nodes)
	}
	if s.movableClock && s.nodes == 0 {
		return errors.New("WithMovableClock moves the clock of simulated nodes: use it with WithNodes")
	}
	if s.bare && (s.workloads || s.nodes > 0) {
		return errors.New("WithoutControllers contradicts WithWorkloads and WithNodes")
	}
	return nil
}

// command returns the arguments of coppice up.
func (s settings) command() []string {
	controllers := []string{"gc"}
	if !s.noNamespaces {
		controllers = append(controllers, "namespace")
	}
	if s.bare {
		controllers = nil
	}
	if s.workloads {
		controllers = append(controllers, "protection", "workloads")
	}
	if s.nodes > 0 {
		controllers = append(controllers, "scheduler")
	}
	args := []string{
		"up", "--ephemeral", "--secure-port=0", "--controllers=" + strings.Join(controllers, ","), "--nodes=" + strconv.Itoa(s.nodes),
	}
	if s.movableClock {
		args = append(args, "--movable-node-clock")
	}
	if !s.ownerChecks {
		args = append(args, "--disable-admission-plugins=OwnerReferencesPermissionEnforcement")
	}
	if s.faults != "" {
		args = append(args, "--faults="+s.faults)
	}
	if !s.audit {
		args = append(args, "--audit-log-path=")
	}
	return append(args, s.arguments...)
}
