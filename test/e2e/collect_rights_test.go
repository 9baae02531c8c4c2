package e2e

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// TestCollectWithItsOwnCredential: the credential that a control plane writes for an external
// collector is sufficient for everything that it does, and for nothing else.
func TestCollectWithItsOwnCredential(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "collector")
	p := startPlane(t, "--ephemeral", "--secure-port=0", "--controllers=namespace,protection", "--write-collector-kubeconfig", file)
	k := ourKubectl(p)
	c := startCollector(t, p, "--kubeconfig", file)
	c.waitSynced(t)
	for policy := range map[string]bool{"background": true, "foreground": true, "orphan": true} {
		k.run(t, "create", "namespace", policy)
		owned(t, k, policy)
		k.run(t, "delete", "-n", policy, "replicaset", "frontend", "--cascade="+policy, "--wait=false")
	}
	k.eventuallyNames(t, "background", "replicasets,pods")
	k.eventuallyNames(t, "foreground", "replicasets,pods")
	k.eventuallyNames(t, "orphan", "replicasets,pods", "pod/frontend-0", "pod/frontend-1", "pod/frontend-2")
	if log := c.stderr.String(); strings.Contains(log, "level=ERROR") || strings.Contains(log, "level=WARN") {
		t.Errorf("a run without trouble is logged as:\n%s", log)
	}
	for _, args := range [][]string{{"get", "secrets", "-A"}, {"get", "pods", "-n", "orphan", "-o", "yaml"}, {"delete", "pod", "-n", "orphan", "frontend-0"}, {"create", "namespace", "mine"}} {
		out, err := exec.Command(binary, append([]string{"kubectl", "--kubeconfig", file}, args...)...).CombinedOutput()
		if err == nil || !strings.Contains(string(out), "orbidden") {
			t.Errorf("kubectl %v: %v %s", args, err, out)
		}
	}
}

// TestCollectWithoutRights reports the missing rights, in one line.
func TestCollectWithoutRights(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := startPlane(t, "--data-dir", dir, "--secure-port=0")
	command := exec.Command(binary, "collect", "--bind-address=0", "--kubeconfig", strangerOf(t, p, dir))
	out, err := command.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Errorf("exit: %v", err)
	}
	line := strings.TrimSpace(string(out))
	if strings.Contains(line, "\n") || !strings.Contains(line, p.server) || !strings.Contains(line, "stranger") && !strings.Contains(line, "list") {
		t.Errorf("a stranger is told: %s", line)
	}
	t.Log(line)
}

// strangerOf returns a kubeconfig of a user who is authenticated but has no permissions.
func strangerOf(t *testing.T, p *plane, dir string) string {
	t.Helper()
	pair := func(name string) []byte {
		matches, err := filepath.Glob(filepath.Join(dir, "pki", name))
		if err != nil || len(matches) != 1 {
			t.Fatalf("%s in %s: %v %v", name, dir, matches, err)
		}
		data, err := os.ReadFile(matches[0])
		if err != nil {
			t.Fatal(err)
		}
		block, _ := pem.Decode(data)
		return block.Bytes
	}
	authority, err := x509.ParseCertificate(pair("ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	authorityKey, err := parseKey(pair("ca.key"))
	if err != nil {
		t.Fatal(err)
	}
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "stranger"},
		NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, authority, &key.PublicKey, authorityKey)
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.LoadFromFile(p.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	user := config.Contexts[config.CurrentContext].AuthInfo
	config.AuthInfos[user] = &clientcmdapi.AuthInfo{
		ClientCertificateData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate}),
		ClientKeyData:         pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}),
	}
	path := filepath.Join(t.TempDir(), "stranger")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	return path
}

func parseKey(der []byte) (any, error) {
	if key, err := x509.ParseECPrivateKey(der); err == nil {
		return key, nil
	}
	if key, err := x509.ParsePKCS1PrivateKey(der); err == nil {
		return key, nil
	}
	return x509.ParsePKCS8PrivateKey(der)
}

// TestManifestsApply applies the manifests in deploy to a control plane.
func TestManifestsApply(t *testing.T) {
	t.Parallel()
	p := startPlane(t, "--ephemeral", "--secure-port=0")
	k := ourKubectl(p)
	before := k.names(t, "default", "clusterroles,clusterrolebindings") // the roles of every control plane
	deploy := filepath.Join("..", "..", "deploy", "kustomize")
	for _, variant := range []string{"base", "observe-only"} {
		k.run(t, "apply", "-k", filepath.Join(deploy, variant))
		if replicas := k.get(t, "coppice-system", "deployment/coppice", "{.spec.replicas}"); replicas != "2" {
			t.Errorf("%s: %s replicas", variant, replicas)
		}
		rules := k.get(t, "", "clusterrole/coppice", "{.rules}")
		if mayDelete := strings.Contains(rules, "delete"); mayDelete != (variant == "base") {
			t.Errorf("%s: rules %s", variant, rules)
		}
		arguments := k.get(t, "coppice-system", "deployment/coppice", "{.spec.template.spec.containers[0].args}")
		checkArguments(t, p, arguments)
		k.run(t, "delete", "-k", filepath.Join(deploy, variant), "--ignore-not-found") // its namespace takes some of it along
		k.eventuallyNames(t, "default", "clusterroles,clusterrolebindings", before...)
	}
}

// TestCollectAsItsServiceAccount runs the command of the pod in the manifests, under the identity
// that they give it, and with no other permission: all three policies work.
func TestCollectAsItsServiceAccount(t *testing.T) {
	t.Parallel()
	p := startPlane(t, "--ephemeral", "--secure-port=0", "--controllers=")
	k := ourKubectl(p)
	k.run(t, "apply", "-k", filepath.Join("..", "..", "deploy", "kustomize", "base"))
	own := *p
	own.kubeconfig = withToken(t, p, strings.TrimSpace(k.run(t, "create", "token", "coppice", "-n", "coppice-system")))
	var args []string
	if err := json.Unmarshal([]byte(k.get(t, "coppice-system", "deployment/coppice", "{.spec.template.spec.containers[0].args}")), &args); err != nil {
		t.Fatal(err)
	}
	c := startCollector(t, &own, append(args[1:], "--metrics-address=127.0.0.1:0", "--leader-elect-namespace=coppice-system")...)
	c.waitSynced(t)
	for _, policy := range []string{"background", "foreground", "orphan"} {
		k.run(t, "create", "namespace", policy)
		owned(t, k, policy)
		k.run(t, "delete", "-n", policy, "replicaset", "frontend", "--cascade="+policy, "--wait=false")
	}
	k.eventuallyNames(t, "background", "replicasets,pods")
	k.eventuallyNames(t, "foreground", "replicasets,pods")
	k.eventuallyNames(t, "orphan", "replicasets,pods", "pod/frontend-0", "pod/frontend-1", "pod/frontend-2")
	if got := k.get(t, "orphan", "pods", "{.items[*].metadata.ownerReferences}"); got != "" {
		t.Errorf("owner references of orphans: %s", got)
	}
	c.stop(t)
	if log := c.stderr.String(); strings.Contains(log, `"level":"ERROR"`) || strings.Contains(log, `"level":"WARN"`) {
		t.Errorf("a run without trouble is logged as:\n%s", log)
	}
	may := func(verb, what string) bool {
		out, _ := exec.Command(binary, "kubectl", "--kubeconfig", own.kubeconfig, "auth", "can-i", verb, what).CombinedOutput()
		return strings.TrimSpace(string(out)) == "yes"
	}
	if !may("get", "/coppice/newest") || may("get", "/coppice/snapshot") || may("create", "pods") || may("update", "configmaps") {
		t.Error("the service account may not do what it has to, or may do more")
	}
}

// withToken returns a kubeconfig of a control plane with a token and no other credential.
func withToken(t *testing.T, p *plane, token string) string {
	t.Helper()
	config, err := clientcmd.LoadFromFile(p.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	config.AuthInfos[config.Contexts[config.CurrentContext].AuthInfo] = &clientcmdapi.AuthInfo{Token: token}
	path := filepath.Join(t.TempDir(), "with-token")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// checkArguments runs the command of the pod in a manifest.
func checkArguments(t *testing.T, p *plane, arguments string) {
	t.Helper()
	var args []string
	if err := json.Unmarshal([]byte(arguments), &args); err != nil || len(args) == 0 || args[0] != "collect" {
		t.Fatalf("arguments of the container: %s, %v", arguments, err)
	}
	args = append(args[1:], "--metrics-address=127.0.0.1:0", "--leader-elect-namespace=coppice-system")
	c := startCollector(t, p, args...)
	c.waitSynced(t)
	if !strings.HasPrefix(strings.TrimSpace(c.stderr.String()), "{") {
		t.Errorf("not logged as JSON: %.200s", c.stderr.String())
	}
	c.stop(t)
}
