package coppicetest

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
)

// Attach runs the collector and the namespace controller against an existing server, such as
// envtest's, until the test ends. It takes the options WithBinary, WithCRDs, WithCRDBytes and
// WithArguments (arguments of coppice collect), and, for servers that have a namespace controller,
// such as kind, WithoutNamespaceController. A deleted namespace stays for 5 s, for creations that the server has admitted
// before; WithArguments("--namespace-settle=0") ends that, where no webhook is slow. User and Advance need a plane of Start.
func Attach(t testing.TB, kubeconfig string, options ...Option) *Plane {
	t.Helper()
	p, err := OpenAttached(t.Context(), kubeconfig, options...)
	if err != nil {
		t.Fatalf("attach to the server of %s: %v", kubeconfig, err)
	}
	p.endWith(t)
	return p
}

// OpenAttached is Attach for callers that are not a test, such as TestMain. The caller closes the
// plane.
func OpenAttached(ctx context.Context, kubeconfig string, options ...Option) (*Plane, error) {
	var s settings
	for _, set := range options {
		set(&s)
	}
	if s.workloads || s.nodes > 0 || s.movableClock || s.audit || s.ownerChecks || s.bare {
		return nil, errors.New("the server is already there: options that are about a server are for Start")
	}
	binary, err := binaryOf(ctx, s)
	if err != nil {
		return nil, err
	}
	p := &Plane{Kubeconfig: kubeconfig}
	if err := p.open(); err != nil {
		return nil, err
	}
	controllers := "gc,namespace"
	if s.noNamespaces {
		controllers = "gc"
	}
	args := append([]string{"collect", "--kubeconfig=" + kubeconfig, "--controllers=" + controllers, "--bind-address=127.0.0.1:0"}, s.arguments...)
	p.process, err = startProcess(binary, args, func(line string) bool { return strings.HasPrefix(line, "collecting ") })
	if err != nil {
		return nil, err
	}
	if err := p.attach(ctx, s.definitions); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// diagnosticsAddress finds the address of the diagnostics in the log of coppice collect.
var diagnosticsAddress = regexp.MustCompile(`flag=--bind-address address=(http://[^\s]+)`)

// attach makes the client of the collector and applies the definitions.
func (p *Plane) attach(ctx context.Context, definitions []source) error {
	found := diagnosticsAddress.FindStringSubmatch(p.process.log.String())
	if found == nil {
		return fmt.Errorf("%s has not logged the address of its diagnostics\n%s", p.process, p.process.log.String())
	}
	var err error
	if p.status, err = newClient(access{server: found[1]}); err != nil {
		return err
	}
	if err := p.apply(ctx, definitions); err != nil {
		return err
	}
	return p.mark(ctx)
}
