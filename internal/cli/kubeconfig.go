package cli

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// inCluster is the source of a config that was not loaded from a file.
const inCluster = "the service account of this pod"

// loadConfig finds the server by client-go's rules: the named file, else the files in $KUBECONFIG, else
// ~/.kube/config, else the cluster that this process runs in. source names the place where it
// was found, for messages.
func loadConfig(file, context string) (config *rest.Config, source string, err error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = file
	rules.WarnIfAllMissing = false
	source = sourceOf(rules)
	if err := readable(rules); err != nil {
		return nil, "", err
	}
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: context})
	config, err = loader.ClientConfig()
	switch {
	case clientcmd.IsEmptyConfig(err):
		if source == inCluster {
			return nil, "", errors.New("no API server is named: give a kubeconfig with --kubeconfig or $KUBECONFIG, or run this in a cluster")
		}
		return nil, "", fmt.Errorf("kubeconfig %s names no API server", source)
	case err != nil:
		return nil, "", fmt.Errorf("kubeconfig %s: %w", source, withoutPath(err, source))
	}
	if source != inCluster {
		source = "kubeconfig " + source
	}
	return config, source, nil
}

// readable returns an error if a named file cannot be read: client-go skips some missing files, and then reports a
// misleading error.
func readable(rules *clientcmd.ClientConfigLoadingRules) error {
	var files []string
	switch named := os.Getenv(clientcmd.RecommendedConfigPathEnvVar); {
	case rules.ExplicitPath != "":
		files = []string{rules.ExplicitPath}
	case named != "" && !strings.ContainsRune(named, os.PathListSeparator):
		files = []string{named}
	}
	for _, file := range files {
		if _, err := clientcmd.LoadFromFile(file); err != nil {
			return fmt.Errorf("kubeconfig %s: %w", file, withoutPath(err, file))
		}
	}
	return nil
}

// sourceOf returns the names of the files that a config is read from.
func sourceOf(rules *clientcmd.ClientConfigLoadingRules) string {
	if rules.ExplicitPath != "" {
		return rules.ExplicitPath
	}
	var there []string
	for _, file := range rules.Precedence {
		if _, err := os.Stat(file); err == nil {
			there = append(there, file)
		}
	}
	if len(there) == 0 {
		return inCluster
	}
	return strings.Join(there, string(os.PathListSeparator))
}

// withoutPath strips the path from an error, for a message that has already named the file.
func withoutPath(err error, path string) error {
	if file, ok := errors.AsType[*os.PathError](err); ok && file.Path == path {
		return file.Err
	}
	text := strings.TrimPrefix(err.Error(), "invalid configuration: ")
	for _, noise := range []string{`error loading config file "` + path + `": `} {
		text = strings.ReplaceAll(text, noise, "")
	}
	return errors.New(text)
}
