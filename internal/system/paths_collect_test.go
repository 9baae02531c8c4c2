package system

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/coppice-dev/coppice/collector"
	"github.com/coppice-dev/coppice/internal/apiserver/auth/bootstrappolicy"
	"github.com/coppice-dev/coppice/internal/collect/namespaces"
	"github.com/coppice-dev/coppice/internal/collect/protected"
	"github.com/coppice-dev/coppice/internal/rules/protection"
	"github.com/coppice-dev/coppice/internal/testing/eventually"
	"github.com/coppice-dev/coppice/internal/tools/metrics"
	"github.com/coppice-dev/coppice/internal/tools/web/api"
)

// Every identity requests every path of a collector that works on another server, with the same results as in the
// control plane: nodes and components are refused, no identity gets objects that it may not list, and a recreated
// namespace does not show its former contents.
func TestEveryPathOfCollectByEveryIdentity(t *testing.T) {
	t.Parallel()
	runWithPlane(t, Options{Ephemeral: true, GarbageCollector: Disabled, NamespaceController: Disabled}, func(ctx context.Context, p Plane) error {
		config, err := clientcmd.BuildConfigFromFlags("", p.Kubeconfig)
		if err != nil {
			return err
		}
		server, err := tokenServer(t, config)
		if err != nil {
			return err
		}
		outside, err := collecting(ctx, t, config, server)
		if err != nil {
			return err
		}
		defer outside.stop()
		tools := outside.tools
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			return err
		}
		if err := prepareCollectWalk(ctx, client); err != nil {
			return err
		}
		eventually.Agrees(t, func() string {
			if code, body := getAs(t, asToken(tools, adminToken), api.Component+"?object=secrets/default/"+secretName); code != http.StatusOK {
				return fmt.Sprintf("an administrator asks: %d %s", code, body)
			}
			return ""
		})
		for who, want := range map[string]walked{
			"": refused, "nobody knows this": refused, "bob": answered, "ann": answered, adminToken: told,
			bootstrappolicy.NodeUserPrefix + "na": refused, bootstrappolicy.Collector: refused, bootstrappolicy.NamespaceController: refused,
			bootstrappolicy.Scheduler: refused, "system:kube-scheduler": refused, "system:kube-controller-manager": refused, "system:kube-proxy": refused,
		} {
			for _, route := range api.Routes() {
				method, path, _ := strings.Cut(route, " ")
				if method != http.MethodGet {
					continue
				}
				for _, query := range queriesOf(path, []string{"absent"}) {
					walk(t, asToken(tools, who), "user "+who, path+query, want)
				}
			}
			if code, _ := sendAs(t, asToken(tools, who), http.MethodPost, api.Resume+"?kind=Secret"); want != told && code != http.StatusUnauthorized && code != http.StatusForbidden {
				t.Errorf("user %s resumes the deletions of Secrets: %d", who, code)
			}
		}
		if err := walkProtect(ctx, t, client, outside.protect); err != nil {
			return err
		}
		return changeTenants(ctx, t, client, asToken(tools, adminToken), func(name string) *rest.Config { return asToken(tools, name) })
	})
}

// adminToken is the token and the name of an administrator.
const adminToken = "admin"

func asToken(config *rest.Config, token string) *rest.Config {
	one := rest.CopyConfig(config)
	one.BearerToken = token
	return one
}

// tokenServer returns the configuration of a proxy that accepts the name of a user as the user's token.
func tokenServer(t *testing.T, config *rest.Config) (*rest.Config, error) {
	t.Helper()
	target, err := url.Parse(config.Host)
	if err != nil {
		return nil, err
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		return nil, err
	}
	proxy := &httputil.ReverseProxy{Transport: transport, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(target)
		name := strings.TrimPrefix(r.In.Header.Get("Authorization"), "Bearer ")
		r.Out.Header.Del("Authorization")
		r.Out.Header.Set("Impersonate-User", name)
		if name == adminToken {
			r.Out.Header.Set("Impersonate-Group", "system:masters")
		}
		if strings.HasPrefix(name, bootstrappolicy.NodeUserPrefix) {
			r.Out.Header.Set("Impersonate-Group", "system:nodes")
		}
	}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.Header.Get("Authorization"), "knows this") {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return &rest.Config{Host: server.URL}, nil
}

// collect is the controllers and handlers of coppice collect.
type collect struct {
	tools   *rest.Config
	protect http.Handler // the webhook for protected objects
	stop    func()
}

// collecting runs the controllers of coppice collect, and serves their API. It authenticates callers by the tokens of
// another server.
func collecting(ctx context.Context, t *testing.T, config, tokens *rest.Config) (*collect, error) {
	t.Helper()
	var controllers metrics.Controllers
	if err := controllers.AddCollector(config, collector.Options{}); err != nil {
		return nil, err
	}
	if err := controllers.AddNamespaceController(config, namespaces.Options{}); err != nil {
		return nil, err
	}
	protect, err := protected.NewHandler(ctx, config, controllers.Carries)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = controllers.Run(ctx)
	}()
	stop := func() {
		cancel()
		<-ended
	}
	if err := controllers.WaitForSync(ctx); err != nil {
		stop()
		return nil, err
	}
	server := httptest.NewServer(api.Handler(api.Of(controllers.Controllers, nil, protection.Limits{}), api.Delegated(tokens)))
	t.Cleanup(server.Close)
	return &collect{tools: &rest.Config{Host: server.URL}, protect: protect, stop: stop}, nil
}

// prepareCollectWalk creates a Secret in a namespace in which ann may view.
func prepareCollectWalk(ctx context.Context, client kubernetes.Interface) error {
	if _, err := client.CoreV1().Secrets("default").Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: secretName}}, metav1.CreateOptions{}); err != nil {
		return err
	}
	_, err := client.RbacV1().RoleBindings("default").Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "reads"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "ann"}},
	}, metav1.CreateOptions{})
	return err
}
