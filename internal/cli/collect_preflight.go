package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/util/retry"

	"github.com/coppice-dev/coppice/collector"
	"github.com/coppice-dev/coppice/internal/tools/ask"
)

// Before coppice collect and coppice node begin, they check for errors that would otherwise repeat
// forever: an unreachable server, an unknown resource, a missing permission.

const (
	// reachTimeout bounds the first request to a server.
	reachTimeout = 5 * time.Second
	// requestTimeout bounds each of the other requests.
	requestTimeout = 20 * time.Second
	// checkConcurrency is the number of concurrent requests.
	checkConcurrency = 16
)

// reach checks that the server responds and accepts the credentials.
func (s *server) reach(ctx context.Context) error {
	request, cancel := context.WithTimeout(ctx, reachTimeout)
	defer cancel()
	err := s.client.Discovery().RESTClient().Get().AbsPath("/version").Do(request).Error()
	var answer apierrors.APIStatus
	switch {
	case err == nil, apierrors.IsForbidden(err):
		return nil
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("%s does not accept the credentials of %s", s.config.Host, s.source)
	case errors.As(err, &answer):
		return fmt.Errorf("%s does not answer like an API server: %w", s.config.Host, err)
	case request.Err() != nil && ctx.Err() == nil:
		return fmt.Errorf("cannot reach %s: no answer within %s", s.config.Host, reachTimeout)
	}
	return fmt.Errorf("cannot reach %s: %w", s.config.Host, ask.CauseOf(err))
}

// resources returns the resources that can be watched and deleted, without the ignored ones. It returns an error if
// the server does not have an ignored resource.
func (s *server) resources(ctx context.Context, ignore []schema.GroupResource) (watched []schema.GroupVersionResource, err error) {
	groups, lists, err := discovery.ToDiscoveryInterfaceWithContext(s.client.Discovery()).ServerGroupsAndResourcesWithContext(ctx)
	failed, partial := discovery.GroupDiscoveryFailedErrorGroups(err)
	switch {
	case apierrors.IsForbidden(err):
		return nil, fmt.Errorf("%s does not allow %s to: get /api, get /apis; the ClusterRole system:discovery does", s.config.Host, s.source)
	case err != nil && !partial:
		return nil, fmt.Errorf("discover the resources of %s: %w", s.config.Host, ask.CauseOf(err))
	}
	broken := make(map[string]bool)
	for version := range failed {
		broken[version.Group] = true
	}
	preferred := make(map[string]string)
	for _, group := range groups {
		preferred[group.Name] = group.PreferredVersion.Version
	}
	all := make(map[schema.GroupResource]bool)
	for _, list := range lists {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			continue
		}
		for _, r := range list.APIResources {
			resource := version.WithResource(r.Name)
			all[resource.GroupResource()] = true
			if version.Version == preferred[version.Group] && watchable(r) && !slices.Contains(ignore, resource.GroupResource()) {
				watched = append(watched, resource)
			}
		}
	}
	for _, resource := range ignore {
		if !all[resource] && !broken[resource.Group] && !slices.Contains(collector.DefaultIgnore(), resource) {
			return nil, usageError{fmt.Errorf("--ignore-resources names %s, which %s does not have%s", resource, s.config.Host, similar(resource, all))}
		}
	}
	return watched, nil
}

// watchable reports whether the collector watches a resource.
func watchable(r metav1.APIResource) bool {
	return !strings.Contains(r.Name, "/") && slices.Contains(r.Verbs, "delete") && slices.Contains(r.Verbs, "list") && slices.Contains(r.Verbs, "watch")
}

// similar suggests resources with similar names.
func similar(resource schema.GroupResource, all map[schema.GroupResource]bool) string {
	var found []string
	for other := range all {
		if other.Resource == resource.Resource || other.Resource == resource.Resource+"s" {
			found = append(found, other.String())
		}
	}
	if len(found) == 0 {
		return ""
	}
	slices.Sort(found)
	return "; did you mean " + strings.Join(found, " or ") + "?"
}

// need is a permission: a verb on a resource, in one namespace or in all.
type need struct {
	verb, group, resource, subresource, namespace string
}

func (n need) String() string {
	resource := schema.GroupResource{Group: n.group, Resource: n.resource}.String()
	if n.group == "*" {
		resource = n.resource
	}
	if n.subresource != "" {
		resource += "/" + n.subresource
	}
	if n.namespace != "" {
		resource += " in namespace " + n.namespace
	}
	return n.verb + " " + resource
}

// needs returns the permissions that the controllers need. The resource "*" stands for all resources that are
// not ignored.
func (f *collectFlags) needs() []need {
	var all []need
	add := func(group, resource, subresource, namespace string, verbs ...string) {
		for _, verb := range verbs {
			all = append(all, need{verb, group, resource, subresource, namespace})
		}
	}
	switch {
	case !f.runs(controllerGC):
	case f.observeOnly:
		add("*", "*", "", "", "list", "watch", "get")
	default:
		add("*", "*", "", "", "list", "watch", "get", "delete", "patch")
	}
	if f.runs(controllerNamespace) {
		add("*", "*", "", "", "list", "delete")
		add("", "namespaces", "", "", "watch", "get")
		add("", "namespaces", "status", "", "update")
		add("", "namespaces", "finalize", "", "update")
	}
	if f.election != noElection {
		add("coordination.k8s.io", "leases", "", f.leaseNamespace, "get", "create", "update")
	}
	return all
}

// rights checks that the server grants the needed permissions on the watched resources. The error
// names the missing ones.
func (s *server) rights(ctx context.Context, needs []need, watched []schema.GroupVersionResource) error {
	missing, err := s.review(ctx, needs, watched)
	if apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) {
		s.log.DebugContext(ctx, "the server does not serve access reviews; listing every resource instead")
		missing, err = s.tryLists(ctx, watched)
	}
	if err != nil {
		return fmt.Errorf("check the rights on %s: %w", s.config.Host, ask.CauseOf(err))
	}
	if len(missing) == 0 {
		return nil
	}
	const named = 5
	text := make([]string, 0, named)
	for _, n := range missing[:min(named, len(missing))] {
		text = append(text, n.String())
	}
	more := ""
	if len(missing) > named {
		more = fmt.Sprintf(" and %d more", len(missing)-named)
	}
	return fmt.Errorf("%s does not allow %s to: %s%s; grant these rights (deploy/kustomize/base/rbac.yaml), or leave resources out with --ignore-resources",
		s.config.Host, s.source, strings.Join(text, ", "), more)
}

// review returns the permissions that are not granted. If a permission on all resources is not
// granted, it asks for each resource.
func (s *server) review(ctx context.Context, needs []need, watched []schema.GroupVersionResource) ([]need, error) {
	missing, err := s.denied(ctx, needs)
	if err != nil {
		return nil, err
	}
	var single []need
	for _, n := range missing {
		if n.resource != "*" {
			single = append(single, n)
			continue
		}
		for _, r := range watched {
			single = append(single, need{verb: n.verb, group: r.Group, resource: r.Resource})
		}
	}
	return s.denied(ctx, single)
}

// denied returns the permissions that are not granted.
func (s *server) denied(ctx context.Context, needs []need) ([]need, error) {
	granted := make([]bool, len(needs))
	err := each(ctx, len(needs), func(ctx context.Context, i int) error {
		n := needs[i]
		review := &authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb: n.verb, Group: n.group, Resource: n.resource, Subresource: n.subresource, Namespace: n.namespace,
			}},
		}
		return retry.OnError(reviewBackoff(), passes, func() error {
			answer, err := s.client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
			if err == nil {
				granted[i] = answer.Status.Allowed
			}
			return err
		})
	})
	var missing []need
	for i, n := range needs {
		if !granted[i] && !slices.Contains(missing, n) {
			missing = append(missing, n)
		}
	}
	return missing, err
}

// reviewBackoff tries for three seconds: the server has just answered other requests.
func reviewBackoff() wait.Backoff {
	return wait.Backoff{Duration: 50 * time.Millisecond, Factor: 2, Steps: 7}
}

// passes reports whether an error may pass by itself: the server is overloaded, is being replaced, or its etcd elects; or
// the connection has ended.
func passes(err error) bool {
	var answered apierrors.APIStatus
	if !errors.As(err, &answered) {
		return !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded)
	}
	return answered.Status().Code == http.StatusTooManyRequests || answered.Status().Code >= http.StatusInternalServerError
}

// tryLists lists one object of each resource, and returns the forbidden lists. Other
// errors affect one resource only; the collector reports them and continues without that resource.
func (s *server) tryLists(ctx context.Context, watched []schema.GroupVersionResource) ([]need, error) {
	var mu sync.Mutex
	var missing []need
	err := each(ctx, len(watched), func(ctx context.Context, i int) error {
		_, err := s.metadata.Resource(watched[i]).Namespace(corev1.NamespaceAll).List(ctx, metav1.ListOptions{Limit: 1})
		if apierrors.IsForbidden(err) {
			mu.Lock()
			defer mu.Unlock()
			missing = append(missing, need{verb: "list", group: watched[i].Group, resource: watched[i].Resource})
		}
		return ctx.Err()
	})
	slices.SortFunc(missing, func(a, b need) int { return cmp.Or(cmp.Compare(a.group, b.group), cmp.Compare(a.resource, b.resource)) })
	return missing, err
}

// each calls ask n times, with limited concurrency.
func each(ctx context.Context, n int, ask func(ctx context.Context, i int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(checkConcurrency)
	for i := range n {
		group.Go(func() error { return ask(ctx, i) })
	}
	return group.Wait()
}
