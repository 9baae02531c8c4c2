package envtest

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// configured starts an environment with a garbage collector whose API server has further flags.
func configured(t *testing.T, flags map[string]string) *rest.Config {
	t.Helper()
	environment := collecting()
	arguments := environment.ControlPlane.GetAPIServer().Configure()
	for name, value := range flags {
		arguments.Set(name, value)
	}
	return start(t, environment)
}

// write writes a file and returns its path.
func write(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// bearer returns the configuration of a client with a token.
func bearer(config *rest.Config, token string) *rest.Config {
	own := rest.AnonymousClientConfig(config)
	own.BearerToken = token
	return own
}

// whoAmI returns the user that the server sees.
func whoAmI(t *testing.T, config *rest.Config) (authenticationv1.UserInfo, error) {
	t.Helper()
	clientset, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	review, err := clientset.AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return authenticationv1.UserInfo{}, err
	}
	return review.Status.UserInfo, nil
}

// webhookKubeconfig is the file by which the server reaches a webhook.
func webhookKubeconfig(t *testing.T, handler http.HandlerFunc) string {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return write(t, "webhook.yaml", `apiVersion: v1
kind: Config
clusters: [{name: webhook, cluster: {server: "`+server.URL+`"}}]
users: [{name: server, user: {}}]
contexts: [{name: webhook, context: {cluster: webhook, user: server}}]
current-context: webhook
`)
}

// The flags by which suites have users authenticated.
func TestAuthenticationFlags(t *testing.T) {
	webhook := webhookKubeconfig(t, func(w http.ResponseWriter, r *http.Request) {
		var review authenticationv1.TokenReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		review.Status.Authenticated = review.Spec.Token == "asked-for"
		review.Status.User = authenticationv1.UserInfo{Username: "from-the-webhook"}
		_ = json.NewEncoder(w).Encode(review)
	})
	config := configured(t, map[string]string{
		"token-auth-file":                          write(t, "tokens.csv", `from-the-file,jane,1,"readers,writers"`+"\n"),
		"authentication-token-webhook-config-file": webhook,
		"authentication-token-webhook-version":     "v1",
	})
	if user, err := whoAmI(t, bearer(config, "from-the-file")); err != nil || user.Username != "jane" || !strings.HasPrefix(strings.Join(user.Groups, ","), "readers,writers") {
		t.Errorf("the token of the file is %+v, %v", user, err)
	}
	if user, err := whoAmI(t, bearer(config, "asked-for")); err != nil || user.Username != "from-the-webhook" {
		t.Errorf("the token of the webhook is %+v, %v", user, err)
	}
	if user, err := whoAmI(t, bearer(config, "forged")); !apierrors.IsUnauthorized(err) {
		t.Errorf("a forged token is %+v, %v", user, err)
	}
}

// A service account's token is signed by the suite's key, and accepted.
func TestServiceAccountFlags(t *testing.T) {
	config := configured(t, map[string]string{"service-account-issuer": "https://issuer.example.com"})
	create(t, newClient(t, config), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "robot"}})
	clientset, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	request, err := clientset.CoreV1().ServiceAccounts("default").CreateToken(t.Context(), "robot", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if user, err := whoAmI(t, bearer(config, request.Status.Token)); err != nil || user.Username != "system:serviceaccount:default:robot" {
		t.Errorf("its token is %+v, %v", user, err)
	}
	if audiences := request.Spec.Audiences; len(audiences) != 1 || audiences[0] != "https://issuer.example.com" {
		t.Errorf("it is for %q", audiences)
	}
}

// The modes of authorization: a user without roles has the rights that the mode grants, and the
// garbage collector always works.
func TestAuthorizationFlags(t *testing.T) {
	webhook := webhookKubeconfig(t, func(w http.ResponseWriter, r *http.Request) {
		var review authorizationv1.SubjectAccessReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		review.Status.Allowed = review.Spec.ResourceAttributes == nil || review.Spec.ResourceAttributes.Verb == "list"
		_ = json.NewEncoder(w).Encode(review)
	})
	tokens := write(t, "tokens.csv", "jane,jane,1\n")
	for mode, allowed := range map[string]struct{ list, create bool }{"AlwaysAllow": {true, true}, "RBAC": {}, "Webhook": {list: true}} {
		t.Run(mode, func(t *testing.T) {
			flags := map[string]string{"authorization-mode": mode, "token-auth-file": tokens}
			if mode == "Webhook" {
				flags["authorization-webhook-config-file"], flags["authorization-webhook-version"] = webhook, "v1"
			}
			config := configured(t, flags)
			jane := newClient(t, bearer(config, "jane"))
			if err := jane.List(t.Context(), &corev1.ConfigMapList{}); (err == nil) != allowed.list {
				t.Errorf("list: %v", err)
			}
			if err := jane.Create(t.Context(), configMap("hers")); (err == nil) != allowed.create {
				t.Errorf("create: %v", err)
			}
			admin := newClient(t, config)
			orphan := configMap("orphan", metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "none", UID: "none"})
			create(t, admin, orphan)
			gone(t, admin, orphan)
		})
	}
}

// Admission plug-ins by name.
func TestAdmissionFlags(t *testing.T) {
	config := configured(t, map[string]string{
		"enable-admission-plugins":  "OwnerReferencesPermissionEnforcement,PodSecurity",
		"disable-admission-plugins": "ServiceAccount,TaintNodesByCondition,NamespaceLifecycle",
	})
	c := newClient(t, config)
	unserved := metav1.OwnerReference{APIVersion: "example.com/v1", Kind: "Unserved", Name: "none", UID: "1", BlockOwnerDeletion: new(true)}
	if err := c.Create(t.Context(), configMap("owned", unserved)); err == nil {
		t.Error("the plug-in for owner references is not enabled")
	}
	// What NamespaceLifecycle alone refuses.
	if err := c.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-public"}}); err != nil {
		t.Errorf("NamespaceLifecycle is not disabled: %v", err)
	}
}

// The audit log, and flags that do not change what can be seen here: the server starts.
func TestFurtherFlags(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	config := configured(t, map[string]string{
		"audit-log-path": path, "audit-policy-file": write(t, "policy.yaml", "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Request, resources: [{resources: [configmaps]}]}]\n"),
		"feature-gates": "CrossNamespaceVolumeDataSource=true,WatchList=true", "runtime-config": "api/all=true", "max-requests-inflight": "100", "max-mutating-requests-inflight": "50",
		"delete-collection-workers": "4", "v": "4", "vmodule": "x=1", "storage-backend": "etcd3", "watch-cache": "false", "service-node-port-range": "20000-22767",
		"advertise-address": "127.0.0.1", "profiling": "false", "etcd-prefix": "/elsewhere", "tls-min-version": "VersionTLS13",
		"admission-control-config-file": write(t, "admission.yaml", "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins: []\n"),
	})
	audited := configMap("audited")
	audited.Data = map[string]string{"in": "the body"}
	create(t, newClient(t, config), audited)
	eventually(t, "it is not in the audit log", func(context.Context) (bool, error) {
		logged, err := os.ReadFile(path)
		return strings.Contains(string(logged), "the body") && !strings.Contains(string(logged), "/namespaces/default\""), err
	})
}

func TestFlagsThatAreNone(t *testing.T) {
	for name, value := range map[string]string{
		"no-such-flag": "1", "secure-port": "many", "authorization-mode": "Guess", "disable-admission-plugins": "NoSuchPlugin", "feature-gates": "WatchList=perhaps",
		"token-auth-file": "/no/such/file", "service-cluster-ip-range": "all",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			said := &strings.Builder{}
			environment := &envtest.Environment{}
			server := environment.ControlPlane.GetAPIServer()
			server.Configure().Set(name, value)
			server.Err = said
			if err := environment.ControlPlane.Start(); err == nil {
				t.Errorf("it starts with --%s=%s", name, value)
			}
			if err := environment.Stop(); err != nil {
				t.Error(err)
			}
			if !strings.Contains(said.String(), name) && !strings.Contains(said.String(), value) {
				t.Errorf("it says %q", said)
			}
		})
	}
}

// Controllers and nodes that a suite asks for.
func TestControllersAndNodesOnRequest(t *testing.T) {
	t.Setenv("COPPICE_CONTROLLERS", "gc,namespace,workloads,scheduler")
	t.Setenv("COPPICE_NODES", "1")
	c := newClient(t, start(t, &envtest.Environment{}))
	web := deployment("web")
	create(t, c, web)
	eventually(t, "the deployment is not available", func(ctx context.Context) (bool, error) {
		err := c.Get(ctx, client.ObjectKeyFromObject(web), web)
		return web.Status.AvailableReplicas == 1, err
	})
	if err := c.Delete(t.Context(), web, client.PropagationPolicy(metav1.DeletePropagationForeground)); err != nil {
		t.Fatal(err)
	}
	gone(t, c, web)
}

func deployment(name string) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: name, Image: name}}}},
		},
	}
}
