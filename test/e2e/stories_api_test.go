package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/coppice-dev/coppice/internal/collect/story"
	"github.com/coppice-dev/coppice/internal/testing/eventually"
	"github.com/coppice-dev/coppice/internal/tools/web/api"
)

// TestStoryOfADeletion: the story of a deletion by kubectl has the user, the request and the dependents; the
// story of a namespace has its contents.
func TestStoryOfADeletion(t *testing.T) {
	t.Parallel()
	p := startPlane(t, "--ephemeral", "--secure-port=0")
	k := ourKubectl(p)
	k.run(t, "create", "namespace", "told")
	k.run(t, "create", "deployment", "-n", "told", "web", "--image=busybox", "--replicas=2")
	k.run(t, "rollout", "status", "-n", "told", "deployment/web", "--timeout=2m")
	uid := k.run(t, "get", "-n", "told", "deployment", "web", "-o", "jsonpath={.metadata.uid}")
	k.run(t, "delete", "-n", "told", "deployment", "web", "--cascade=foreground", "--as=ann", "--as-group=system:masters")
	eventually.Agrees(t, func() string {
		s, err := storyOf(t.Context(), p, uid)
		switch {
		case err != nil:
			return err.Error()
		case !s.Done || s.Gone < 4 || s.Waiting != 0:
			// With its ReplicaSet and two pods, and one more for each that the ReplicaSet's controller has replaced
			// before its cache showed that the ReplicaSet is being deleted.
			return fmt.Sprintf("%+v", s)
		case s.By == nil || s.By.User != "ann" || s.By.Agent == "" || s.Policy != "Foreground" || s.Root.Name != "web":
			return fmt.Sprintf("%+v by %+v", s, s.By)
		}
		return ""
	})

	hold(t, k, "told", "held")
	uid = k.run(t, "get", "namespace", "told", "-o", "jsonpath={.metadata.uid}")
	k.run(t, "delete", "namespace", "told", "--wait=false")
	eventually.Agrees(t, func() string {
		s, err := storyOf(t.Context(), p, uid)
		if err == nil && (s.Done || s.Waiting < 2 || !strings.Contains(s.WaitsFor, "ConfigMap told/held")) {
			err = fmt.Errorf("%+v", s)
		}
		if err != nil {
			return err.Error()
		}
		return ""
	})
	k.run(t, "patch", "-n", "told", "configmap", "held", "--type=merge", `--patch={"metadata":{"finalizers":null}}`)
	eventually.Agrees(t, func() string {
		if s, err := storyOf(t.Context(), p, uid); err != nil || !s.Done {
			return fmt.Sprintf("%v %+v", err, s)
		}
		return ""
	})
}

func storyOf(ctx context.Context, p *plane, uid string) (s story.Summary, err error) {
	config, err := clientcmd.BuildConfigFromFlags("", p.kubeconfig)
	if err != nil {
		return s, err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return s, err
	}
	text, err := client.CoreV1().RESTClient().Get().AbsPath(api.Stories, uid).DoRaw(ctx)
	if err != nil {
		return s, err
	}
	return s, json.Unmarshal(text, &s)
}
