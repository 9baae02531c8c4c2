package coppicetest

import (
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"strings"
)

// access is how to reach a server.
type access struct {
	server                      string
	authority, certificate, key []byte
	token                       string
}

// readKubeconfig reads a kubeconfig of one cluster and one user, as client-go writes it: coppice,
// envtest and kind do.
func readKubeconfig(path string) (access, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return access{}, fmt.Errorf("read the kubeconfig: %w", err)
	}
	a, err := parseKubeconfig(string(data))
	if err != nil {
		return access{}, fmt.Errorf("%s: %w", path, err)
	}
	return a, nil
}

// parseKubeconfig understands no YAML but the lines that matter, each of which must occur once at
// most. Credentials in other files, and plug-ins, are for libraries that know YAML.
func parseKubeconfig(text string) (access, error) {
	values := map[string]string{}
	for line := range strings.Lines(text) {
		key, value, ok := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "- "), ":")
		if !ok {
			continue
		}
		switch key {
		case "server", "certificate-authority-data", "client-certificate-data", "client-key-data", "token":
			if _, twice := values[key]; twice {
				return access{}, errors.New("there are several clusters or users; make a kubeconfig of one with kubectl config view --minify --flatten")
			}
			values[key] = strings.Trim(strings.TrimSpace(value), `"'`)
		case "certificate-authority", "client-certificate", "client-key", "tokenFile", "exec":
			return access{}, fmt.Errorf("%s is not supported; embed the credentials with kubectl config view --minify --flatten", key)
		}
	}
	a := access{server: values["server"], token: values["token"]}
	if a.server == "" {
		return access{}, errors.New("it names no server")
	}
	for key, to := range map[string]*[]byte{
		"certificate-authority-data": &a.authority, "client-certificate-data": &a.certificate, "client-key-data": &a.key,
	} {
		decoded, err := base64.StdEncoding.DecodeString(values[key])
		if err != nil {
			return access{}, fmt.Errorf("%s: %w", key, err)
		}
		*to = decoded
	}
	return a, nil
}

// writeKubeconfig writes the kubeconfig of a user, for nobody else to read.
func writeKubeconfig(path, user string, a access) error {
	encode := base64.StdEncoding.EncodeToString
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
clusters:
- name: coppice
  cluster:
    server: %s
    certificate-authority-data: %s
users:
- name: %q
  user:
    client-certificate-data: %s
    client-key-data: %s
contexts:
- name: coppice
  context:
    cluster: coppice
    user: %q
current-context: coppice
`, a.server, encode(a.authority), user, encode(a.certificate), encode(a.key), user)
	return os.WriteFile(path, []byte(text), 0o600)
}
