package assets

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/coppice-dev/coppice/internal/apiserver/admissionchain"
	"github.com/coppice-dev/coppice/internal/apiserver/faults"
	"github.com/coppice-dev/coppice/internal/system"
	"github.com/coppice-dev/coppice/internal/tools/version"
)

func parsed(t *testing.T, line string, environment map[string]string) APIServer {
	t.Helper()
	a, err := ParseAPIServer(strings.Fields(line), func(name string) string { return environment[name] }, Settings{})
	if err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	return a
}

// The flags of envtest and of its ports to other languages.
func TestParseAPIServer(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{servingCertificate, servingKey} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	a := parsed(t, `--allow-privileged=true --authorization-mode=RBAC,Node --bind-address=127.0.0.1 --cert-dir=`+dir+` --client-ca-file=/ca.crt
		--disable-admission-plugins=ServiceAccount --etcd-servers=http://127.0.0.1:2379 --insecure-port=0 --secure-port=1234 --service-account-issuer=https://127.0.0.1:1234/
		--service-account-key-file=/sa.crt --service-account-signing-key-file=/sa.key --service-cluster-ip-range=10.0.0.0/24 --advertise_address=127.0.0.1`, nil)
	o := a.Options
	for what, pair := range map[string][2]any{
		"address":      {o.BindAddress.String(), "127.0.0.1"},
		"port":         {o.Port, 1234},
		"advertised":   {len(o.AdvertiseAddress), 0},
		"etcd":         {o.Etcd, system.Etcd{Servers: []string{"http://127.0.0.1:2379"}, Prefix: "/registry", Exclusive: true}},
		"directory":    {o.TempDir, dir},
		"services":     {o.Services.Addresses.String(), "10.0.0.0/24"},
		"certificate":  {o.Server.External.ServingCert, filepath.Join(dir, "apiserver.crt")},
		"exists":       {o.Server.External.ServingAbsent, false},
		"clients":      {o.Server.External.ClientCA, "/ca.crt"},
		"modes":        {o.Server.External.Modes, []string{"RBAC", "Node"}},
		"issuers":      {o.Server.External.ServiceAccounts.Issuers, []string{"https://127.0.0.1:1234/"}},
		"keys":         {o.Server.External.ServiceAccounts.VerifyingKeys, []string{"/sa.crt"}},
		"signing":      {o.Server.External.ServiceAccounts.SigningKey, "/sa.key"},
		"disabled":     {o.Server.DisabledPlugins, []string{"ServiceAccount"}},
		"owners":       {o.DisableAdmissionPlugins, []string{system.OwnerReferencesPlugin}},
		"gc":           {o.GarbageCollector, system.Elsewhere},
		"namespaces":   {o.NamespaceController, system.Elsewhere},
		"workloads":    {o.Workloads, system.Elsewhere},
		"protection":   {o.VolumeProtection, system.Elsewhere},
		"scheduler":    {o.Scheduler, false},
		"nodes":        {o.Nodes.Nodes, 0},
		"audit":        {o.AuditPath, system.NoAuditLog},
		"notes":        {len(a.Notes), 2}, // about privileged containers, and the loopback address
		"keeps":        {o.Ephemeral, true},
		"least of TLS": {o.Server.External.MinTLSVersion, "VersionTLS12"},
	} {
		if !reflect.DeepEqual(pair[0], pair[1]) {
			t.Errorf("%s: %v, want %v", what, pair[0], pair[1])
		}
	}
}

// TestAuditLogOfAPIServer: as with kube-apiserver, the audit log of root may be in a directory of another user.
func TestAuditLogOfAPIServer(t *testing.T) {
	o := parsed(t, "--audit-log-path=/workspace/audit.log --audit-policy-file=/policy.yaml", nil).Options
	if o.AuditPath != "/workspace/audit.log" || o.Server.AuditPolicy != "/policy.yaml" || !o.Server.TrustAuditDir {
		t.Errorf("%q, %q, trusts its directory: %t", o.AuditPath, o.Server.AuditPolicy, o.Server.TrustAuditDir)
	}
}

// TestControllersOfAPIServer checks that the flag overrides the environment, which overrides the list in
// the directory of the assets. Other controllers are Elsewhere, not Disabled: the server then works like
// kube-apiserver.
func TestControllersOfAPIServer(t *testing.T) {
	for name, test := range map[string]struct {
		flags, environment, listed string
		runs                       []string
	}{
		"by default":            {},
		"none in the variable":  {environment: "none", listed: "gc,namespace"},
		"none in the list":      {listed: "none"},
		"none as a flag":        {flags: "--controllers=none", environment: "gc"},
		"the list":              {listed: "gc,namespace", runs: []string{"gc", "namespace"}},
		"the variable":          {environment: "gc,namespace,protection,workloads,scheduler", listed: "namespace", runs: []string{"gc", "namespace", "protection", "workloads", "scheduler"}},
		"an empty variable":     {listed: "namespace", runs: []string{"namespace"}},
		"the flag":              {flags: "--controllers=gc", environment: "workloads", listed: "namespace", runs: []string{"gc"}},
		"a collector, disabled": {flags: "--controllers=gc --enable-garbage-collector=false"},
	} {
		a, err := ParseAPIServer(strings.Fields(test.flags), func(name string) string { return map[string]string{controllersVariable: test.environment}[name] }, Settings{Controllers: test.listed})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		o := a.Options
		var runs []string
		for _, c := range []struct {
			name  string
			place system.Placement
		}{{"gc", o.GarbageCollector}, {"namespace", o.NamespaceController}, {"protection", o.VolumeProtection}, {"workloads", o.Workloads}} {
			if c.place == system.InProcess {
				runs = append(runs, c.name)
			}
			if disabled := c.place == system.Disabled; disabled != (name == "a collector, disabled" && c.name == "gc") {
				t.Errorf("%s: %s is disabled: %t", name, c.name, disabled)
			}
		}
		if o.Scheduler {
			runs = append(runs, "scheduler")
		}
		if !slices.Equal(runs, test.runs) {
			t.Errorf("%s: %v run, want %v", name, runs, test.runs)
		}
	}
	if o := parsed(t, "", map[string]string{nodesVariable: "3"}).Options; o.Nodes.Nodes != 3 {
		t.Errorf("%d nodes by the environment, want 3", o.Nodes.Nodes)
	}
	if o := parsed(t, "--nodes=0", map[string]string{nodesVariable: "3"}).Options; o.Nodes.Nodes != 0 {
		t.Errorf("%d nodes by the flag, want 0", o.Nodes.Nodes)
	}
}

// The environment has the faults that clients of a test's server meet.
func TestFaultsOfAPIServer(t *testing.T) {
	if o := parsed(t, "", map[string]string{faults.Variable: "seed=7; lost-answer rate=1%"}).Options; o.Faults.Seed != 7 || len(o.Faults.Faults) != 1 {
		t.Errorf("%v", o.Faults)
	}
	if o := parsed(t, "", nil).Options; len(o.Faults.Faults) != 0 {
		t.Errorf("%v without the variable", o.Faults)
	}
	_, err := ParseAPIServer(nil, func(name string) string { return map[string]string{faults.Variable: "wild"}[name] }, Settings{})
	if err == nil || !strings.HasPrefix(err.Error(), `$COPPICE_FAULTS: "wild" is neither`) {
		t.Error(err)
	}
}

// TestMinorOfKubernetes checks that a flag counts more than the environment, and this more than the directory.
func TestMinorOfKubernetes(t *testing.T) {
	for _, test := range []struct{ flags, environment, directory, want string }{
		{want: version.Kubernetes()},
		{directory: "1.34", want: "v1.34.4"},
		{environment: "1.35", directory: "1.34", want: "v1.35.4"},
		{flags: "--emulated-version=1.36", environment: "1.35", want: "v1.36.3"},
		{flags: "--emulated-version=kube=1.36 --version", want: "v1.36.3"},
		{flags: "--emulated-version=other=1.36", want: "the only component is kube"},
		{flags: "--emulated-version=1.20", want: "--emulated-version: "},
		{environment: "1.20", want: "$COPPICE_KUBERNETES: "},
		{directory: "1.20", want: "the file coppice-kubernetes: "},
	} {
		environment := map[string]string{kubernetesVariable: test.environment}
		a, err := ParseAPIServer(strings.Fields(test.flags), func(name string) string { return environment[name] }, Settings{Kubernetes: test.directory})
		got := a.Options.Version
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, test.want) {
			t.Errorf("%+v: %s", test, got)
		}
	}
}

// TestWrongControllers checks that the error names the source of the wrong word.
func TestWrongControllers(t *testing.T) {
	for _, test := range []struct{ flags, controllers, nodes, listed, says string }{
		{controllers: "all", says: "$COPPICE_CONTROLLERS"},
		{controllers: "gc,none", says: "none"},
		{controllers: "gc,", says: "$COPPICE_CONTROLLERS"},
		{flags: "--controllers=everything", says: "--controllers"},
		{listed: "al", says: controllersFile},
		{nodes: "some", says: "$COPPICE_NODES"},
		{nodes: "-1", says: "--nodes"},
	} {
		environment := map[string]string{controllersVariable: test.controllers, nodesVariable: test.nodes}
		_, err := ParseAPIServer(strings.Fields(test.flags), func(name string) string { return environment[name] }, Settings{Controllers: test.listed})
		if err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%+v: %v", test, err)
		}
	}
}

// Flags without effect cause notes; invalid flags are refused.
func TestNotesAndRefusals(t *testing.T) {
	for line, says := range map[string]string{
		"--runtime-config=api/all=true":                "--runtime-config has no effect",
		"--enable-admission-plugins=EventRateLimit":    "--enable-admission-plugins=EventRateLimit has no effect",
		"--disable-admission-plugins=Priority":         "--disable-admission-plugins=Priority has no effect",
		"--authorization-mode=ABAC":                    "allows no request",
		"--audit-log-path=/log":                        "without --audit-policy-file",
		"--service-cluster-ip-range=10.0.0.0/24,::/64": "of one range",
	} {
		if notes := strings.Join(parsed(t, line, nil).Notes, "\n"); !strings.Contains(notes, says) {
			t.Errorf("%s: %q, want %q", line, notes, says)
		}
	}
	for _, line := range []string{
		"--no-such-flag", "argument", "--insecure-port=8080", "--secure-port=65536", "--bind-address=host", "--advertise-address=host", "--etcd-servers=nowhere",
		"--service-node-port-range=9-1", "--service-node-port-range=all", "--enable-admission-plugins=NoSuch", "--tls-cert-file=/crt", "--authorization-mode=Guess",
		"--feature-gates=A=perhaps", "--max-requests-inflight=-1", "--disable-admission-plugins=LimitRanger --enable-admission-plugins=LimitRanger",
		"--authentication-token-webhook-cache-ttl=long",
	} {
		if _, err := ParseAPIServer(strings.Fields(line), func(string) string { return "" }, Settings{}); err == nil {
			t.Errorf("%s is accepted", line)
		}
	}
	if a := parsed(t, "--version", nil); !a.Version {
		t.Error("it does not print its version")
	}
	if a := parsed(t, "--feature-gates=A=true,kube:B=false -v=4", nil); !reflect.DeepEqual(a.FeatureGates, map[string]bool{"A": true, "B": false}) || a.Verbosity != 4 {
		t.Errorf("%+v", a)
	}
	if notes := parsed(t, "--etcd-servers=http://127.0.0.1:2379 --enable-admission-plugins=Priority --disable-admission-plugins=TaintNodesByCondition", nil).Notes; len(notes) > 0 {
		t.Errorf("notes about what has an effect: %q", notes)
	}
	if a := parsed(t, "--enable-admission-plugins=OwnerReferencesPermissionEnforcement", nil); len(a.Options.DisableAdmissionPlugins) != 0 {
		t.Errorf("%v", a.Options.DisableAdmissionPlugins)
	}
}

// TestAdmissionPlugins checks that each plug-in is either optional, or absent, or always active.
func TestAdmissionPlugins(t *testing.T) {
	seen := map[string]bool{}
	for _, name := range slices.Concat(admissionchain.Optional(), absent(), always()) {
		if seen[name] {
			t.Errorf("%s is listed twice", name)
		}
		seen[name] = true
	}
}

// TestCertDir checks that a missing certificate will be written, and one without its key is refused.
func TestCertDir(t *testing.T) {
	dir := t.TempDir()
	flag := "--cert-dir=" + dir
	c := parsed(t, flag, nil).Options.Server.External
	if !c.ServingAbsent || c.ServingCert != filepath.Join(dir, servingCertificate) || c.ServingKey != filepath.Join(dir, servingKey) {
		t.Errorf("in an empty directory: %+v", c)
	}
	if c := parsed(t, flag+" --tls-cert-file=/crt --tls-private-key-file=/key", nil).Options.Server.External; c.ServingAbsent || c.ServingCert != "/crt" {
		t.Errorf("where files are named: %+v", c)
	}
	if err := os.WriteFile(c.ServingCert, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ParseAPIServer([]string{flag}, func(string) string { return "" }, Settings{}); err == nil {
		t.Error("a certificate without its key is accepted")
	}
}
