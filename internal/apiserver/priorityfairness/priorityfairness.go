package apiserver

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/util/flowcontrol"
	flowcontrolclient "k8s.io/client-go/kubernetes/typed/flowcontrol/v1"

	"github.com/coppice-dev/coppice/internal/apiserver/auth/rbac"
)

// flowsTogether is how many of the objects below are written at a time.
const flowsTogether = 16

// shareFairly lets requests wait for their turn by priority and by who makes them, so
// that a flood of one user's is that user's problem. What is worked on at the same time is
// bounded; what finds its queue full is told to come back (429). Administrators are exempt.
func shareFairly(base *genericapiserver.Config, d *doors) {
	base.FlowControl = flowcontrol.New(d.shared, d.client.FlowcontrolV1(), base.MaxRequestsInFlight+base.MaxMutatingRequestsInFlight)
}

// flowSchemas are the library's, one for the control plane's own controllers, and one for
// the election among them.
func flowSchemas() []*flowcontrolv1.FlowSchema {
	all := append([]*flowcontrolv1.FlowSchema{}, bootstrap.MandatoryFlowSchemas...)
	all = append(all, bootstrap.SuggestedFlowSchemas...)
	return append(all,
		flowSchema("coppice-controllers", bootstrap.SuggestedPriorityLevelConfigurationWorkloadHigh.Name, 800,
			rbac.Collector, rbac.NamespaceController, rbac.ProtectionController, rbac.WorkloadControllers),
		flowSchema("coppice-election", bootstrap.SuggestedPriorityLevelConfigurationLeaderElection.Name, 100, rbac.Candidate))
}

// flowSchema is about all requests of some users.
func flowSchema(name, level string, precedence int32, users ...string) *flowcontrolv1.FlowSchema {
	var subjects []flowcontrolv1.Subject
	for _, user := range users {
		subjects = append(subjects, flowcontrolv1.Subject{Kind: flowcontrolv1.SubjectKindUser, User: &flowcontrolv1.UserSubject{Name: user}})
	}
	everything := []string{"*"}
	return &flowcontrolv1.FlowSchema{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: flowcontrolv1.FlowSchemaSpec{
			PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: level},
			MatchingPrecedence:         precedence,
			DistinguisherMethod:        &flowcontrolv1.FlowDistinguisherMethod{Type: flowcontrolv1.FlowDistinguisherMethodByUserType},
			Rules: []flowcontrolv1.PolicyRulesWithSubjects{{
				Subjects: subjects,
				ResourceRules: []flowcontrolv1.ResourcePolicyRule{{
					Verbs: everything, APIGroups: everything, Resources: everything, Namespaces: everything, ClusterScope: true,
				}},
				NonResourceRules: []flowcontrolv1.NonResourcePolicyRule{{Verbs: everything, NonResourceURLs: everything}},
			}},
		},
	}
}

// ensureFlows makes those of the objects by which requests are shared that are missing.
// Others are left as they are: an administrator may have changed them.
func ensureFlows(ctx context.Context, client flowcontrolclient.FlowcontrolV1Interface) error {
	var last error
	err := wait.PollUntilContextCancel(ctx, readyPoll, true, func(ctx context.Context) (bool, error) {
		last = createFlows(ctx, client)
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("make the default flow schemas: %w", last)
	}
	return nil
}

func createFlows(ctx context.Context, client flowcontrolclient.FlowcontrolV1Interface) error {
	group, writing := errgroup.WithContext(ctx)
	group.SetLimit(flowsTogether)
	for _, levels := range [][]*flowcontrolv1.PriorityLevelConfiguration{bootstrap.MandatoryPriorityLevelConfigurations, bootstrap.SuggestedPriorityLevelConfigurations} {
		for _, level := range levels {
			group.Go(func() error {
				_, err := client.PriorityLevelConfigurations().Create(writing, level.DeepCopy(), metav1.CreateOptions{})
				return orExists(err)
			})
		}
	}
	if err := group.Wait(); err != nil {
		return err
	}
	group, writing = errgroup.WithContext(ctx)
	group.SetLimit(flowsTogether)
	for _, schema := range flowSchemas() {
		group.Go(func() error {
			// With the condition that the library would write next, one write more for each.
			schema = schema.DeepCopy()
			schema.Status.Conditions = []flowcontrolv1.FlowSchemaCondition{foundLevel(schema)}
			_, err := client.FlowSchemas().Create(writing, schema, metav1.CreateOptions{})
			return orExists(err)
		})
	}
	return group.Wait()
}

// foundLevel is in the words of the library, which compares them.
func foundLevel(schema *flowcontrolv1.FlowSchema) flowcontrolv1.FlowSchemaCondition {
	return flowcontrolv1.FlowSchemaCondition{
		Type: flowcontrolv1.FlowSchemaConditionDangling, Status: flowcontrolv1.ConditionFalse, Reason: "Found",
		Message:            fmt.Sprintf("This FlowSchema references the PriorityLevelConfiguration object named %q and it exists", schema.Spec.PriorityLevelConfiguration.Name),
		LastTransitionTime: metav1.Now(),
	}
}

func orExists(err error) error {
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}
