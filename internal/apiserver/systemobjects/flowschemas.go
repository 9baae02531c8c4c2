package systemobjects

import (
	"context"
	"log/slog"

	"golang.org/x/sync/errgroup"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap"
	flowcontrolclient "k8s.io/client-go/kubernetes/typed/flowcontrol/v1"

	"github.com/coppice-dev/coppice/internal/apiserver/auth/bootstrappolicy"
	"github.com/coppice-dev/coppice/internal/collect/pace"
)

// The flow schemas for the control plane's own users.
const (
	ControllersFlowSchema    = "coppice-controllers"
	ControllersReadingSchema = "coppice-controllers-reading"
	LeaderElectionFlowSchema = "coppice-leader-election"
)

// EnsureFlowSchemas creates the missing default priority levels and flow schemas, and retries until ctx ends.
// It does not change existing ones; KeepFlowSchemas does.
func EnsureFlowSchemas(ctx context.Context, log *slog.Logger, client flowcontrolclient.FlowcontrolV1Interface) error {
	return pace.Retry(ctx, log, "create the default flow schemas", func(ctx context.Context) error {
		return createFlowSchemas(ctx, client)
	})
}

func createFlowSchemas(ctx context.Context, client flowcontrolclient.FlowcontrolV1Interface) error {
	group, writing := errgroup.WithContext(ctx)
	group.SetLimit(pace.WritesAtStart)
	for _, levels := range [][]*flowcontrolv1.PriorityLevelConfiguration{bootstrap.MandatoryPriorityLevelConfigurations, bootstrap.SuggestedPriorityLevelConfigurations} {
		for _, level := range levels {
			group.Go(func() error {
				_, err := client.PriorityLevelConfigurations().Create(writing, level.DeepCopy(), metav1.CreateOptions{})
				return ignoreExisting(err)
			})
		}
	}
	if err := group.Wait(); err != nil {
		return err
	}
	group, writing = errgroup.WithContext(ctx)
	group.SetLimit(pace.WritesAtStart)
	for _, schema := range flowSchemas() {
		group.Go(func() error {
			_, err := client.FlowSchemas().Create(writing, schema.DeepCopy(), metav1.CreateOptions{})
			return ignoreExisting(err)
		})
	}
	return group.Wait()
}

// flowSchemas returns the default flow schemas of k8s.io/apiserver, two for the control plane's
// controllers, and one for leader election among control planes.
//
// Lists and watches of the controllers are exempt. The controllers open them for all kinds at once, when
// they start and when kinds are defined, and few otherwise. A refused watch would hide a kind from them.
func flowSchemas() []*flowcontrolv1.FlowSchema {
	all := append([]*flowcontrolv1.FlowSchema{}, bootstrap.MandatoryFlowSchemas...)
	all = append(all, bootstrap.SuggestedFlowSchemas...)
	controllers := []string{
		bootstrappolicy.Collector, bootstrappolicy.NamespaceController, bootstrappolicy.ProtectionController, bootstrappolicy.ResourceQuotaController,
		bootstrappolicy.WorkloadControllers, bootstrappolicy.HorizontalPodAutoscaler, bootstrappolicy.TokensController,
		bootstrappolicy.StorageVersionMigrator,
	}
	reading := flowSchema(ControllersReadingSchema, bootstrap.MandatoryPriorityLevelConfigurationExempt.Name, 790, controllers...)
	reading.Spec.DistinguisherMethod = nil
	for i := range reading.Spec.Rules {
		reading.Spec.Rules[i].ResourceRules[0].Verbs = []string{"list", "watch"}
		reading.Spec.Rules[i].NonResourceRules = nil
	}
	return append(all, reading,
		flowSchema(ControllersFlowSchema, bootstrap.SuggestedPriorityLevelConfigurationWorkloadHigh.Name, 800, controllers...),
		flowSchema(LeaderElectionFlowSchema, bootstrap.SuggestedPriorityLevelConfigurationLeaderElection.Name, 100, bootstrappolicy.LeaderElection))
}

// flowSchema returns a flow schema that matches all requests of the users.
func flowSchema(name, level string, precedence int32, users ...string) *flowcontrolv1.FlowSchema {
	var subjects []flowcontrolv1.Subject
	for _, user := range users {
		subjects = append(subjects, flowcontrolv1.Subject{Kind: flowcontrolv1.SubjectKindUser, User: &flowcontrolv1.UserSubject{Name: user}})
	}
	everything := []string{"*"}
	return &flowcontrolv1.FlowSchema{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{flowcontrolv1.AutoUpdateAnnotationKey: "true"}},
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
