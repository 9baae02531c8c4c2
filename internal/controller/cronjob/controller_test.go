package cronjob

import (
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	webhookerrors "k8s.io/apiserver/pkg/admission/plugin/webhook/errors"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/coppice-dev/coppice/internal/controller"
)

// newController returns a controller whose cache shows one CronJob, a minute after noon.
func newController(t *testing.T, client *fake.Clientset, cron *batchv1.CronJob) (*controller.Context, *controller.Controller) {
	t.Helper()
	shared, err := controller.NewContext(client, clocktesting.NewFakeClock(at(t, noon).Add(time.Minute)), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	c, err := New(shared)
	if err != nil {
		t.Fatal(err)
	}
	if err := shared.Informers.CronJobs.Informer().GetIndexer().Add(cron); err != nil {
		t.Fatal(err)
	}
	return shared, c
}

// A job of the history that cannot be deleted holds back neither the other ones nor the next run. A running job that must
// be replaced and cannot be deleted holds back the run.
func TestRefusedDeletionHoldsBackNoRun(t *testing.T) {
	protected := apierrors.NewForbidden(batchv1.Resource("jobs"), "", errors.New("protected"))
	// A webhook may choose the code of a job that is gone, or has changed.
	denied := func(code int32) error {
		return webhookerrors.ToStatusErr("keep.example.com", &metav1.Status{Code: code, Message: "it is kept"})
	}
	for name, test := range map[string]struct {
		refused          string
		refusal          error
		created, removed []string
	}{
		"of the history":             {"old", protected, []string{"c-30078000"}, []string{"older", "running"}},
		"of a replaced":              {"running", protected, nil, []string{"old", "older"}},
		"of a replaced, like gone":   {"running", denied(http.StatusNotFound), nil, []string{"old", "older"}},
		"of the history, like stale": {"old", denied(http.StatusConflict), []string{"c-30078000"}, []string{"older", "running"}},
	} {
		t.Run(name, func(t *testing.T) {
			limit := int32(0)
			cron := cronWith(t, ran(t, "2027-03-10T11:00:00Z"), concurrency(batchv1.ReplaceConcurrent), func(c *batchv1.CronJob) {
				c.Spec.SuccessfulJobsHistoryLimit = &limit
			})
			client := fake.NewClientset(cron)
			var created, removed []string
			client.PrependReactor("create", "jobs", func(action clienttesting.Action) (bool, runtime.Object, error) {
				created = append(created, action.(clienttesting.CreateAction).GetObject().(*batchv1.Job).Name)
				return false, nil, nil
			})
			client.PrependReactor("delete", "jobs", func(action clienttesting.Action) (bool, runtime.Object, error) {
				job := action.(clienttesting.DeleteAction).GetName()
				if job == test.refused {
					return true, nil, test.refusal
				}
				removed = append(removed, job)
				return true, nil, nil
			})
			shared, c := newController(t, client, cron)
			for _, line := range []string{"old complete=03:00", "older complete=02:00", "running"} {
				job := jobIn(t, cron, line)
				job.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(cron, kind())}
				if err := shared.Informers.Jobs.Informer().GetIndexer().Add(job); err != nil {
					t.Fatal(err)
				}
			}
			again, err := c.Reconcile(t.Context(), cache.MetaObjectToName(cron))
			if slices.Sort(removed); !slices.Equal(created, test.created) || !slices.Equal(removed, test.removed) {
				t.Errorf("created %q, want %q; removed %q, want %q", created, test.created, removed, test.removed)
			}
			if !errors.Is(err, test.refusal) || again != 59*time.Minute {
				t.Errorf("again in %s: %v", again, err)
			}
		})
	}
}

// R25: a job that was created and deleted while the watch was down has no event.
func TestR25_LostEventDelaysACronJob(t *testing.T) {
	cron := cronWith(t)
	client := fake.NewClientset(cron)
	client.PrependReactor("create", "jobs", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, &batchv1.Job{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "5"}}, nil
	})
	_, c := newController(t, client, cron)
	if _, err := c.Reconcile(t.Context(), cache.MetaObjectToName(cron)); err != nil {
		t.Fatal(err)
	}
	if again, err := c.Reconcile(t.Context(), cache.MetaObjectToName(cron)); again != controller.LostEventPeriod || err != nil {
		t.Errorf("again in %s: %v", again, err)
	}
}
