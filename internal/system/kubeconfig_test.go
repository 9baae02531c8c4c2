package system

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/coppice-dev/coppice/internal/apiserver/auth"
)

func ours(server string) *clientcmdapi.Config {
	return kubeconfigOf(administrator(), server, []byte("authority"), auth.Pair{Certificate: []byte("certificate"), Key: []byte("key")})
}

func read(t *testing.T, path string) *clientcmdapi.Config {
	t.Helper()
	c, err := clientcmd.LoadFromFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestKubeconfigIsNew(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a", "b", "kubeconfig")
	if err := writeKubeconfig(path, ours("https://127.0.0.1:1")); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info.Mode(), err)
	}
	client, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	if client.Host != "https://127.0.0.1:1" || string(client.CAData) != "authority" || string(client.CertData) != "certificate" || string(client.KeyData) != "key" {
		t.Errorf("%+v", client)
	}
	if client.Insecure {
		t.Error("it does not verify the server")
	}
}

// Other entries of the file are kept; our entries are replaced, and current.
func TestKubeconfigIsMerged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config")
	others := clientcmdapi.NewConfig()
	others.Clusters["prod"] = &clientcmdapi.Cluster{Server: "https://prod"}
	others.AuthInfos["me"] = &clientcmdapi.AuthInfo{Token: "secret"}
	others.Contexts["prod"] = &clientcmdapi.Context{Cluster: "prod", AuthInfo: "me", Namespace: "team"}
	others.CurrentContext = "prod"
	if err := clientcmd.WriteToFile(*others, path); err != nil {
		t.Fatal(err)
	}
	for _, server := range []string{"https://127.0.0.1:1", "https://127.0.0.1:2"} {
		if err := writeKubeconfig(path, ours(server)); err != nil {
			t.Fatal(err)
		}
		c := read(t, path)
		if c.CurrentContext != ContextName || c.Clusters[ContextName].Server != server {
			t.Errorf("current is %s, at %s", c.CurrentContext, c.Clusters[ContextName].Server)
		}
		if got := slices.Sorted(maps.Keys(c.Contexts)); !slices.Equal(got, []string{ContextName, "prod"}) {
			t.Errorf("contexts %v", got)
		}
		if c.Clusters["prod"].Server != "https://prod" || c.AuthInfos["me"].Token != "secret" || c.Contexts["prod"].Namespace != "team" {
			t.Errorf("what was there has become %+v %+v %+v", c.Clusters["prod"], c.AuthInfos["me"], c.Contexts["prod"])
		}
	}
}

// TestKubeconfigThatIsALinkStaysOne writes through links: relative ones, links to links, and links to a file that does not
// exist yet.
func TestKubeconfigThatIsALinkStaysOne(t *testing.T) {
	for name, exists := range map[string]bool{"to a file": true, "to nothing": false} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			file, link, outer := filepath.Join(dir, "dotfiles", "config"), filepath.Join(dir, "config"), filepath.Join(dir, "outer")
			if exists {
				if err := writeKubeconfig(file, ours("https://127.0.0.1:1")); err != nil {
					t.Fatal(err)
				}
			}
			for at, to := range map[string]string{link: filepath.Join("dotfiles", "config"), outer: link} {
				if err := os.Symlink(to, at); err != nil {
					t.Fatal(err)
				}
			}
			if err := writeKubeconfig(outer, ours("https://127.0.0.1:2")); err != nil {
				t.Fatal(err)
			}
			for _, at := range []string{link, outer} {
				if info, err := os.Lstat(at); err != nil || info.Mode()&os.ModeSymlink == 0 {
					t.Errorf("%s is no link any more: %v", at, err)
				}
			}
			if got := read(t, file).Clusters[ContextName].Server; got != "https://127.0.0.1:2" {
				t.Errorf("the file has server %s", got)
			}
		})
	}
}

func TestOtherFilesAreNotOverwritten(t *testing.T) {
	for name, text := range map[string]string{
		"a list":               "- not\n- a kubeconfig\n",
		"a mapping":            "network:\n  version: 2\n  ethernets: {eth0: {dhcp4: true}}\n",
		"comments":             "# fs.inotify.max_user_watches = 1\n",
		"an object":            "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n",
		"a version alone":      "apiVersion: v1\n",
		"a clusters somewhere": "data: {clusters: []}\n",
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "notes")
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := writeKubeconfig(path, ours("https://127.0.0.1:1")); err == nil || !strings.Contains(err.Error(), "is not a kubeconfig, and is left as it is") {
				t.Errorf("error %v", err)
			}
			if data, err := os.ReadFile(path); err != nil || string(data) != text {
				t.Errorf("%q %v", data, err)
			}
		})
	}
}

// TestShortKubeconfigsAreKubeconfigs: kubectl leaves such files, and reads them.
func TestShortKubeconfigsAreKubeconfigs(t *testing.T) {
	for name, text := range map[string]string{
		"empty":          "",
		"an empty line":  "\n",
		"the kind":       "apiVersion: v1\nkind: Config\n",
		"nothing in it":  "apiVersion: v1\nclusters: null\ncontexts: null\nkind: Config\nusers: null\n",
		"users alone":    "users: []\n",
		"JSON":           `{"current-context": ""}`,
		"contexts alone": "contexts: [{name: prod, context: {cluster: prod, user: me}}]",
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "config")
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := writeKubeconfig(path, ours("https://127.0.0.1:1")); err != nil {
				t.Fatal(err)
			}
			if got := read(t, path).Clusters[ContextName].Server; got != "https://127.0.0.1:1" {
				t.Errorf("server %s", got)
			}
		})
	}
}

func TestKubeconfigPath(t *testing.T) {
	if got := KubeconfigPath("/data"); got != "/data/kubeconfig" {
		t.Error(got)
	}
}
