package system

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/coppice-dev/coppice/internal/apiserver/auth/bootstrappolicy"
	"github.com/coppice-dev/coppice/internal/node/agent"
	"github.com/coppice-dev/coppice/internal/node/agent/containerruntime/cri"
	"github.com/coppice-dev/coppice/internal/node/agent/nodeconfig"
)

// NodeOptions configure the agent of one node in a process of its own. All fields except Reread,
// Name, Port, Lease, Socket and Dir are required.
type NodeOptions struct {
	// Config reaches the API server with the node's own credential.
	Config *rest.Config
	// Reread reads Config again, after a renewal of the certificate; nil if it is never renewed.
	Reread func() (*rest.Config, error)
	// Name is the name of the node. Default: the name in its credential.
	Name string
	// Runtime is nodeconfig.Simulated or nodeconfig.CRI, and Socket the CRI endpoint. Dir is the
	// directory for logs and volumes of pods; no other user may read it.
	Runtime, Socket, Dir string
	// Address is the IP address of the node.
	Address net.IP
	// Bind is the IP address to serve logs on, and Port the port, or a free one if 0. Logs are served if
	// the API server can reach them at Address.
	Bind net.IP
	Port int
	// Lease is the duration of the node's Lease. Default: agent.DefaultLease.
	Lease time.Duration
	// Version is reported as the version of the agent.
	Version string
	Log     *slog.Logger
}

// ErrNoNode means that no name is given and the credential does not belong to a node.
var ErrNoNode = errors.New("is not a node's")

// RunNode runs the agent of one node until ctx ends. It calls ready once, with the node's name, when the
// node is registered. Real containers keep running afterwards; the next agent adopts them.
func RunNode(ctx context.Context, o NodeOptions, ready func(name string)) error {
	credential, err := loadCredential(o)
	if err != nil {
		return err
	}
	client, err := credential.client(o.Config)
	if err != nil {
		return fmt.Errorf("create the client of the node: %w", err)
	}
	if o.Name, err = nameOf(ctx, client, o.Name); err != nil {
		return err
	}
	logs, err := openLogs(ctx, o, credential)
	if err != nil {
		return err
	}
	defer logs.close()
	own, err := nodeconfig.Open(ctx, nodeconfig.Options{
		Runtime: o.Runtime, Socket: o.Socket, Dir: o.Dir, Nodes: 1, Name: o.Name, Address: o.Address.String(), Version: o.Version, Log: o.Log,
		Objects: cri.FromAPI(client, o.Config.Host),
	})
	if err != nil {
		return err
	}
	own.Nodes[0].Port = logs.port()
	a, err := agent.New(agent.Config{
		Client: client, Runtime: own.Runtime, Nodes: own.Nodes, Logger: o.Log, Lease: o.Lease,
		Registered: func() { ready(o.Name) },
	})
	if err != nil {
		return err
	}
	served, err := a.Only(o.Name)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return logs.serve(ctx, served) })
	group.Go(func() error { return a.Run(ctx) })
	group.Go(func() error {
		credential.keepFresh(ctx, clock.RealClock{})
		return nil
	})
	return group.Wait()
}

// nameOf returns the name of the client's node.
func nameOf(ctx context.Context, client kubernetes.Interface, wanted string) (string, error) {
	review, err := client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("find out which node this is: %w", err)
	}
	user := review.Status.UserInfo.Username
	name, isNode := strings.CutPrefix(user, bootstrappolicy.NodeUserPrefix)
	switch {
	case isNode && wanted != "" && wanted != name:
		return "", fmt.Errorf("the credential is that of node %s, and not of %s", name, wanted)
	case isNode:
		return name, nil
	case wanted == "":
		return "", fmt.Errorf("the credential of user %s %w", user, ErrNoNode)
	}
	return wanted, nil
}
