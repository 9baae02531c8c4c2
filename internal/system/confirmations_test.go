package system

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/coppice-dev/coppice/internal/rules/protection"
)

const (
	// mayGo is the number of objects that are deleted unconfirmed in these tests, and tooMany are the dependents of an
	// object whose deletion needs a confirmation.
	mayGo   = 20
	tooMany = 24
	// atOnce bounds the scripts that run at the same time.
	atOnce = 8
)

// Each script deletes more than may go unconfirmed, in its own way. Everything stays.
func TestR32_NothingLargeGoesUnconfirmed(t *testing.T) {
	runConfirming(t, func(ctx context.Context, e confirmEnv) error {
		scripts := waysToDeleteTooMuch()
		if len(scripts) < 50 {
			t.Errorf("%d scripts", len(scripts))
		}
		var running errgroup.Group
		running.SetLimit(atOnce)
		var stayed atomic.Int64
		for i, s := range scripts {
			running.Go(func() error {
				n, err := s.run(ctx, e.attempt(ctx, fmt.Sprintf("too-much-%d", i)))
				if err != nil {
					t.Errorf("%s: %v", s.name, err)
				}
				stayed.Add(int64(n))
				return nil
			})
		}
		err := running.Wait()
		t.Logf("%d ways to delete too much, 0 passed; %d objects stayed", len(scripts), stayed.Load())
		return err
	})
}

// R32: an eviction that is refused leaves the budget and the pod as they were.
func TestR32_RefusedEvictionsSpendNoBudget(t *testing.T) {
	runConfirming(t, func(ctx context.Context, e confirmEnv) error {
		return evictionIsRefused(ctx, e.attempt(ctx, "evictions"))
	})
}

// Ordinary deletions pass, and so do those that somebody has confirmed, with all that follows from them. COPPICE_TEST_ORDINARY
// is how often each is made.
func TestR32_OrdinaryDeletionsPass(t *testing.T) {
	each := 4
	if text := os.Getenv("COPPICE_TEST_ORDINARY"); text != "" {
		var err error
		if each, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	runConfirming(t, func(ctx context.Context, e confirmEnv) error {
		var running errgroup.Group
		running.SetLimit(atOnce)
		ways := ordinaryDeletions()
		for _, way := range ways {
			for i := range each {
				running.Go(func() error {
					if err := way.run(ctx, e.attempt(ctx, fmt.Sprintf("%s-%d", way.name, i))); err != nil {
						t.Errorf("%s: %v", way.name, err)
					}
					return nil
				})
			}
		}
		err := running.Wait()
		t.Logf("%d ordinary deletions passed", each*len(ways))
		return err
	})
}

// confirmEnv is a control plane with limits. Its clients are those of a user who may do everything but confirm; confirmer
// may do that, too.
type confirmEnv struct {
	protectedEnv

	confirmer dynamic.Interface
}

// attempt returns an attempt in a new namespace.
func (e confirmEnv) attempt(ctx context.Context, namespace string) confirmAttempt {
	in := confirmAttempt{attempt: attempt{protectedEnv: e.protectedEnv, namespace: namespace}, confirmer: e.confirmer}
	_, in.err = e.client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	return in
}

// confirmAttempt is an attempt to delete in a namespace of its own.
type confirmAttempt struct {
	attempt

	confirmer dynamic.Interface
	err       error // of the creation of the namespace
}

func runConfirming(t *testing.T, use func(context.Context, confirmEnv) error) {
	o := ephemeral(t)
	o.Workloads, o.AuditPath = InProcess, filepath.Join(t.TempDir(), "audit.log")
	o.Confirm = protection.Limits{MoreThan: mayGo, Kinds: []schema.GroupResource{{Resource: "persistentvolumeclaims"}}}
	runWithPlane(t, o, func(ctx context.Context, p Plane) error {
		admin, err := kubernetes.NewForConfig(p.Config)
		if err != nil {
			return err
		}
		if err := grant(ctx, admin, "user", "get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"); err != nil {
			return err
		}
		if err := grant(ctx, admin, "confirmer", "*"); err != nil {
			return err
		}
		for _, user := range []string{pretender, gitOps} {
			if err := grant(ctx, admin, user, "get", "list", "delete", "deletecollection"); err != nil {
				return err
			}
		}
		p.Config = as(p.Config, "user")
		e := confirmEnv{protectedEnv: protectedEnv{plane: p, audit: o.AuditPath}}
		if e.client, err = kubernetes.NewForConfig(p.Config); err != nil {
			return err
		}
		if e.objects, err = dynamic.NewForConfig(p.Config); err != nil {
			return err
		}
		if e.confirmer, err = dynamic.NewForConfig(as(p.Config, "confirmer")); err != nil {
			return err
		}
		err = becomesTrue(ctx, "the rights are known", func(ctx context.Context) (bool, error) {
			_, ofUser := e.objects.Resource(configMaps()).List(ctx, metav1.ListOptions{Limit: 1})
			_, ofConfirmer := e.confirmer.Resource(configMaps()).List(ctx, metav1.ListOptions{Limit: 1})
			return ofUser == nil && ofConfirmer == nil, nil
		})
		if err != nil {
			return err
		}
		return use(ctx, e)
	})
}

func as(config *rest.Config, user string) *rest.Config {
	config = rest.CopyConfig(config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user}
	return config
}

// grant gives a user rights for all objects.
func grant(ctx context.Context, admin kubernetes.Interface, user string, verbs ...string) error {
	_, err := admin.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: user}, Rules: []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: verbs}},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	_, err = admin.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: user}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: user},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}},
	}, metav1.CreateOptions{})
	return err
}

// wayTooMuch is a way to delete too much.
type wayTooMuch struct {
	name string
	// prepare creates the objects, and returns all that must stay.
	prepare func(ctx context.Context, in confirmAttempt) (stay []subject, err error)
	// begin deletes, and returns nil if that was refused. stay are the objects of prepare, the first of which is the root.
	begin func(ctx context.Context, in confirmAttempt, stay []subject) error
}

// run returns the number of objects that stayed.
func (w wayTooMuch) run(ctx context.Context, in confirmAttempt) (int, error) {
	if in.err != nil {
		return 0, in.err
	}
	stay, err := w.prepare(ctx, in)
	if err != nil {
		return 0, fmt.Errorf("prepare: %w", err)
	}
	if err := w.begin(ctx, in, stay); err != nil {
		return 0, err
	}
	for _, what := range stay {
		o, err := in.of(what).Get(ctx, what.name, metav1.GetOptions{})
		if err == nil && o.GetDeletionTimestamp() != nil {
			err = errors.New("it is being deleted")
		}
		if err != nil {
			return 0, fmt.Errorf("%s: %w", what.name, err)
		}
	}
	return len(stay), nil
}

// asksToConfirm returns nil for the refusal of an unconfirmed deletion.
func asksToConfirm(err error) error {
	closure, unconfirmed := protection.NeedsConfirmation(err)
	if unconfirmed && closure.Objects > 0 && len(closure.Digest) > 0 && strings.Contains(err.Error(), "coppice preview delete ") {
		return nil
	}
	return fmt.Errorf("the answer is %w", errors.Join(err, errors.New("and not the refusal of an unconfirmed deletion")))
}

// ordinaryDeletion is a deletion that passes.
type ordinaryDeletion struct {
	name string
	run  func(ctx context.Context, in confirmAttempt) error
}

func ordinaryDeletions() []ordinaryDeletion {
	all := []ordinaryDeletion{
		{"one-object", func(ctx context.Context, in confirmAttempt) error {
			return in.passes(ctx, aTree(0), deletes(metav1.DeleteOptions{}))
		}},
		{"small-tree", func(ctx context.Context, in confirmAttempt) error {
			return in.passes(ctx, aTree(mayGo-1), deletes(withPolicy(metav1.DeletePropagationForeground)))
		}},
		{"large-tree-orphaned", func(ctx context.Context, in confirmAttempt) error {
			return in.passes(ctx, first(aTree(tooMany)), deletes(withPolicy(metav1.DeletePropagationOrphan)))
		}},
		{"small-collection", func(ctx context.Context, in confirmAttempt) error {
			return in.passes(ctx, aCrowd(mayGo), deletesCollection("app=web"))
		}},
		{"small-namespace", func(ctx context.Context, in confirmAttempt) error {
			return in.passes(ctx, theNamespace(aCrowd(3)), deletes(metav1.DeleteOptions{}))
		}},
		{"scaled-down", scalesDown},
		{"expired-job", jobExpires},
	}
	confirmed := func(name string, prepare func(context.Context, confirmAttempt) ([]subject, error), policy metav1.DeletionPropagation) {
		all = append(all, ordinaryDeletion{name, func(ctx context.Context, in confirmAttempt) error {
			return in.passes(ctx, prepare, confirmsAndDeletes(policy))
		}})
	}
	confirmed("confirmed-tree", aTree(tooMany), metav1.DeletePropagationBackground)
	confirmed("confirmed-chain", aChain, metav1.DeletePropagationForeground)
	confirmed("confirmed-set", aReplicaSet, metav1.DeletePropagationBackground)
	confirmed("confirmed-namespace", theNamespace(aCrowd(tooMany)), metav1.DeletePropagationBackground)
	return all
}

// passes waits until all prepared objects have gone after a deletion that is accepted.
func (in confirmAttempt) passes(ctx context.Context, prepare func(context.Context, confirmAttempt) ([]subject, error), begin func(context.Context, confirmAttempt, []subject) error) error {
	if in.err != nil {
		return in.err
	}
	all, err := prepare(ctx, in)
	if err != nil {
		return fmt.Errorf("prepare: %w", err)
	}
	if err := begin(ctx, in, all); err != nil {
		return err
	}
	slices.Reverse(all)
	for _, what := range all {
		if err := in.goes(ctx, what); err != nil {
			return fmt.Errorf("%s: %w", what.name, err)
		}
	}
	return nil
}

// confirmsAndDeletes confirms the deletion of the root with the answer to a first DELETE, and makes it.
func confirmsAndDeletes(policy metav1.DeletionPropagation) func(context.Context, confirmAttempt, []subject) error {
	return func(ctx context.Context, in confirmAttempt, all []subject) error {
		err := deletes(withPolicy(policy))(ctx, in, all)
		closure, unconfirmed := protection.NeedsConfirmation(err)
		if !unconfirmed {
			return asksToConfirm(err)
		}
		if err := in.confirm(ctx, in.confirmer, all[0], protection.Confirmation{Digest: closure.Digest, At: time.Now()}); err != nil {
			return err
		}
		return deletes(withPolicy(policy))(ctx, in, all)
	}
}

// confirm writes a confirmation for an object. Its UID is that of the object, unless it is given.
func (in confirmAttempt) confirm(ctx context.Context, client dynamic.Interface, what subject, c protection.Confirmation) error {
	as := in.attempt
	as.objects = client
	o, err := as.of(what).Get(ctx, what.name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if c.UID == "" {
		c.UID = o.GetUID()
	}
	return as.patch(ctx, what, map[string]any{"annotations": map[string]any{protection.Confirmed: c.String()}})
}

// scalesDown deletes more pods than may go unconfirmed, one by one, by their controller.
func scalesDown(ctx context.Context, in confirmAttempt) error {
	return in.passes(ctx, withoutFirst(aReplicaSet), func(ctx context.Context, in confirmAttempt, _ []subject) error {
		return scaleDown(ctx, in.attempt, subject{})
	})
}

// jobExpires has a controller delete a Job with more dependents than may go unconfirmed.
func jobExpires(ctx context.Context, in confirmAttempt) error {
	return in.passes(ctx, func(ctx context.Context, in confirmAttempt) ([]subject, error) {
		job, err := aFinishedJob(ctx, in.attempt)
		if err != nil {
			return nil, err
		}
		o, err := in.of(job).Get(ctx, job.name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		owned, err := in.createConfigMaps(ctx, tooMany, fmt.Sprintf(`,"ownerReferences":[{"apiVersion":"batch/v1","kind":"Job","name":"kept","uid":%q}]`, o.GetUID()))
		return append([]subject{job}, owned...), err
	}, func(ctx context.Context, in confirmAttempt, all []subject) error {
		return expireJob(ctx, in.attempt, all[0])
	})
}
