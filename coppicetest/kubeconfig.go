package coppicetest

import (
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"strings"
)

// access holds a server's address and credentials.
type access struct {
	server                      string
	authority, certificate, key []byte
	token                       string
}

// readKubeconfig reads a kubeconfig of one cluster and one user in client-go's format, which
// coppice, envtest and kind write.
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

// parseKubeconfig does not parse YAML. It only reads the lines that it needs, each of which must
// occur at most once. Credentials in other files and plug-ins are not supported.
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

// writeKubeconfig writes the kubeconfig of a user, readable only by its owner.
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
