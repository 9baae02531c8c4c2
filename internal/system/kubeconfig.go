package system

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/yaml"

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

// writeKubeconfig merges config into the kubeconfig at path, which a user has named.
func writeKubeconfig(path string, config *clientcmdapi.Config) error {
	return mergeKubeconfig(path, fileOf, config)
}

// mergeKubeconfig merges config into the kubeconfig at path, mode 0600; find finds its place. It sets the current context if
// config has one, and keeps all other entries of the file. If root writes the file of another user, it stays that user's.
func mergeKubeconfig(path string, find func(path string) (place, error), config *clientcmdapi.Config) error {
	at, err := find(path)
	if err != nil {
		return fmt.Errorf("write the kubeconfig %s: %w", path, err)
	}
	defer at.close()
	before, info, err := at.read()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("write the kubeconfig %s: %w", path, err)
	}
	merged, err := parseKubeconfig(before)
	if err != nil {
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
	if err := at.replace(info, contents(data)); err != nil {
		return fmt.Errorf("write the kubeconfig %s: %w", path, err)
	}
	return nil
}

// parseKubeconfig reads a kubeconfig; an empty one is valid. clientcmd also reads any other file in YAML, and drops what it
// does not know: such a file would be lost.
func parseKubeconfig(data []byte) (*clientcmdapi.Config, error) {
	if len(bytes.TrimSpace(data)) == 0 {
		return clientcmdapi.NewConfig(), nil
	}
	config, err := clientcmd.Load(data)
	if err != nil {
		return nil, err
	}
	var has map[string]any
	if err := yaml.Unmarshal(data, &has); err != nil {
		return nil, err
	}
	isPart := func(key string) bool { _, ok := has[key]; return ok }
	if has["kind"] != "Config" && !slices.ContainsFunc([]string{"clusters", "users", "contexts", "current-context"}, isPart) {
		return nil, errors.New("it has no kind Config, and none of clusters, users and contexts")
	}
	return config, nil
}
