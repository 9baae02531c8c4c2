package system

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/coppice-dev/coppice/internal/apiserver/auth"
)

// ContextName is the name of the cluster and the administrator's context in a kubeconfig.
const ContextName = "coppice"

// kubeconfigOf returns the kubeconfig of a user of server.
func kubeconfigOf(who identity, server string, authority []byte, pair auth.Pair) *clientcmdapi.Config {
	c := clientcmdapi.NewConfig()
	c.Clusters[ContextName] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: authority}
	c.AuthInfos[who.user] = &clientcmdapi.AuthInfo{ClientCertificateData: pair.Certificate, ClientKeyData: pair.Key}
	c.Contexts[who.context] = &clientcmdapi.Context{Cluster: ContextName, AuthInfo: who.user}
	c.CurrentContext = who.context
	return c
}

// writeKubeconfig merges config into the kubeconfig at path, mode 0600. It sets the current context if
// config has one, and keeps all other entries of the file. If path is a symbolic link, it writes the file that the link
// names, as kubectl does: dotfiles are often links into a repository.
func writeKubeconfig(path string, config *clientcmdapi.Config) error {
	merged, err := clientcmd.LoadFromFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		merged = clientcmdapi.NewConfig()
	case err != nil:
		return fmt.Errorf("%s is not a kubeconfig, and is left as it is: %w", path, err)
	}
	maps.Copy(merged.Clusters, config.Clusters)
	maps.Copy(merged.AuthInfos, config.AuthInfos)
	maps.Copy(merged.Contexts, config.Contexts)
	if config.CurrentContext != "" {
		merged.CurrentContext = config.CurrentContext
	}
	data, err := clientcmd.Write(*merged)
	if err != nil {
		return fmt.Errorf("encode the kubeconfig: %w", err)
	}
	path = linkedFile(path)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("write the kubeconfig: %w", err)
	}
	if err := writePrivate(path, data); err != nil {
		return fmt.Errorf("write the kubeconfig: %w", err)
	}
	return nil
}

// linkedFile follows symbolic links to a file, which need not exist.
func linkedFile(path string) string {
	const longest = 40 // links, as in Linux
	for range longest {
		link, err := os.Readlink(path)
		if err != nil { // it is no link
			return path
		}
		if !filepath.IsAbs(link) {
			link = filepath.Join(filepath.Dir(path), link)
		}
		path = link
	}
	return path
}
