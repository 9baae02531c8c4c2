package storageversionmigrator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	storagemigrationv1 "k8s.io/api/storagemigration/v1"
	apiextensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	storagemigrationinformers "k8s.io/client-go/informers/storagemigration/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"

	"github.com/coppice-dev/coppice/internal/controller"
)

const (
	name    = "storage-version-migrator-controller"
	workers = 2

	byResource = "resource" // of migrations

	// discoveryPatience is how long after its creation a migration waits for its resource to be served.
	discoveryPatience = time.Minute
	// discoveryPeriod is the interval at which it looks for the resource meanwhile.
	discoveryPeriod = 2 * time.Second
)

// Config configures the controller. All fields are required.
type Config struct {
	Client      kubernetes.Interface
	Metadata    metadata.Interface
	Definitions apiextensionsclient.CustomResourceDefinitionsGetter
	Now         func() time.Time
}

type reconciler struct {
	Config
	migrations cache.Indexer
}

// New returns the controller. It has a user of its own, who may rewrite any object.
func New(config Config) (*controller.Controller, error) {
	if config.Client == nil || config.Metadata == nil || config.Definitions == nil || config.Now == nil {
		return nil, errors.New("storageversionmigrator: clients and a clock are required")
	}
	informer := storagemigrationinformers.NewStorageVersionMigrationInformer(config.Client, 0, cache.Indexers{byResource: resourceOf})
	c := &reconciler{config, informer.GetIndexer()}
	return &controller.Controller{
		Name: name, Reconcile: c.reconcile, Workers: workers, Informers: []cache.SharedIndexInformer{informer},
		Sources: []controller.Source{{Informer: informer, Keys: c.sameResource, Ignore: sameStep}},
	}, nil
}

func resourceOf(obj any) ([]string, error) {
	m, ok := obj.(*storagemigrationv1.StorageVersionMigration)
	if !ok {
		return nil, nil
	}
	return []string{m.Spec.Resource.String()}, nil
}

// sameResource returns the keys of a migration and of all others of its resource, which may have waited for it.
func (c *reconciler) sameResource(obj any) []cache.ObjectName {
	m, ok := obj.(*storagemigrationv1.StorageVersionMigration)
	if !ok {
		return nil
	}
	keys := []cache.ObjectName{{Name: m.Name}}
	for _, other := range c.of(m.Spec.Resource) {
		if other.Name != m.Name {
			keys = append(keys, cache.ObjectName{Name: other.Name})
		}
	}
	return keys
}

// sameStep reports whether a change to a migration is followed by the same step: only the texts of its conditions differ, for
// instance. The controller writes there why objects could not be migrated, and repeats that after a back-off.
func sameStep(before, now any) bool {
	a, ok := before.(*storagemigrationv1.StorageVersionMigration)
	b, both := now.(*storagemigrationv1.StorageVersionMigration)
	return ok && both && a.UID == b.UID && a.Spec == b.Spec && a.Status.ResourceVersion == b.Status.ResourceVersion &&
		a.DeletionTimestamp.IsZero() == b.DeletionTimestamp.IsZero() &&
		slices.EqualFunc(a.Status.Conditions, b.Status.Conditions, func(a, b metav1.Condition) bool {
			return a.Type == b.Type && a.Status == b.Status
		})
}

// of returns the migrations of a resource.
func (c *reconciler) of(resource metav1.GroupResource) []*storagemigrationv1.StorageVersionMigration {
	found, _ := c.migrations.ByIndex(byResource, resource.String()) // the index exists
	var all []*storagemigrationv1.StorageVersionMigration
	for _, obj := range found {
		if m, ok := obj.(*storagemigrationv1.StorageVersionMigration); ok {
			all = append(all, m)
		}
	}
	return all
}

func (c *reconciler) reconcile(ctx context.Context, key cache.ObjectName) (time.Duration, error) {
	obj, exists, err := c.migrations.GetByKey(key.Name)
	cached, ok := obj.(*storagemigrationv1.StorageVersionMigration)
	if err != nil || !exists || !ok {
		return 0, err
	}
	m := cached.DeepCopy()
	switch Decide(cached, c.of(cached.Spec.Resource)) {
	case Start:
		return 0, c.start(ctx, m)
	case Observe:
		return c.observe(ctx, m)
	case Migrate:
		return c.migrate(ctx, m)
	case Finish:
		return 0, c.finish(ctx, m)
	case Wait:
	}
	return 0, nil
}

func (c *reconciler) start(ctx context.Context, m *storagemigrationv1.StorageVersionMigration) error {
	if err := c.markDefinition(ctx, m); err != nil {
		return err
	}
	return c.update(ctx, m, condition(storagemigrationv1.MigrationRunning, reasonRunning, progress(0, 0, nil)))
}

func (c *reconciler) finish(ctx context.Context, m *storagemigrationv1.StorageVersionMigration) error {
	if err := c.finishDefinition(ctx, m); err != nil {
		return err
	}
	done := condition(storagemigrationv1.MigrationRunning, reasonCompleted, "Migration completed")
	done.Status = metav1.ConditionFalse
	return c.update(ctx, m, done)
}

func (c *reconciler) fail(ctx context.Context, m *storagemigrationv1.StorageVersionMigration, message string) error {
	return c.update(ctx, m, condition(storagemigrationv1.MigrationFailed, reasonFailed, message))
}

// update sets conditions, and writes the status if that changes it. The write is conditioned on uid and resourceVersion.
func (c *reconciler) update(ctx context.Context, m *storagemigrationv1.StorageVersionMigration, conditions ...metav1.Condition) error {
	changed := false
	for _, condition := range conditions {
		condition.LastTransitionTime = metav1.NewTime(c.Now())
		changed = meta.SetStatusCondition(&m.Status.Conditions, condition) || changed
	}
	if !changed && len(conditions) > 0 {
		return nil
	}
	if _, err := c.Client.StoragemigrationV1().StorageVersionMigrations().UpdateStatus(ctx, m, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("write the status of migration %s: %w", m.Name, err)
	}
	return nil
}

// observe records the current resource version of the resource. It fails a migration whose resource cannot be migrated.
func (c *reconciler) observe(ctx context.Context, m *storagemigrationv1.StorageVersionMigration) (time.Duration, error) {
	resource, retry, err := c.resolve(ctx, m)
	if err != nil || retry > 0 || resource == nil {
		return retry, err
	}
	list, err := c.Metadata.Resource(*resource).List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return 0, fmt.Errorf("read the resource version of %s: %w", resource, err)
	}
	m.Status.ResourceVersion = list.ResourceVersion
	return 0, c.update(ctx, m)
}

// resolve returns the resource of a migration as it is served. Without it, it returns the time after which to look
// again, or it has failed the migration.
func (c *reconciler) resolve(ctx context.Context, m *storagemigrationv1.StorageVersionMigration) (*schema.GroupVersionResource, time.Duration, error) {
	found, complaint, err := findResource(c.Client.Discovery(), m.Spec.Resource)
	switch {
	case err != nil:
		return nil, 0, fmt.Errorf("discover %s: %w", m.Spec.Resource.String(), err)
	case complaint != "":
		return nil, 0, c.fail(ctx, m, complaint)
	case found != nil:
		return found, 0, nil
	case c.Now().Before(m.CreationTimestamp.Add(discoveryPatience)):
		return nil, discoveryPeriod, nil
	}
	return nil, 0, c.fail(ctx, m, "resource does not exist in discovery")
}

func (c *reconciler) migrate(ctx context.Context, m *storagemigrationv1.StorageVersionMigration) (time.Duration, error) {
	resource, retry, err := c.resolve(ctx, m)
	if err != nil || retry > 0 || resource == nil {
		return retry, err
	}
	all, err := c.list(ctx, *resource)
	if err != nil {
		return 0, err
	}
	left, err := older(all, m.Status.ResourceVersion)
	if err != nil {
		return 0, c.fail(ctx, m, "migration encountered unhandled error: "+err.Error())
	}
	done, err := c.rewrite(ctx, *resource, left)
	remaining := len(left) - done
	running := condition(storagemigrationv1.MigrationRunning, reasonRunning, progress(remaining, len(all), nil))
	switch {
	case err == nil:
		return 0, c.update(ctx, m, running, condition(storagemigrationv1.MigrationSucceeded, reasonSucceeded, "Migration completed"))
	case isTransient(err):
		running.Message = progress(remaining, len(all), err)
		return 0, errors.Join(err, c.update(ctx, m, running))
	}
	message := fmt.Sprintf("%d/%d not yet migrated. migration encountered unhandled error: %v", remaining, len(all), err)
	return 0, c.update(ctx, m, running, condition(storagemigrationv1.MigrationFailed, reasonFailed, message))
}

// isTransient reports whether a write may succeed if it is repeated. It does not ask who has answered: webhooks report
// their own failures as denials with the code of a failed server, and a repeated write that is denied costs only the back-off.
func isTransient(err error) bool {
	return apierrors.IsServerTimeout(err) || apierrors.IsTooManyRequests(err) || apierrors.IsServiceUnavailable(err) ||
		apierrors.IsInternalError(err) || apierrors.IsTimeout(err) || utilnet.IsConnectionReset(err) ||
		utilnet.IsConnectionRefused(err) || utilnet.IsHTTP2ConnectionLost(err) || utilnet.IsProbableEOF(err) ||
		errors.Is(err, context.Canceled)
}
