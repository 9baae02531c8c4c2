package core

import (
	"context"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/coppice-dev/coppice/internal/apiserver/registry/table"
)

// ComponentStatuses is the read-only resource componentstatuses: the health of the components that the server depends
// on or that run beside it. Each request runs the checks.
type ComponentStatuses struct {
	rest.TableConvertor

	// checks returns the current checks, by component.
	checks func() map[string]func(context.Context) error
}

// NewComponentStatuses returns the resource componentstatuses. checks returns the current checks, by the names of the
// components. It must be safe for concurrent use.
func NewComponentStatuses(checks func() map[string]func(context.Context) error, now func() time.Time) *ComponentStatuses {
	return &ComponentStatuses{TableConvertor: table.Convertor{Columns: componentStatusColumns(), Now: now}, checks: checks}
}

func componentStatusColumns() []table.Column {
	healthy := func(text func(corev1.ComponentCondition) string, otherwise string) func(*corev1.ComponentStatus) string {
		return func(s *corev1.ComponentStatus) string {
			for _, c := range s.Conditions {
				if c.Type == corev1.ComponentHealthy {
					return text(c)
				}
			}
			return otherwise
		}
	}
	return []table.Column{
		table.Name(),
		table.Text("Status", "Whether the component is healthy.", healthy(func(c corev1.ComponentCondition) string {
			if c.Status == corev1.ConditionTrue {
				return "Healthy"
			}
			return "Unhealthy"
		}, "Unknown")),
		table.Text("Message", "What it answers.", healthy(func(c corev1.ComponentCondition) string { return c.Message }, "")),
		table.Text("Error", "What is wrong.", healthy(func(c corev1.ComponentCondition) string { return c.Error }, "")),
	}
}

// New implements rest.Storage.
func (r *ComponentStatuses) New() runtime.Object { return &corev1.ComponentStatus{} }

// NewList implements rest.Lister.
func (r *ComponentStatuses) NewList() runtime.Object { return &corev1.ComponentStatusList{} }

// Destroy implements rest.Storage. Nothing is stored.
func (r *ComponentStatuses) Destroy() {}

// NamespaceScoped implements rest.Scoper.
func (r *ComponentStatuses) NamespaceScoped() bool { return false }

// GetSingularName implements rest.SingularNameProvider.
func (r *ComponentStatuses) GetSingularName() string { return "componentstatus" }

// ShortNames implements rest.ShortNamesProvider.
func (r *ComponentStatuses) ShortNames() []string { return []string{"cs"} }

// Get implements rest.Getter.
func (r *ComponentStatuses) Get(ctx context.Context, name string, _ *metav1.GetOptions) (runtime.Object, error) {
	check, ok := r.checks()[name]
	if !ok {
		return nil, apierrors.NewNotFound(corev1.Resource("componentstatuses"), name)
	}
	status := componentStatus(ctx, name, check)
	return &status, nil
}

// List implements rest.Lister. Components have no labels.
func (r *ComponentStatuses) List(ctx context.Context, options *internalversion.ListOptions) (runtime.Object, error) {
	byLabel, byField := labels.Everything(), fields.Everything()
	if options != nil && options.LabelSelector != nil {
		byLabel = options.LabelSelector
	}
	if options != nil && options.FieldSelector != nil {
		byField = options.FieldSelector
	}
	list := &corev1.ComponentStatusList{Items: []corev1.ComponentStatus{}}
	checks := r.checks()
	for _, name := range slices.Sorted(maps.Keys(checks)) {
		if byLabel.Matches(labels.Set{}) && byField.Matches(fields.Set{"metadata.name": name}) {
			list.Items = append(list.Items, componentStatus(ctx, name, checks[name]))
		}
	}
	return list, nil
}

func componentStatus(ctx context.Context, name string, check func(context.Context) error) corev1.ComponentStatus {
	condition := corev1.ComponentCondition{Type: corev1.ComponentHealthy, Status: corev1.ConditionTrue, Message: "ok"}
	if err := check(ctx); err != nil {
		condition.Status, condition.Message, condition.Error = corev1.ConditionFalse, "", err.Error()
	}
	return corev1.ComponentStatus{ObjectMeta: metav1.ObjectMeta{Name: name}, Conditions: []corev1.ComponentCondition{condition}}
}
