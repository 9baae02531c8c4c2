package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/coppice-dev/coppice/internal/collect/namespaces"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
	"github.com/coppice-dev/coppice/internal/tools/preview"
)

// previewFromCluster reads the cluster, and predicts the deletion of the objects that flags and arguments name.
func previewFromCluster(ctx context.Context, f *previewFlags, policy metav1.DeletionPropagation, args []string, s Streams) (prediction, error) {
	q, err := f.cluster.ask(ctx, s, args, func(inv *inventory.Inventory, notes io.Writer) ([]ownership.UID, error) {
		return f.targets.choose(inv, &f.cluster, args, notes)
	})
	if q.Inventory != nil {
		printUnread(s.Err, q.Inventory.Unread)
		_, _ = io.WriteString(s.Err, q.notes)
	}
	if err != nil {
		return prediction{}, err
	}
	if len(q.uids) == 0 {
		return prediction{}, errors.New("no objects found")
	}
	if q.Order, err = f.deletionOrder(ctx, q.config); err != nil {
		return prediction{}, err
	}
	q.Now = time.Now()
	predicted := q.Preview(ctx, preview.RequestsOf(q.uids, policy), f.released)
	printUnread(s.Err, predicted.Unread[len(q.Inventory.Unread):])
	result := prediction{policy: policy, report: predicted.Report(q.Inventory)}
	for _, uid := range q.uids {
		result.targets = append(result.targets, q.Inventory.Object(uid))
	}
	return result, nil
}

// deletionOrder returns the order in which the cluster's namespace controller deletes the contents of a namespace.
func (f *previewFlags) deletionOrder(ctx context.Context, config *rest.Config) (namespaces.Order, error) {
	if f.order != "" {
		order, err := namespaces.NewOrder(namespaces.ParseStages(f.order))
		if err != nil {
			return order, usageError{fmt.Errorf("--namespace-deletion-order: %w", err)}
		}
		return order, nil
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return namespaces.Order{}, fmt.Errorf("make a client: %w", err)
	}
	ours := isCoppice(ctx, func(ctx context.Context, path string) ([]byte, error) {
		return client.Discovery().RESTClient().Get().AbsPath(path).DoRaw(ctx)
	})
	if ours {
		return namespaces.Order{}, nil
	}
	return namespaces.UpstreamOrder(), nil
}
