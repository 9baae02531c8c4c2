package assets

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/coppice-dev/coppice/internal/system"
)

func parsed(t *testing.T, line string, environment map[string]string) APIServer {
	t.Helper()
	a, err := ParseAPIServer(strings.Fields(line), func(name string) string { return environment[name] })
	if err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	return a
}

// The flags of envtest and of its ports.
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
		"gc":           {o.GarbageCollector, system.InProcess},
		"namespaces":   {o.NamespaceController, system.InProcess},
		"workloads":    {o.Workloads, system.Disabled},
		"protection":   {o.VolumeProtection, system.Disabled},
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

func TestControllersOfAPIServer(t *testing.T) {
	all := map[string]string{controllersVariable: "gc,namespace,protection,workloads,scheduler", nodesVariable: "3"}
	if o := parsed(t, "", all).Options; o.Workloads != system.InProcess || o.VolumeProtection != system.InProcess || !o.Scheduler || o.Nodes.Nodes != 3 {
		t.Errorf("by the environment: %+v", o)
	}
	if o := parsed(t, "--controllers=gc --nodes=0", all).Options; o.Workloads != system.Disabled || o.NamespaceController != system.Elsewhere || o.Nodes.Nodes != 0 {
		t.Errorf("by flags: %+v", o)
	}
	if o := parsed(t, "--enable-garbage-collector=false", nil).Options; o.GarbageCollector != system.Disabled {
		t.Errorf("without a collector: %+v", o)
	}
	for _, wrong := range []map[string]string{{controllersVariable: "all"}, {nodesVariable: "some"}, {nodesVariable: "-1"}} {
		if _, err := ParseAPIServer(nil, func(name string) string { return wrong[name] }); err == nil {
			t.Errorf("%v is accepted", wrong)
		}
	}
}

// What has no effect is said, what is nonsense is refused.
func TestNotesAndRefusals(t *testing.T) {
	for line, says := range map[string]string{
		"--runtime-config=api/all=true":                "--runtime-config has no effect",
		"--enable-admission-plugins=PodSecurity":       "--enable-admission-plugins=PodSecurity has no effect",
		"--authorization-mode=ABAC":                    "allows nothing",
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
		if _, err := ParseAPIServer(strings.Fields(line), func(string) string { return "" }); err == nil {
			t.Errorf("%s is accepted", line)
		}
	}
	if a := parsed(t, "--version", nil); !a.Version {
		t.Error("it does not print its version")
	}
	if a := parsed(t, "--feature-gates=A=true,kube:B=false -v=4", nil); !reflect.DeepEqual(a.FeatureGates, map[string]bool{"A": true, "B": false}) || a.Verbosity != 4 {
		t.Errorf("%+v", a)
	}
	if a := parsed(t, "--enable-admission-plugins=OwnerReferencesPermissionEnforcement", nil); len(a.Options.DisableAdmissionPlugins) != 0 {
		t.Errorf("%v", a.Options.DisableAdmissionPlugins)
	}
}

// TestCertDir: a certificate that is not there is to be written; one without its key is refused.
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
	if _, err := ParseAPIServer([]string{flag}, func(string) string { return "" }); err == nil {
		t.Error("a certificate without its key is accepted")
	}
}
