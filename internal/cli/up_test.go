package cli

import (
	"bytes"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coppice-dev/coppice/internal/apiserver/faults"
	"github.com/coppice-dev/coppice/internal/system"
)

// defaults returns the default flags of coppice up.
func defaults(t *testing.T) upFlags {
	t.Helper()
	f := upFlags{
		Options: system.Options{
			Port: defaultPort, Etcd: system.Etcd{Prefix: "/registry"}, QuotaBytes: 8 << 30, NodeGrace: 50 * time.Second,
		},
		address: upAddress{bind: "127.0.0.1"}, logLevel: "info",
		controllers: upControllers{collector: true, names: []string{controllerGC, controllerNamespace, controllerProtection}},
	}
	flags := newUp(Streams{}).Flags()
	for name, want := range map[string]string{
		"data-dir": f.DataDir, "write-kubeconfig": f.WriteKubeconfig, "secure-port": "6443", "bind-address": f.address.bind,
		"ephemeral": "false", "node-monitor-grace-period": "50s", "enable-garbage-collector": "true", "log-level": f.logLevel,
	} {
		if got := flags.Lookup(name).DefValue; got != want {
			t.Errorf("--%s is %q by default, want %q", name, got, want)
		}
	}
	return f
}

func TestUpWithoutFlags(t *testing.T) {
	home := atHome(t)
	o, err := defaults(t).options(t.Context(), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if want := filepath.Join(home, ".local", "share", "coppice"); o.DataDir != want {
		t.Errorf("data in %s, want %s", o.DataDir, want)
	}
	if o.Port != 6443 || o.BindAddress.String() != "127.0.0.1" || o.Ephemeral || o.GarbageCollector != system.InProcess || o.AuditPath != "" || o.WriteKubeconfig != "" || o.Version == "" || o.Log == nil {
		t.Errorf("%+v", o)
	}
}

func TestUpFlags(t *testing.T) {
	atHome(t)
	f := defaults(t)
	f.DataDir, f.WriteKubeconfig, f.Port, f.address.bind, f.controllers.collector = "/data", "/config", 0, "::", false
	o, err := f.options(t.Context(), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if o.DataDir != "/data" || o.WriteKubeconfig != "/config" || o.Port != 0 || o.BindAddress.String() != "::" || o.GarbageCollector != system.Disabled {
		t.Errorf("%+v", o)
	}
	unplugged := defaults(t)
	unplugged.DisableAdmissionPlugins = []string{"OwnerReferencesPermissionEnforcement"}
	if o, err := unplugged.options(t.Context(), io.Discard); err != nil || len(o.DisableAdmissionPlugins) != 1 {
		t.Errorf("%+v %v", o, err)
	}
	unplugged.DisableAdmissionPlugins = []string{"NamespaceLifecycle"}
	if _, err := unplugged.options(t.Context(), io.Discard); err == nil {
		t.Error("what cannot be disabled is")
	}
	for path, want := range map[string]string{"/log": "/log", "-": "-", "": system.NoAuditLog} {
		audited := defaults(t)
		audited.AuditPath, audited.audit.isSet = path, true
		if o, err := audited.options(t.Context(), io.Discard); err != nil || o.AuditPath != want {
			t.Errorf("--audit-log-path=%q: %q %v, want %q", path, o.AuditPath, err, want)
		}
	}
	for file, ok := range map[string]bool{"/collector": true, "/config": false} {
		both := defaults(t)
		both.WriteKubeconfig, both.WriteCollectorKubeconfig = "/config", file
		if o, err := both.options(t.Context(), io.Discard); (err == nil) != ok || ok && o.WriteCollectorKubeconfig != file {
			t.Errorf("%s: %+v %v", file, o, err)
		}
	}
	for address, want := range map[string]string{"": "<nil>", "192.0.2.7": "192.0.2.7", "fd00::7": "fd00::7", "127.0.0.1": "refused", "0.0.0.0": "refused", "169.254.1.1": "refused", "host": "refused"} {
		advertised := defaults(t)
		advertised.address.advertise = address
		o, err := advertised.options(t.Context(), io.Discard)
		if refused := want == "refused"; refused != (err != nil) || !refused && o.AdvertiseAddress.String() != want {
			t.Errorf("--advertise-address=%q: %v %v, want %s", address, o.AdvertiseAddress, err, want)
		}
	}
	ephemeral := defaults(t)
	ephemeral.Ephemeral = true
	if o, err := ephemeral.options(t.Context(), io.Discard); err != nil || !o.Ephemeral || o.DataDir != "" {
		t.Errorf("%+v %v", o, err)
	}
}

// No two users share a kubeconfig, and no two agents a node.
func TestNodeKubeconfigs(t *testing.T) {
	atHome(t)
	for name, test := range map[string]struct {
		files map[string]string
		nodes int
		says  string
	}{
		"two nodes":             {files: map[string]string{"a": "/a", "b": "/b"}},
		"two nodes, one file":   {files: map[string]string{"a": "/a", "b": "/a"}, says: "--write-node-kubeconfig b=/a: that file is for node a already"},
		"the administrator's":   {files: map[string]string{"a": "/config"}, says: "for --write-kubeconfig already"},
		"the collector's":       {files: map[string]string{"a": "/collector"}, says: "for --write-collector-kubeconfig already"},
		"no file":               {files: map[string]string{"a": ""}, says: "names no file"},
		"no name":               {files: map[string]string{"": "/a"}, says: "cannot be the name of a node"},
		"a name that is none":   {files: map[string]string{"A b": "/a"}, says: "cannot be the name of a node"},
		"a node of the process": {files: map[string]string{"node-2": "/a"}, nodes: 2, says: "--nodes 2 has a node of that name in this process"},
		"one beyond":            {files: map[string]string{"node-3": "/a"}, nodes: 2},
	} {
		f := defaults(t)
		f.WriteKubeconfig, f.WriteCollectorKubeconfig, f.WriteNodeKubeconfigs, f.Nodes.Nodes = "/config", "/collector", test.files, test.nodes
		o, err := f.options(t.Context(), io.Discard)
		switch {
		case test.says == "" && (err != nil || len(o.WriteNodeKubeconfigs) != len(test.files)):
			t.Errorf("%s: %v %v", name, o.WriteNodeKubeconfigs, err)
		case test.says != "" && (err == nil || !strings.Contains(err.Error(), test.says)):
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestDataDirVariable(t *testing.T) {
	atHome(t)
	t.Setenv(dataDirVariable, "/from/the/variable")
	if o, err := defaults(t).options(t.Context(), io.Discard); err != nil || o.DataDir != "/from/the/variable" {
		t.Errorf("%s %v", o.DataDir, err)
	}
	f := defaults(t)
	f.DataDir = "/from/the/flag"
	if o, err := f.options(t.Context(), io.Discard); err != nil || o.DataDir != "/from/the/flag" {
		t.Errorf("%s %v", o.DataDir, err)
	}
}

// The flag counts more than the variable. A control plane that keeps its data has no faults unless somebody allows them.
func TestFaultsOfUp(t *testing.T) {
	atHome(t)
	const one, two = "watch-lag delay=1s", "refused-write rate=1%; lost-answer rate=1%"
	for _, test := range []struct {
		variable, flag     string
		ephemeral, allowed bool
		faults             int
		says               string
	}{
		{ephemeral: true},
		{variable: one, ephemeral: true, faults: 1},
		{variable: one, flag: two, ephemeral: true, faults: 2},
		{variable: one, flag: "seed=0", ephemeral: true},
		{variable: "wild", ephemeral: true, says: `$COPPICE_FAULTS: "wild" is neither a level`},
		{flag: "wild", ephemeral: true, says: `--faults: "wild" is neither a level`},
		{flag: one, says: "--faults is for control planes with --ephemeral"},
		{variable: one, says: "$COPPICE_FAULTS is for control planes with --ephemeral"},
		{flag: one, allowed: true, faults: 1},
		{allowed: true},
	} {
		t.Setenv(faults.Variable, test.variable)
		f := defaults(t)
		f.Ephemeral, f.AllowFaults, f.faults.plan = test.ephemeral, test.allowed, test.flag
		o, err := f.options(t.Context(), io.Discard)
		switch {
		case test.says == "" && (err != nil || len(o.Faults.Faults) != test.faults):
			t.Errorf("%+v: %v %v", test, o.Faults, err)
		case test.says != "" && (err == nil || !strings.Contains(err.Error(), test.says)):
			t.Errorf("%+v: %v", test, err)
		}
	}
}

func TestLogLevels(t *testing.T) {
	atHome(t)
	for level, logged := range map[string]bool{"debug": true, "info": true, "warn": false, "error": false} {
		f := defaults(t)
		f.logLevel = level
		var log bytes.Buffer
		o, err := f.options(t.Context(), &log)
		if err != nil {
			t.Fatal(err)
		}
		o.Log.Info("collected", "took", time.Second)
		if got := log.Len() > 0; got != logged {
			t.Errorf("at level %s: %q", level, log.String())
		}
	}
}

func TestServiceRange(t *testing.T) {
	atHome(t)
	for given, want := range map[string]string{
		"": "10.96.0.0/12", "10.0.0.0/24": "10.0.0.0/24", "fd00::/108": "fd00::/108",
		"10.0.0.0": "", "10.0.0.7/24": "", "10.0.0.0/30": "", "all": "",
	} {
		f := defaults(t)
		f.address.services = given
		o, err := f.options(t.Context(), io.Discard)
		if (err == nil) != (want != "") || err == nil && o.Services.Addresses.String() != want {
			t.Errorf("--service-cluster-ip-range %s: %s, %v", given, o.Services.Addresses, err)
		}
	}
}

// Real containers require a single node and the socket of the runtime.
func TestNodeRuntime(t *testing.T) {
	atHome(t)
	for name, test := range map[string]struct {
		runtime, socket string
		nodes           int
		says            string
	}{
		"real":         {"cri", "unix:///run/containerd/containerd.sock", 1, ""},
		"real, two":    {"cri", "unix:///run/containerd/containerd.sock", 2, "--nodes 2: with --node-runtime=cri there is one node"},
		"real, where":  {"cri", "", 1, "--node-runtime=cri needs --cri-socket"},
		"not real":     {"simulated", "unix:///run/containerd/containerd.sock", 1, "--cri-socket can be used with --node-runtime=cri only"},
		"what is that": {"vm", "", 1, "--node-runtime vm: choose simulated or cri"},
	} {
		f := defaults(t)
		f.Nodes.Runtime, f.Nodes.Socket, f.Nodes.Nodes = test.runtime, test.socket, test.nodes
		o, err := f.options(t.Context(), io.Discard)
		switch {
		case test.says == "" && (err != nil || o.Nodes.Socket != test.socket):
			t.Errorf("%s: %+v %v", name, o.Nodes, err)
		case test.says != "" && (err == nil || !strings.Contains(err.Error(), test.says)):
			t.Errorf("%s: %v", name, err)
		}
	}
}
