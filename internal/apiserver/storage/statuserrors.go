package storage

import (
	"context"
	"errors"
	"net/http"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	etcdkubernetes "go.etcd.io/etcd/client/v3/kubernetes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/internal/apiserver/etcd"
)

const (
	// callTimeout bounds each call to etcd except lists, which may take long. etcd itself gives up
	// a write after 7 s without a quorum; clientv3 would retry a read until the request ends, a
	// minute later.
	callTimeout = 9 * time.Second

	// ReasonInsufficientStorage is the reason of a write that a full etcd refused.
	ReasonInsufficientStorage metav1.StatusReason = "InsufficientStorage"
)

// statusErrors converts errors of etcd into API errors, which say whether the request may have been
// carried out, and whether it can be retried.
type statusErrors struct{ etcdkubernetes.Interface }

// Get implements etcdkubernetes.Interface.
func (e statusErrors) Get(ctx context.Context, key string, opts etcdkubernetes.GetOptions) (etcdkubernetes.GetResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	response, err := e.Interface.Get(ctx, key, opts)
	return response, readError(err)
}

// List implements etcdkubernetes.Interface.
func (e statusErrors) List(ctx context.Context, prefix string, opts etcdkubernetes.ListOptions) (etcdkubernetes.ListResponse, error) {
	response, err := e.Interface.List(ctx, prefix, opts)
	return response, readError(err)
}

// Count implements etcdkubernetes.Interface.
func (e statusErrors) Count(ctx context.Context, prefix string, opts etcdkubernetes.CountOptions) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	n, err := e.Interface.Count(ctx, prefix, opts)
	return n, readError(err)
}

// OptimisticPut implements etcdkubernetes.Interface.
func (e statusErrors) OptimisticPut(
	ctx context.Context, key string, value []byte, expectedRevision int64, opts etcdkubernetes.PutOptions,
) (etcdkubernetes.PutResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	response, err := e.Interface.OptimisticPut(ctx, key, value, expectedRevision, opts)
	return response, writeError(err)
}

// OptimisticDelete implements etcdkubernetes.Interface.
func (e statusErrors) OptimisticDelete(
	ctx context.Context, key string, expectedRevision int64, opts etcdkubernetes.DeleteOptions,
) (etcdkubernetes.DeleteResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	response, err := e.Interface.OptimisticDelete(ctx, key, expectedRevision, opts)
	return response, writeError(err)
}

// readError returns the API error for a failed read. A read can be retried.
func readError(err error) error {
	if !isUnavailable(err) {
		return err
	}
	unavailable := apierrors.NewServiceUnavailable("etcd does not answer: " + etcd.Cause(err).Error())
	unavailable.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: 1}
	return unavailable
}

// writeError returns the API error for a failed write. A write without a response may have been
// carried out, so the error does not ask the client to retry.
func writeError(err error) error {
	switch {
	case errors.Is(err, rpctypes.ErrNoSpace):
		return &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusInsufficientStorage, Reason: ReasonInsufficientStorage,
			Message: "etcd is full: its quota is used up, and it takes no writes until objects were deleted and their space was given back",
		}}
	case errors.Is(err, rpctypes.ErrTooManyOps):
		return &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid,
			Message: etcd.ErrTooManyReserved.Error(),
		}}
	case isUnavailable(err):
		return apierrors.NewTimeoutError("etcd does not answer, and the write may or may not have been carried out: look before you repeat it: "+etcd.Cause(err).Error(), 0)
	}
	return err
}

// isUnavailable reports whether etcd did not respond: no leader, no quorum, no connection, no time
// left.
func isUnavailable(err error) bool {
	if err == nil || errors.Is(err, context.Canceled) {
		return false // the client is gone
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return true
	}
	if e, ok := errors.AsType[rpctypes.EtcdError](err); ok {
		return e.Code() == codes.Unavailable || e.Code() == codes.DeadlineExceeded
	}
	switch s, ok := status.FromError(err); {
	case !ok:
		return false
	default:
		return s.Code() == codes.Unavailable || s.Code() == codes.DeadlineExceeded
	}
}
