package cri

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// credential is a pull secret's credential for one registry, or for a part of one.
type credential struct {
	host   string // may have * in its parts
	path   string // of the images; "" for all
	secret *runtimeapi.AuthConfig
	use    secretUse // the pull secret
}

// pullSecrets reads the pull secrets of a pod. An unreadable or invalid one does not prevent pulls
// without it: its error is returned with the credentials of the others. key is the key of the hashes of credentials.
func pullSecrets(ctx context.Context, objects Objects, of *corev1.Pod, key string) ([]credential, error) {
	var all []credential
	var failed []error
	for _, ref := range of.Spec.ImagePullSecrets {
		if objects == nil {
			return nil, errNoObjects
		}
		secret, err := objects.Secret(ctx, of.Namespace, ref.Name)
		if err != nil {
			failed = append(failed, fmt.Errorf("pull secret %s/%s: %w", of.Namespace, ref.Name, err))
			continue
		}
		found, err := credentialsIn(secret)
		if err != nil {
			failed = append(failed, fmt.Errorf("pull secret %s/%s: %w", of.Namespace, ref.Name, err))
		}
		for _, c := range found {
			c.use = secretUse{Namespace: of.Namespace, Name: ref.Name, UID: secret.UID, Hash: hashOf(key, c.secret)}
			all = append(all, c)
		}
	}
	return all, errors.Join(failed...)
}

// registryEntry is the entry of a registry in a Docker configuration.
type registryEntry struct {
	Username string `json:"username"`
	Password string `json:"password"`
	Auth     string `json:"auth"` // username:password in base64; overrides both
}

// credentialsIn returns the credentials in a pull secret.
func credentialsIn(s *corev1.Secret) ([]credential, error) {
	var entries map[string]registryEntry
	switch s.Type {
	case corev1.SecretTypeDockerConfigJson:
		var file struct {
			Auths map[string]registryEntry `json:"auths"`
		}
		if err := json.Unmarshal(s.Data[corev1.DockerConfigJsonKey], &file); err != nil {
			return nil, errBadSecret(corev1.DockerConfigJsonKey)
		}
		entries = file.Auths
	case corev1.SecretTypeDockercfg:
		if err := json.Unmarshal(s.Data[corev1.DockerConfigKey], &entries); err != nil {
			return nil, errBadSecret(corev1.DockerConfigKey)
		}
	default:
		return nil, fmt.Errorf("a secret of type %s is not one", s.Type)
	}
	all := make([]credential, 0, len(entries))
	for registry, entry := range entries {
		secret, err := entry.secret()
		if err != nil {
			return nil, fmt.Errorf("registry %s: %w", registry, err)
		}
		c := credential{secret: secret}
		c.host, c.path = splitRegistry(registry)
		all = append(all, c)
	}
	return all, nil
}

// errBadSecret does not contain any part of the secret.
func errBadSecret(key string) error { return fmt.Errorf("%s is not a Docker configuration", key) }

func (e registryEntry) secret() (*runtimeapi.AuthConfig, error) {
	if e.Auth == "" {
		return &runtimeapi.AuthConfig{Username: e.Username, Password: e.Password}, nil
	}
	text, err := base64.StdEncoding.DecodeString(e.Auth)
	if err != nil {
		text, err = base64.RawStdEncoding.DecodeString(e.Auth)
	}
	user, password, found := strings.Cut(string(text), ":")
	if err != nil || !found {
		return nil, errors.New("auth is not user:password in base64")
	}
	return &runtimeapi.AuthConfig{Username: user, Password: password}, nil
}

// splitRegistry returns the host and the path of a key of a Docker configuration, which may be a
// URL of the registry's API.
func splitRegistry(key string) (host, below string) {
	key = strings.TrimPrefix(strings.TrimPrefix(key, "https://"), "http://")
	host, below, _ = strings.Cut(key, "/")
	for _, version := range []string{"v1/", "v2/"} {
		below = strings.TrimPrefix(below, version)
	}
	return host, below
}

const (
	defaultRegistry = "docker.io"
	// defaultRegistryKey is the host of the default registry in Docker's own configurations.
	defaultRegistryKey = "index.docker.io"
)

// repositoryOf returns the registry and the path of an image, without tag and digest. All names of one repository have the
// same result.
func repositoryOf(image string) (host, below string) {
	image, _, _ = strings.Cut(image, "@")
	if slash := strings.LastIndexByte(image, '/'); strings.Contains(image[slash+1:], ":") {
		image = image[:slash+1+strings.IndexByte(image[slash+1:], ':')]
	}
	host, below = defaultRegistry, image
	first, rest, found := strings.Cut(image, "/")
	if found && (strings.ContainsAny(first, ".:") || first == "localhost") {
		host, below = first, rest
	}
	if host == defaultRegistryKey {
		host = defaultRegistry
	}
	if host == defaultRegistry && !strings.Contains(below, "/") {
		below = "library/" + below
	}
	return host, below
}

// matching returns the credentials for an image, ordered by the length of their paths, longest first.
func matching(all []credential, image string) []credential {
	host, below := repositoryOf(image)
	fits := slices.DeleteFunc(slices.Clone(all), func(c credential) bool { return !c.covers(host, below) })
	if len(fits) == 0 && host == defaultRegistry {
		fits = slices.DeleteFunc(slices.Clone(all), func(c credential) bool { return c.host != defaultRegistryKey || c.path != "" })
	}
	slices.SortStableFunc(fits, func(a, b credential) int { return strings.Compare(b.host+"/"+b.path, a.host+"/"+a.path) })
	return fits
}

// covers reports whether a credential applies to images of a registry below a path. Each * in its
// host matches a part of one name between dots.
func (c credential) covers(host, below string) bool {
	pattern, patternPort := splitPort(c.host)
	name, port := splitPort(host)
	parts, names := strings.Split(pattern, "."), strings.Split(name, ".")
	if patternPort != port || len(parts) != len(names) || !strings.HasPrefix(below, c.path) {
		return false
	}
	for i := range parts {
		if matched, err := path.Match(parts[i], names[i]); err != nil || !matched {
			return false
		}
	}
	return true
}

func splitPort(address string) (host, port string) {
	if host, port, err := net.SplitHostPort(address); err == nil {
		return host, port
	}
	return address, ""
}
