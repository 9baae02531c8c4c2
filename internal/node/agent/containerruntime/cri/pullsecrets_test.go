package cri

import (
	"context"
	"encoding/base64"
	"errors"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/coppice-dev/coppice/internal/node/agent/lifecycle"
)

// TestRegistryKeysMatchImages checks keys of registries with paths against images, as in the documentation of imagePullSecrets.
func TestRegistryKeysMatchImages(t *testing.T) {
	key := func(registry string) credential {
		c := credential{secret: &runtimeapi.AuthConfig{Username: registry}}
		c.host, c.path = splitRegistry(registry)
		return c
	}
	for name, test := range map[string]struct {
		keys  []string
		image string
		want  string
	}{
		"a host":                    {[]string{"quay.io"}, "quay.io/team/app:1", "quay.io"},
		"another host":              {[]string{"quay.io"}, "gcr.io/team/app:1", ""},
		"a longer host":             {[]string{"quay.io"}, "eu.quay.io/app", ""},
		"a URL":                     {[]string{"https://quay.io/v2/"}, "quay.io/app@sha256:12", "https://quay.io/v2/"},
		"the longest path first":    {[]string{"quay.io", "quay.io/team/app", "quay.io/team"}, "quay.io/team/app:1", "quay.io/team/app quay.io/team quay.io"},
		"another path":              {[]string{"quay.io/team"}, "quay.io/other/app", ""},
		"a port":                    {[]string{"registry.test:5000"}, "registry.test:5000/app:1", "registry.test:5000"},
		"without the port":          {[]string{"registry.test"}, "registry.test:5000/app", ""},
		"a pattern":                 {[]string{"*.quay.io"}, "eu.quay.io/app", "*.quay.io"},
		"a pattern for one part":    {[]string{"*.quay.io"}, "a.b.quay.io/app", ""},
		"a pattern inside a part":   {[]string{"eu-*.quay.io"}, "eu-1.quay.io/app", "eu-*.quay.io"},
		"the default registry":      {[]string{"https://index.docker.io/v1/"}, "app:1", "https://index.docker.io/v1/"},
		"the default, by its name":  {[]string{"docker.io"}, "team/app", "docker.io"},
		"the default, named":        {[]string{"index.docker.io"}, "docker.io/team/app", "index.docker.io"},
		"the default, part of it":   {[]string{"docker.io/library"}, "app", "docker.io/library"},
		"not the default":           {[]string{"https://index.docker.io/v1/"}, "quay.io/app", ""},
		"a registry without a name": {[]string{"localhost"}, "localhost/app", "localhost"},
		"a pattern that is invalid": {[]string{"[.quay.io"}, "eu.quay.io/app", ""},
	} {
		var all []credential
		for _, registry := range test.keys {
			all = append(all, key(registry))
		}
		var got []string
		for _, c := range matching(all, test.image) {
			got = append(got, c.secret.Username)
		}
		if strings.Join(got, " ") != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

func TestCredentialsIn(t *testing.T) {
	both := base64.StdEncoding.EncodeToString([]byte("ann:pass:word"))
	for name, test := range map[string]struct {
		kind      corev1.SecretType
		key, text string
		want      string // user and password
		wrong     string
	}{
		"a configuration":    {corev1.SecretTypeDockerConfigJson, corev1.DockerConfigJsonKey, `{"auths":{"quay.io":{"auth":"` + both + `","email":"x"}}}`, "ann pass:word", ""},
		"of old":             {corev1.SecretTypeDockercfg, corev1.DockerConfigKey, `{"quay.io":{"username":"bob","password":"p"}}`, "bob p", ""},
		"both, of which one": {corev1.SecretTypeDockercfg, corev1.DockerConfigKey, `{"quay.io":{"username":"bob","password":"p","auth":"` + both + `"}}`, "ann pass:word", ""},
		"not one":            {corev1.SecretTypeOpaque, "key", "s3cret", "", "a secret of type Opaque is not one"},
		"not JSON":           {corev1.SecretTypeDockerConfigJson, corev1.DockerConfigJsonKey, "s3cret", "", ".dockerconfigjson is not a Docker configuration"},
		"no password":        {corev1.SecretTypeDockercfg, corev1.DockerConfigKey, `{"quay.io":{"auth":"czNjcmV0"}}`, "", "auth is not user:password in base64"},
	} {
		got, err := credentialsIn(&corev1.Secret{Type: test.kind, Data: map[string][]byte{test.key: []byte(test.text)}})
		if (err == nil) != (test.wrong == "") || err != nil && (!strings.Contains(err.Error(), test.wrong) || strings.Contains(err.Error(), "s3cret")) {
			t.Errorf("%s: %v, want %q", name, err, test.wrong)
		}
		if test.want != "" && (len(got) != 1 || got[0].secret.Username+" "+got[0].secret.Password != test.want) {
			t.Errorf("%s: %v, want %s", name, got, test.want)
		}
	}
}

// registry is an image service that accepts one user, and records the users of all requests.
type registry struct {
	internalapi.ImageManagerService
	accepts string
	asked   []string
}

// PullImage implements internalapi.ImageManagerService.
func (r *registry) PullImage(ctx context.Context, image *runtimeapi.ImageSpec, auth *runtimeapi.AuthConfig, sandbox *runtimeapi.PodSandboxConfig) (string, error) {
	r.asked = append(r.asked, auth.GetUsername())
	if auth.GetUsername() != r.accepts {
		return "", errors.New("unauthorized: " + auth.GetUsername())
	}
	return r.ImageManagerService.PullImage(ctx, image, auth, sandbox)
}

// TestPullTriesFittingCredentialsInTurn checks that the agent tries each fitting credential until the registry accepts one, and skips unreadable
// secrets.
func TestPullTriesFittingCredentialsInTurn(t *testing.T) {
	for name, test := range map[string]struct {
		accepts string
		secrets []string
		asked   []string
		wrong   string
	}{
		"anonymously":             {"", nil, []string{""}, ""},
		"without what is missing": {"", []string{"none"}, []string{""}, ""},
		"the first":               {"ann", []string{"keys"}, []string{"ann"}, ""},
		"the second":              {"bob", []string{"none", "keys"}, []string{"ann", "bob"}, ""},
		"nobody":                  {"eve", []string{"keys"}, []string{"ann", "bob"}, "unauthorized: ann\nunauthorized: bob"},
	} {
		w, r := inCluster(t)
		w.kind = corev1.SecretTypeDockercfg
		w.keys = map[string][]byte{corev1.DockerConfigKey: []byte(`{"quay.io/team":{"username":"ann"},"quay.io":{"username":"bob"},"gcr.io":{"username":"eve"}}`)}
		images := &registry{ImageManagerService: r.images, accepts: test.accepts}
		r.images = images
		pod := aPod()
		pod.Spec.Containers[0].Image = "quay.io/team/app:1"
		for _, secret := range test.secrets {
			pod.Spec.ImagePullSecrets = append(pod.Spec.ImagePullSecrets, ref(secret))
		}
		mustDo(t, r, pod, lifecycle.CreateSandbox{})
		err := do(t, r, pod, lifecycle.Start{Container: "c"})
		if (err == nil) != (test.wrong == "") || err != nil && !strings.Contains(err.Error(), test.wrong) {
			t.Errorf("%s: %v, want %q", name, err, test.wrong)
		}
		if !slices.Equal(images.asked, test.asked) {
			t.Errorf("%s: %q asked, want %q", name, images.asked, test.asked)
		}
	}
}
