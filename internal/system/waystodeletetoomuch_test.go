package system

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coppice-dev/coppice/internal/rules/protection"
)

// waysToDeleteTooMuch returns ways in which people, programs and agents delete more than they may unconfirmed.
func waysToDeleteTooMuch() []wayTooMuch {
	options := map[string]metav1.DeleteOptions{
		"without options": {}, "in the background": withPolicy(metav1.DeletePropagationBackground),
		"in the foreground":        withPolicy(metav1.DeletePropagationForeground),
		"orphanDependents=false":   {OrphanDependents: new(false)},
		"without grace":            {GracePeriodSeconds: new(int64(0))},
		"a dry run":                {DryRun: []string{metav1.DryRunAll}},
		"with a UID, as a GitOps":  {PropagationPolicy: new(metav1.DeletePropagationForeground), Preconditions: &metav1.Preconditions{}},
		"with an orphan finalizer": withPolicy(metav1.DeletePropagationBackground),
	}
	var all []wayTooMuch
	for name, o := range options {
		for shape, prepare := range map[string]func(context.Context, confirmAttempt) ([]subject, error){
			"a tree": aTree(tooMany), "a chain": aChain, "a custom resource": aCustomTree, "a ReplicaSet": aReplicaSet,
			"a namespace": theNamespace(aCrowd(tooMany)), "a definition": theDefinition,
		} {
			begin := isRefused(deletes(o))
			if name == "with an orphan finalizer" && shape != "a namespace" && shape != "a definition" {
				begin = orphanFinalizerFirst
			}
			all = append(all, wayTooMuch{shape + ", " + name, prepare, begin})
		}
	}
	all = append(all, waysToHideTheDeletion()...)
	orphan := isRefused(deletes(withPolicy(metav1.DeletePropagationOrphan)))
	return append(all, []wayTooMuch{
		{"a namespace, orphaned", theNamespace(aCrowd(tooMany)), orphan},
		{"a definition, orphaned", theDefinition, orphan},
		{"a collection", aCrowd(tooMany), isRefused(deletesCollection(""))},
		{"a collection by labels", aCrowd(tooMany), isRefused(deletesCollection("app=web"))},
		{"a collection of custom resources", customResources, isRefused(deletesCollection(""))},
		{"a collection of few with many dependents", aTree(tooMany), isRefused(deletesCollection("root=yes"))},
		{"a tree whose owner does not exist", aTree(tooMany), adoptedByNobody},
		{"dependents given to a small object", aCrowd(tooMany), adoptedThenDeleted},
		{"dependents given to an object that is being deleted", aCrowd(tooMany), adoptedWhileGoing},
		{"dependents given to what was deleted with a confirmation", aTree(tooMany), adoptedAfterConfirmation},
		{"a volume claim", aClaim, isRefused(deletes(metav1.DeleteOptions{}))},
		{"a collection with one volume claim", aClaim, isRefused(deletesCollection(""))},
		{"a volume claim that depends on an absent object", aClaim, adoptedByNobody},
		{"a volume claim given to a small object", aClaim, adoptedThenDeleted},
		{"confirmed by who may not", aTree(tooMany), confirmedBy(func(in confirmAttempt, c protection.Confirmation) (bool, protection.Confirmation) { return false, c })},
		{"confirmed for another object", aTree(tooMany), confirmedBy(func(_ confirmAttempt, c protection.Confirmation) (bool, protection.Confirmation) {
			c.UID = somebodyElse
			return true, c
		})},
		{"confirmed for another state", aTree(tooMany), confirmedBy(func(_ confirmAttempt, c protection.Confirmation) (bool, protection.Confirmation) {
			c.Digest = strings.Repeat("0", len(c.Digest))
			return true, c
		})},
		{"confirmed too long ago", aTree(tooMany), confirmedBy(func(_ confirmAttempt, c protection.Confirmation) (bool, protection.Confirmation) {
			c.At = c.At.Add(-protection.ConfirmedFor - time.Minute)
			return true, c
		})},
		{"confirmed in advance", aTree(tooMany), confirmedBy(func(_ confirmAttempt, c protection.Confirmation) (bool, protection.Confirmation) {
			c.At = c.At.Add(time.Hour)
			return true, c
		})},
		{"confirmed, and more dependents after that", aTree(tooMany), grownAfter},
	}...)
}

func withPolicy(policy metav1.DeletionPropagation) metav1.DeleteOptions {
	return metav1.DeleteOptions{PropagationPolicy: &policy}
}

// deletes deletes the root. Empty preconditions get its UID.
func deletes(options metav1.DeleteOptions) func(context.Context, confirmAttempt, []subject) error {
	return func(ctx context.Context, in confirmAttempt, all []subject) error {
		options := options.DeepCopy()
		if options.Preconditions != nil {
			root, err := in.of(all[0]).Get(ctx, all[0].name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			options.Preconditions.UID = new(root.GetUID())
		}
		return in.of(all[0]).Delete(ctx, all[0].name, *options)
	}
}

func deletesCollection(labels string) func(context.Context, confirmAttempt, []subject) error {
	return func(ctx context.Context, in confirmAttempt, all []subject) error {
		return in.of(all[0]).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: labels})
	}
}

func isRefused(begin func(context.Context, confirmAttempt, []subject) error) func(context.Context, confirmAttempt, []subject) error {
	return func(ctx context.Context, in confirmAttempt, all []subject) error {
		return asksToConfirm(begin(ctx, in, all))
	}
}

// orphanFinalizerFirst deletes the root in the background, whose dependents have a finalizer that a collector would remove.
func orphanFinalizerFirst(ctx context.Context, in confirmAttempt, all []subject) error {
	for _, what := range all[1:3] {
		if err := in.patch(ctx, what, map[string]any{"finalizers": []string{"orphan"}}); err != nil {
			return err
		}
	}
	return asksToConfirm(deletes(withPolicy(metav1.DeletePropagationForeground))(ctx, in, all))
}

// adoptedByNobody gives the root an owner that does not exist: the collector would delete it, with its dependents.
func adoptedByNobody(ctx context.Context, in confirmAttempt, all []subject) error {
	if err := in.adopt(ctx, all[:1], "never-there", somebodyElse); err != nil {
		return err
	}
	return refusedInAudit(ctx, in.attempt, all[0])
}

// adoptedAfterConfirmation gives the root to an object whose deletion was confirmed.
func adoptedAfterConfirmation(ctx context.Context, in confirmAttempt, all []subject) error {
	claim, err := aClaim(ctx, in)
	if err != nil {
		return err
	}
	o, err := in.of(claim[0]).Get(ctx, claim[0].name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if err := confirmsAndDeletes(metav1.DeletePropagationBackground)(ctx, in, claim); err != nil {
		return err
	}
	if err := in.goes(ctx, claim[0]); err != nil {
		return err
	}
	if err := in.adopt(ctx, all[:1], claim[0].name, o.GetUID()); err != nil {
		return err
	}
	return refusedInAudit(ctx, in.attempt, all[0])
}

// somebodyElse is a UID that no object has.
const somebodyElse types.UID = "11111111-2222-3333-4444-555555555555"

// adoptedThenDeleted gives all objects to a small one, and deletes that.
func adoptedThenDeleted(ctx context.Context, in confirmAttempt, all []subject) error {
	owner, err := in.createOwner(ctx)
	if err != nil {
		return err
	}
	if err := in.adopt(ctx, all, "owner", owner); err != nil {
		return err
	}
	return asksToConfirm(in.of(subject{configMaps(), in.namespace, "owner"}).Delete(ctx, "owner", metav1.DeleteOptions{}))
}

// adoptedWhileGoing deletes a small object that a finalizer holds, gives all objects to it, and removes the finalizer.
func adoptedWhileGoing(ctx context.Context, in confirmAttempt, all []subject) error {
	owner, err := in.createOwner(ctx)
	if err != nil {
		return err
	}
	small := subject{configMaps(), in.namespace, "owner"}
	if err := in.patch(ctx, small, map[string]any{"finalizers": []string{"example.com/hold"}}); err != nil {
		return err
	}
	if err := in.of(small).Delete(ctx, "owner", metav1.DeleteOptions{}); err != nil {
		return err
	}
	if err := in.adopt(ctx, all, "owner", owner); err != nil {
		return err
	}
	if err := in.patch(ctx, small, map[string]any{"finalizers": nil}); err != nil {
		return err
	}
	return refusedInAudit(ctx, in.attempt, all[len(all)-1])
}

func (in confirmAttempt) createOwner(ctx context.Context) (types.UID, error) {
	owner, err := create(ctx, in.objects.Resource(configMaps()).Namespace(in.namespace), `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"owner"}}`)
	if err != nil {
		return "", err
	}
	return owner.GetUID(), nil
}

func (in confirmAttempt) adopt(ctx context.Context, all []subject, owner string, uid types.UID) error {
	for _, what := range all {
		err := in.patch(ctx, what, map[string]any{"ownerReferences": []any{map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "name": owner, "uid": uid}}})
		if err != nil {
			return err
		}
	}
	return nil
}

// confirmedBy confirms the deletion of the root in a way that does not count. change reports whether a user with the right
// confirms, and changes the confirmation.
func confirmedBy(change func(confirmAttempt, protection.Confirmation) (bool, protection.Confirmation)) func(context.Context, confirmAttempt, []subject) error {
	return func(ctx context.Context, in confirmAttempt, all []subject) error {
		closure, unconfirmed := protection.NeedsConfirmation(deletes(metav1.DeleteOptions{})(ctx, in, all))
		if !unconfirmed {
			return errors.New("the first DELETE is not refused")
		}
		has, c := change(in, protection.Confirmation{Digest: closure.Digest, At: time.Now()})
		client := in.objects
		if has {
			client = in.confirmer
		}
		err := in.confirm(ctx, client, all[0], c)
		if !has && (err == nil || !strings.Contains(err.Error(), "may not confirm deletions of configmaps")) {
			return fmt.Errorf("the confirmation is answered with %w", errors.Join(err, errors.New("and not refused")))
		}
		return asksToConfirm(deletes(metav1.DeleteOptions{})(ctx, in, all))
	}
}

// grownAfter confirms the deletion of a tree that grows before the deletion.
func grownAfter(ctx context.Context, in confirmAttempt, all []subject) error {
	return grownBy(ctx, in, all, func() error {
		root, err := in.of(all[0]).Get(ctx, all[0].name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		_, err = create(ctx, in.of(all[0]), `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"one-more"`+ownedBy("v1", "ConfigMap", root.GetName(), root.GetUID())+`}}`)
		return err
	})
}

// grownBy confirms the deletion of the root, and lets what goes with it grow before the deletion.
func grownBy(ctx context.Context, in confirmAttempt, all []subject, grow func() error) error {
	closure, unconfirmed := protection.NeedsConfirmation(deletes(metav1.DeleteOptions{})(ctx, in, all))
	if !unconfirmed {
		return errors.New("the first DELETE is not refused")
	}
	if err := in.confirm(ctx, in.confirmer, all[0], protection.Confirmation{Digest: closure.Digest, At: time.Now()}); err != nil {
		return err
	}
	if err := grow(); err != nil {
		return err
	}
	return asksToConfirm(deletes(metav1.DeleteOptions{})(ctx, in, all))
}

func ownedBy(version, kind, name string, uid types.UID) string {
	return fmt.Sprintf(`,"ownerReferences":[{"apiVersion":%q,"kind":%q,"name":%q,"uid":%q}]`, version, kind, name, uid)
}

func (in confirmAttempt) createConfigMaps(ctx context.Context, n int, more string) (all []subject, err error) {
	for i := range n {
		what := subject{configMaps(), in.namespace, fmt.Sprint("part-", i)}
		if _, err := create(ctx, in.of(what), `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"`+what.name+`","labels":{"app":"web"}`+more+`}}`); err != nil {
			return nil, err
		}
		all = append(all, what)
	}
	return all, nil
}

// aCrowd creates ConfigMaps without owners.
func aCrowd(n int) func(context.Context, confirmAttempt) ([]subject, error) {
	return func(ctx context.Context, in confirmAttempt) ([]subject, error) {
		return in.createConfigMaps(ctx, n, "")
	}
}

// aTree creates a ConfigMap with dependents.
func aTree(n int) func(context.Context, confirmAttempt) ([]subject, error) {
	return func(ctx context.Context, in confirmAttempt) ([]subject, error) {
		root := subject{configMaps(), in.namespace, "root"}
		o, err := create(ctx, in.of(root), `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"root","labels":{"root":"yes"}}}`)
		if err != nil {
			return nil, err
		}
		parts, err := in.createConfigMaps(ctx, n, ownedBy("v1", "ConfigMap", "root", o.GetUID()))
		return append([]subject{root}, parts...), err
	}
}

// aChain creates ConfigMaps each of which depends on the one before.
func aChain(ctx context.Context, in confirmAttempt) (all []subject, err error) {
	owner := ""
	for i := range tooMany {
		what := subject{configMaps(), in.namespace, fmt.Sprint("link-", i)}
		o, err := create(ctx, in.of(what), `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"`+what.name+`"`+owner+`}}`)
		if err != nil {
			return nil, err
		}
		owner = ownedBy("v1", "ConfigMap", what.name, o.GetUID())
		all = append(all, what)
	}
	return all, nil
}

// customResources creates custom resources of a kind of their own.
func customResources(ctx context.Context, in confirmAttempt) (all []subject, err error) {
	what, err := aCustomResource(ctx, in.attempt)
	if err != nil {
		return nil, err
	}
	for i := range tooMany {
		more := subject{what.resource, what.namespace, fmt.Sprint("more-", i)}
		if _, err := create(ctx, in.of(more), `{"apiVersion":"`+what.resource.GroupVersion().String()+`","kind":"Widget","metadata":{"name":"`+more.name+`"}}`); err != nil {
			return nil, err
		}
		all = append(all, more)
	}
	return append(all, what), nil
}

// theDefinition creates custom resources, and returns their definition first.
func theDefinition(ctx context.Context, in confirmAttempt) ([]subject, error) {
	all, err := customResources(ctx, in)
	if err != nil {
		return nil, err
	}
	resource := all[0].resource
	return append([]subject{{resource: customResourceDefinitions(), name: resource.Resource + "." + resource.Group}}, all...), nil
}

// aCustomTree creates a custom resource with dependents.
func aCustomTree(ctx context.Context, in confirmAttempt) ([]subject, error) {
	root, err := aCustomResource(ctx, in.attempt)
	if err != nil {
		return nil, err
	}
	o, err := in.of(root).Get(ctx, root.name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	parts, err := in.createConfigMaps(ctx, tooMany, ownedBy(o.GetAPIVersion(), o.GetKind(), o.GetName(), o.GetUID()))
	return append([]subject{root}, parts...), err
}

// aReplicaSet creates a ReplicaSet with its pods.
func aReplicaSet(ctx context.Context, in confirmAttempt) ([]subject, error) {
	root := subject{replicaSets(), in.namespace, "web"}
	_, err := create(ctx, in.of(root), fmt.Sprintf(`{"apiVersion":"apps/v1","kind":"ReplicaSet","metadata":{"name":"web"},"spec":{"replicas":%d,
		"selector":{"matchLabels":{"app":"web"}},"template":{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`, tooMany))
	if err != nil {
		return nil, err
	}
	all := []subject{root}
	return all, becomesTrue(ctx, "the pods of a ReplicaSet", func(ctx context.Context) (bool, error) {
		list, err := in.client.CoreV1().Pods(in.namespace).List(ctx, metav1.ListOptions{})
		if err != nil || len(list.Items) < tooMany {
			return false, err
		}
		all = all[:1]
		for i := range list.Items {
			all = append(all, subject{pods(), in.namespace, list.Items[i].Name})
		}
		return true, nil
	})
}

// aClaim creates a volume claim, of a kind of which none is deleted unconfirmed.
func aClaim(ctx context.Context, in confirmAttempt) ([]subject, error) {
	claim := subject{corev1.SchemeGroupVersion.WithResource("persistentvolumeclaims"), in.namespace, "data"}
	_, err := create(ctx, in.of(claim), `{"apiVersion":"v1","kind":"PersistentVolumeClaim","metadata":{"name":"data"},"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}}}}`)
	return []subject{claim}, err
}

// theNamespace returns the namespace before the objects in it.
func theNamespace(prepare func(context.Context, confirmAttempt) ([]subject, error)) func(context.Context, confirmAttempt) ([]subject, error) {
	return func(ctx context.Context, in confirmAttempt) ([]subject, error) {
		all, err := prepare(ctx, in)
		return append([]subject{{resource: corev1.SchemeGroupVersion.WithResource("namespaces"), name: in.namespace}}, all...), err
	}
}

// first returns the first of the prepared objects only, and withoutFirst the others.
func first(prepare func(context.Context, confirmAttempt) ([]subject, error)) func(context.Context, confirmAttempt) ([]subject, error) {
	return func(ctx context.Context, in confirmAttempt) ([]subject, error) {
		all, err := prepare(ctx, in)
		return all[:min(len(all), 1)], err
	}
}

func withoutFirst(prepare func(context.Context, confirmAttempt) ([]subject, error)) func(context.Context, confirmAttempt) ([]subject, error) {
	return func(ctx context.Context, in confirmAttempt) ([]subject, error) {
		all, err := prepare(ctx, in)
		return all[min(len(all), 1):], err
	}
}
