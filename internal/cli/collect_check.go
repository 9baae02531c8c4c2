package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
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
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/coppice-dev/coppice"
)

const (
	// patienceToReach is how long a server may take for its first answer.
	patienceToReach = 5 * time.Second
	// patienceToAnswer is how long it may take for each of the others.
	patienceToAnswer = 20 * time.Second
	// questions is how many are asked at a time.
	questions = 16
)

// check finds out before the start what would otherwise go wrong for ever: a server
// that is not there, a resource that it does not have, a right that is missing.
type check struct {
	client   kubernetes.Interface
	metadata metadata.Interface
	host     string
	source   string // of the config
	log      *slog.Logger

	served []schema.GroupVersionResource // can be watched and deleted, less what is ignored; by resources
}

func newCheck(config *rest.Config, source string, log *slog.Logger) (*check, error) {
	config = rest.CopyConfig(config)
	config.QPS, config.Timeout, config.UserAgent = -1, patienceToAnswer, "coppice"
	config.WarningHandler = rest.NoWarnings{}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", source, err)
	}
	objects, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", source, err)
	}
	return &check{client: client, metadata: objects, host: config.Host, source: source, log: log}, nil
}

// reach asks the server for its version.
func (c *check) reach(ctx context.Context) error {
	asking, cancel := context.WithTimeout(ctx, patienceToReach)
	defer cancel()
	err := c.client.Discovery().RESTClient().Get().AbsPath("/version").Do(asking).Error()
	var answer apierrors.APIStatus
	switch {
	case err == nil, apierrors.IsForbidden(err):
		return nil
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("%s does not accept the credentials of %s", c.host, c.source)
	case errors.As(err, &answer):
		return fmt.Errorf("%s does not answer as an API server does: %w", c.host, err)
	case asking.Err() != nil && ctx.Err() == nil:
		return fmt.Errorf("cannot reach %s: no answer within %s", c.host, patienceToReach)
	}
	return fmt.Errorf("cannot reach %s: %w", c.host, causeOf(err))
}

// resources asks which resources there are, and checks that those to ignore are among them.
func (c *check) resources(ctx context.Context, ignore []schema.GroupResource) error {
	groups, lists, err := discovery.ToDiscoveryInterfaceWithContext(c.client.Discovery()).ServerGroupsAndResourcesWithContext(ctx)
	failed, partial := discovery.GroupDiscoveryFailedErrorGroups(err)
	switch {
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%s does not allow %s to: get /api, get /apis; the ClusterRole system:discovery does", c.host, c.source)
	case err != nil && !partial:
		return fmt.Errorf("ask %s which resources it has: %w", c.host, causeOf(err))
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
				c.served = append(c.served, resource)
			}
		}
	}
	for _, resource := range ignore {
		if !all[resource] && !broken[resource.Group] && !slices.Contains(coppice.DefaultIgnore(), resource) {
			return usageError{fmt.Errorf("--ignore-resources names %s, which %s does not have%s", resource, c.host, similar(resource, all))}
		}
	}
	return nil
}

// watchable tells whether the collector watches a resource.
func watchable(r metav1.APIResource) bool {
	return !strings.Contains(r.Name, "/") && slices.Contains(r.Verbs, "delete") && slices.Contains(r.Verbs, "list") && slices.Contains(r.Verbs, "watch")
}

// similar are resources that may have been meant.
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

// need is a right: a verb on a resource, in a namespace or everywhere.
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

// needs are the rights that the work takes. A resource of "*" stands for all that
// are not ignored.
func (f *collectFlags) needs(o coppice.Options) []need {
	var all []need
	add := func(group, resource, subresource, namespace string, verbs ...string) {
		for _, verb := range verbs {
			all = append(all, need{verb, group, resource, subresource, namespace})
		}
	}
	switch {
	case o.CollectorDisabled:
	case o.ObserveOnly:
		add("*", "*", "", "", "list", "watch", "get")
	default:
		add("*", "*", "", "", "list", "watch", "get", "delete", "patch")
	}
	if o.Namespaces {
		add("*", "*", "", "", "list", "delete")
		add("", "namespaces", "", "", "watch", "get")
		add("", "namespaces", "status", "", "update")
		add("", "namespaces", "finalize", "", "update")
	}
	if f.election.enabled {
		add("coordination.k8s.io", "leases", "", f.election.namespace, "get", "create", "update")
	}
	return all
}

// rights checks that the server grants what is needed, and names what it does not.
func (c *check) rights(ctx context.Context, needs []need) error {
	missing, err := c.review(ctx, needs)
	if apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) {
		c.log.DebugContext(ctx, "the server reviews no access; asking for a list of everything instead")
		missing, err = c.tryLists(ctx)
	}
	if err != nil {
		return fmt.Errorf("ask %s what is allowed: %w", c.host, causeOf(err))
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
	return fmt.Errorf("%s does not allow %s to: %s%s; grant it (deploy/kustomize/base/rbac.yaml), or leave resources out with --ignore-resources",
		c.host, c.source, strings.Join(text, ", "), more)
}

// review asks for each right whether it is granted. Where one on everything is not,
// it asks for every resource.
func (c *check) review(ctx context.Context, needs []need) ([]need, error) {
	missing, err := c.denied(ctx, needs)
	if err != nil {
		return nil, err
	}
	var single []need
	for _, n := range missing {
		if n.resource != "*" {
			single = append(single, n)
			continue
		}
		for _, r := range c.served {
			single = append(single, need{verb: n.verb, group: r.Group, resource: r.Resource})
		}
	}
	return c.denied(ctx, single)
}

// denied are those rights that are not granted.
func (c *check) denied(ctx context.Context, needs []need) ([]need, error) {
	granted := make([]bool, len(needs))
	err := each(ctx, len(needs), func(ctx context.Context, i int) error {
		n := needs[i]
		answer, err := c.client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb: n.verb, Group: n.group, Resource: n.resource, Subresource: n.subresource, Namespace: n.namespace,
			}},
		}, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		granted[i] = answer.Status.Allowed
		return nil
	})
	var missing []need
	for i, n := range needs {
		if !granted[i] && !slices.Contains(missing, n) {
			missing = append(missing, n)
		}
	}
	return missing, err
}

// tryLists lists one object of each resource, and returns what is forbidden. Other
// failures are those of a resource alone: the collector says of them what there is
// to be said, and they keep it from nothing else.
func (c *check) tryLists(ctx context.Context) ([]need, error) {
	var mu sync.Mutex
	var missing []need
	err := each(ctx, len(c.served), func(ctx context.Context, i int) error {
		_, err := c.metadata.Resource(c.served[i]).Namespace(corev1.NamespaceAll).List(ctx, metav1.ListOptions{Limit: 1})
		if apierrors.IsForbidden(err) {
			mu.Lock()
			defer mu.Unlock()
			missing = append(missing, need{verb: "list", group: c.served[i].Group, resource: c.served[i].Resource})
		}
		return ctx.Err()
	})
	slices.SortFunc(missing, func(a, b need) int { return cmp.Or(cmp.Compare(a.group, b.group), cmp.Compare(a.resource, b.resource)) })
	return missing, err
}

// each asks n questions, some at a time.
func each(ctx context.Context, n int, ask func(ctx context.Context, i int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(questions)
	for i := range n {
		group.Go(func() error { return ask(ctx, i) })
	}
	return group.Wait()
}
