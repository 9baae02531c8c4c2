package etcd

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"path"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

const (
	// healthTimeout is how long etcd may take to respond before it counts as unhealthy.
	healthTimeout = 2 * time.Second
	// statusTimeout bounds the status request to each member. The check for a refused certificate
	// may have to load the system's CAs first.
	statusTimeout = 3 * time.Second
)

// Healthy reads one key. The error names the server of an etcd cluster that does not respond, or
// says that the members have no leader.
func (s *Store) Healthy(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	return s.reach(ctx)
}

// reach reads one key until ctx ends. It fails while there is no leader.
func (s *Store) reach(ctx context.Context) error {
	_, err := s.client.Get(ctx, s.healthKey(), clientv3.WithCountOnly())
	switch {
	case err == nil:
		return nil
	case !s.isElsewhere():
		return fmt.Errorf("read from etcd: %w", err)
	}
	// The failed read may have used up the time of ctx, so the diagnosis has its own timeout.
	asking, cancel := context.WithTimeout(context.WithoutCancel(ctx), statusTimeout)
	defer cancel()
	return cause{"etcd does not answer: " + strings.Join(s.conditions(asking), ", "), err}
}

// conditions returns the condition of each server of an etcd cluster.
func (s *Store) conditions(ctx context.Context) []string {
	endpoints := s.client.Endpoints()
	conditions := make([]string, len(endpoints))
	var asking sync.WaitGroup
	for i, endpoint := range endpoints {
		asking.Go(func() {
			conditions[i] = endpoint + ": " + condition(s.ask(ctx, endpoint))
		})
	}
	asking.Wait()
	return conditions
}

// ask requests the status of one server on a new connection: the client would retry until ctx ends,
// and not return the cause.
func (s *Store) ask(ctx context.Context, endpoint string) (*etcdserverpb.StatusResponse, error) {
	secure := insecure.NewCredentials()
	if s.tls != nil {
		secure = credentials.NewTLS(s.tls)
	}
	_, address, _ := strings.Cut(endpoint, "://")
	connection, err := grpc.NewClient(address, grpc.WithTransportCredentials(secure))
	if err != nil {
		return nil, err
	}
	defer connection.Close()
	response, err := etcdserverpb.NewMaintenanceClient(connection).Status(ctx, &etcdserverpb.StatusRequest{})
	if err == nil {
		return response, nil
	}
	if refusal := s.refusal(ctx, address); refusal != nil {
		return nil, refusal
	}
	return nil, err
}

// refusal returns the error of a server that refuses this client's certificate, or nil. With TLS
// 1.3 the server responds after the client's side of the handshake has ended: a client that has
// begun to write by then may find the connection broken before it reads the reason.
func (s *Store) refusal(ctx context.Context, address string) error {
	if s.tls == nil {
		return nil
	}
	connection, err := (&tls.Dialer{Config: s.tls}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil // the caller already has that error
	}
	defer connection.Close()
	if deadline, ok := ctx.Deadline(); ok {
		_ = connection.SetReadDeadline(deadline)
	}
	_, err = connection.Read(make([]byte, 1))
	if alert, ok := errors.AsType[*net.OpError](err); ok && alert.Op == "remote error" {
		return alert
	}
	return nil
}

func condition(response *etcdserverpb.StatusResponse, err error) string {
	switch {
	case err != nil:
		return Cause(err).Error()
	case response.GetLeader() == 0:
		return "no leader: most members of the cluster are out of its reach"
	case len(response.GetErrors()) > 0:
		return strings.Join(response.GetErrors(), "; ")
	}
	return "ok"
}

// Cause returns the cause of a failed call, without the connection layers around it.
func Cause(err error) error {
	text := err.Error()
	if s, ok := status.FromError(err); ok {
		text = s.Message()
	}
	for _, layer := range []string{"desc = ", "Error while dialing: ", "connect: "} {
		if i := strings.LastIndex(text, layer); i >= 0 {
			text = text[i+len(layer):]
		}
	}
	return cause{strings.Trim(text, `"`), err}
}

// cause is an error with a message of its own.
type cause struct {
	text string
	err  error
}

func (c cause) Error() string { return c.text }
func (c cause) Unwrap() error { return c.err }

// Revision returns the current revision of the whole store.
func (s *Store) Revision(ctx context.Context) (int64, error) {
	r, err := s.client.Get(ctx, s.healthKey(), clientv3.WithCountOnly())
	if err != nil {
		return 0, fmt.Errorf("read from etcd: %w", err)
	}
	return r.Header.Revision, nil
}

// healthKey returns a key that never exists.
func (s *Store) healthKey() string { return path.Join(s.prefix, "health") }

// Full reports whether etcd accepts no writes because its quota is used up.
func (s *Store) Full(ctx context.Context) (bool, error) {
	alarms, err := s.client.AlarmList(ctx)
	if err != nil {
		return false, fmt.Errorf("ask etcd for alarms: %w", err)
	}
	for _, alarm := range alarms.Alarms {
		if alarm.Alarm == etcdserverpb.AlarmType_NOSPACE {
			return true, nil
		}
	}
	return false, nil
}
