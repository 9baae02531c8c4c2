package nodeconfig

import (
	"log/slog"
	"net"
	"slices"
	"strings"
	"testing"
)

func TestContradictingOptionsAreRefused(t *testing.T) {
	const socket = "unix:///run/containerd/containerd.sock"
	for name, test := range map[string]struct {
		o    Options
		says string
	}{
		"default":              {Options{Nodes: 1}, ""},
		"simulated":            {Options{Runtime: Simulated, Nodes: MostNodes}, ""},
		"too many":             {Options{Nodes: MostNodes + 1}, "is not between 0 and 5000"},
		"containers":           {Options{Runtime: CRI, Socket: socket, Nodes: 1}, ""},
		"no node":              {Options{Runtime: CRI, Nodes: 0}, ""},
		"containers of two":    {Options{Runtime: CRI, Socket: socket, Nodes: 2}, "--nodes 2: with --flag=cri there is one node, this machine"},
		"no socket":            {Options{Runtime: CRI, Nodes: 1}, "--flag=cri needs --cri-socket"},
		"a socket for nothing": {Options{Runtime: Simulated, Socket: socket, Nodes: 1}, "--cri-socket can be used with --flag=cri only"},
		"unknown runtime":      {Options{Runtime: "docker", Nodes: 1}, "--flag docker: choose simulated or cri"},
	} {
		err := test.o.Validate("--flag")
		if (err == nil) != (test.says == "") || err != nil && !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v, want %q", name, err, test.says)
		}
	}
}

func TestOpenSimulated(t *testing.T) {
	m, err := Open(t.Context(), Options{Nodes: 2, Version: "v1"})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, n := range m.Nodes {
		names = append(names, n.Name+" "+n.Addresses[0])
	}
	if want := []string{"node-1 10.64.0.1", "node-2 10.64.0.2"}; !slices.Equal(names, want) {
		t.Errorf("%v, want %v", names, want)
	}
	if err := m.Clear(t.Context()); err != nil {
		t.Error(err)
	}
	m, err = Open(t.Context(), Options{Nodes: 1, Name: "worker", Address: "192.0.2.1"})
	if err != nil || len(m.Nodes) != 1 || m.Nodes[0].Name != "worker" || m.Nodes[0].Addresses[0] != "192.0.2.1" {
		t.Errorf("%+v %v", m, err)
	}
}

// TestOpenWithoutRuntime: the error for a socket that no runtime serves names the socket, in one
// line.
func TestOpenWithoutRuntime(t *testing.T) {
	socket := "unix://" + t.TempDir() + "/none.sock"
	_, err := Open(t.Context(), Options{Runtime: CRI, Socket: socket, Nodes: 1, Name: "here", Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
	if err == nil || !strings.Contains(err.Error(), "no container runtime serves "+socket) || strings.Contains(err.Error(), "\n") {
		t.Errorf("%v", err)
	}
}

func TestThisMachine(t *testing.T) {
	n, err := thisMachine(Options{Name: "here", Version: "v1"})
	if err != nil || n.Name != "here" || n.Capacity.Cpu().IsZero() || n.Capacity.Memory().IsZero() || n.Capacity.StorageEphemeral().IsZero() || net.ParseIP(n.Addresses[0]) == nil || n.Info.KubeletVersion != "v1" {
		t.Errorf("%+v %v", n, err)
	}
	if _, err := thisMachine(Options{Name: "not a name"}); err == nil {
		t.Error("an invalid name is accepted")
	}
}

func TestHostIsDescribedByItsFilesAndAddresses(t *testing.T) {
	if got := osImage([]byte("ID=x\nPRETTY_NAME=\"X 12 (y)\"\n")); got != "X 12 (y)" {
		t.Errorf("operating system %q", got)
	}
	network := func(text string) net.Addr {
		ip, n, err := net.ParseCIDR(text)
		if err != nil {
			t.Fatal(err)
		}
		return &net.IPNet{IP: ip, Mask: n.Mask}
	}
	for want, addresses := range map[string][]net.Addr{
		"127.0.0.1": {network("127.0.0.1/8"), network("fe80::1/64")},
		"192.0.2.2": {network("127.0.0.1/8"), network("fd00::2/64"), network("192.0.2.2/24"), network("192.0.2.3/24")},
		"fd00::2":   {network("fd00::2/64")},
	} {
		if got := chooseAddress(addresses); got != want {
			t.Errorf("%v: %s, want %s", addresses, got, want)
		}
	}
}
