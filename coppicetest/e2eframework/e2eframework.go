// Package e2eframework lets suites of sigs.k8s.io/e2e-framework run on Coppice as on kind or kwok: it
// is a provider of clusters. Each cluster is a control plane of package coppicetest.
//
//	environment.Setup(envfuncs.CreateCluster(e2eframework.NewProvider(), "shop"))
//	environment.Finish(envfuncs.DestroyCluster("shop"))
//
// A cluster is a process, not a container, and always ends with the process of the suite. Features
// reach the control plane with Plane, for checks of package coppicetest that other providers do not
// have: whether collection has come to rest, and which objects were left behind. The package is a
// module of its own, because coppicetest requires nothing of k8s.io.
package e2eframework

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/coppice-dev/coppice/coppicetest"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/e2e-framework/klient"
	"sigs.k8s.io/e2e-framework/klient/conf"
	"sigs.k8s.io/e2e-framework/pkg/envfuncs"
	"sigs.k8s.io/e2e-framework/support"
)

// Cluster is a control plane in a process of its own. It implements the framework's provider
// interface.
type Cluster struct {
	name    string
	version string               // that the suite wants; "" for any
	path    string               // of the binary; "" to search for it
	options []coppicetest.Option // nil for the default ones

	plane  *coppicetest.Plane // nil before Create and after Destroy
	config *rest.Config
}

var _ support.E2EClusterProvider = (*Cluster)(nil)

// NewProvider returns a provider for one cluster.
func NewProvider() support.E2EClusterProvider { return &Cluster{} }

// NewCluster returns a cluster that is not created yet.
func NewCluster(name string) *Cluster { return &Cluster{name: name} }

// WithOptions starts the control plane with these options, instead of WithNodes(1), which runs the
// controllers of workloads, a scheduler and a simulated node. It goes to
// envfuncs.CreateClusterWithOpts.
func WithOptions(options ...coppicetest.Option) support.ClusterOpts {
	return func(provider support.E2EClusterProvider) {
		if c, ok := provider.(*Cluster); ok {
			c.options = append([]coppicetest.Option{}, options...) // not nil, even without any
		}
	}
}

// Plane returns the control plane of the cluster that the suite has created under this name, and
// whether there is one.
func Plane(ctx context.Context, name string) (*coppicetest.Plane, bool) {
	provider, _ := envfuncs.GetClusterFromContext(ctx, name)
	c, ok := provider.(*Cluster)
	if !ok || c.plane == nil {
		return nil, false
	}
	return c.plane, true
}

// SetDefaults implements support.E2EClusterProvider.
func (c *Cluster) SetDefaults() support.E2EClusterProvider {
	if c.options == nil {
		c.options = []coppicetest.Option{coppicetest.WithNodes(1)}
	}
	return c
}

// WithName names the cluster in errors and in the context of the suite. The name is not used on the
// machine, so suites that run side by side may choose the same.
func (c *Cluster) WithName(name string) support.E2EClusterProvider {
	c.name = name
	return c
}

// WithVersion makes Create fail unless the binary serves this version of Kubernetes, such as v1.37. A
// binary serves one.
func (c *Cluster) WithVersion(version string) support.E2EClusterProvider {
	c.version = version
	return c
}

// WithPath runs this binary instead of the result of coppicetest.Binary.
func (c *Cluster) WithPath(path string) support.E2EClusterProvider {
	c.path = path
	return c
}

// WithOpts implements support.E2EClusterProvider.
func (c *Cluster) WithOpts(options ...support.ClusterOpts) support.E2EClusterProvider {
	for _, set := range options {
		set(c)
	}
	return c
}

// Create starts the control plane, unless it is already running, and returns the path of its
// kubeconfig. The arguments are passed to coppice up.
func (c *Cluster) Create(ctx context.Context, args ...string) (string, error) {
	if c.plane != nil {
		return c.plane.Kubeconfig, nil
	}
	c.SetDefaults()
	options := append([]coppicetest.Option{}, c.options...)
	if c.path != "" {
		options = append(options, coppicetest.WithBinary(c.path))
	}
	plane, err := coppicetest.Open(ctx, append(options, coppicetest.WithArguments(args...))...)
	if err != nil {
		return "", fmt.Errorf("create cluster %q: %w", c.name, err)
	}
	c.plane = plane
	if err := c.connect(); err != nil {
		return "", errors.Join(fmt.Errorf("create cluster %q: %w", c.name, err), c.Destroy(ctx))
	}
	return plane.Kubeconfig, nil
}

// CreateWithConfig calls Create. It returns an error for a file, because Coppice has no configuration
// file.
func (c *Cluster) CreateWithConfig(ctx context.Context, configFile string) (string, error) {
	if configFile != "" {
		return "", fmt.Errorf("create cluster %q with %s: coppice has no configuration file; use WithOptions", c.name, configFile)
	}
	return c.Create(ctx)
}

// connect makes the config of clients, and checks the version.
func (c *Cluster) connect() error {
	config, err := conf.New(c.plane.Kubeconfig)
	if err != nil {
		return err
	}
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return err
	}
	served, err := client.ServerVersion()
	if err != nil {
		return err
	}
	if !serves(served.GitVersion, c.version) {
		return fmt.Errorf("the binary serves Kubernetes %s, not %s", served.GitVersion, c.version)
	}
	c.config = config
	return nil
}

// serves reports whether a server of a version such as v1.37.2+coppice-0.1.0 meets the wanted
// version, which may have fewer parts and no v.
func serves(version, wanted string) bool {
	version, wanted = strings.TrimPrefix(version, "v"), strings.TrimPrefix(wanted, "v")
	rest, ok := strings.CutPrefix(version, wanted)
	return ok && (wanted == "" || rest == "" || strings.ContainsRune(".+-", rune(rest[0])))
}

// WaitForControlPlane returns when the server reports that it is ready.
func (c *Cluster) WaitForControlPlane(ctx context.Context, client klient.Client) error {
	server, err := discovery.NewDiscoveryClientForConfig(client.RESTConfig())
	if err != nil {
		return err
	}
	if err := server.RESTClient().Get().AbsPath("/readyz").Do(ctx).Error(); err != nil {
		return fmt.Errorf("cluster %q is not ready: %w", c.name, err)
	}
	return nil
}

// GetKubeconfig returns the path of the kubeconfig, or "" if the cluster does not run.
func (c *Cluster) GetKubeconfig() string {
	if c.plane == nil {
		return ""
	}
	return c.plane.Kubeconfig
}

// GenerateKubeconfig returns the path of the kubeconfig. It takes no arguments; coppicetest's
// Plane.User makes the kubeconfig of another user.
func (c *Cluster) GenerateKubeconfig(args ...string) (string, error) {
	if c.plane == nil {
		return "", fmt.Errorf("cluster %q does not run", c.name)
	}
	if len(args) > 0 {
		return "", fmt.Errorf("kubeconfig of cluster %q: %q: there are no arguments", c.name, args)
	}
	return c.plane.Kubeconfig, nil
}

// GetKubectlContext returns the context of the kubeconfig, or "" if the cluster does not run.
func (c *Cluster) GetKubectlContext() string {
	config, err := clientcmd.LoadFromFile(c.GetKubeconfig())
	if err != nil {
		return ""
	}
	return config.CurrentContext
}

// KubernetesRestConfig returns the administrator's config, or nil before Create.
func (c *Cluster) KubernetesRestConfig() *rest.Config { return c.config }

// ExportLogs writes the log of the process, and the collected objects with the reasons, to a
// directory.
func (c *Cluster) ExportLogs(ctx context.Context, dest string) error {
	if c.plane == nil {
		return fmt.Errorf("export the logs of cluster %q: it does not run", c.name)
	}
	return c.plane.ExportLogs(ctx, dest)
}

// Destroy ends the process and removes its data. If the process does not run, it does nothing.
func (c *Cluster) Destroy(context.Context) error {
	if c.plane == nil {
		return nil
	}
	plane := c.plane
	c.plane, c.config = nil, nil
	if err := plane.Close(); err != nil {
		return fmt.Errorf("destroy cluster %q: %w", c.name, err)
	}
	return nil
}
