package explain

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/coppice-dev/coppice/internal/rules/escape"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/rules/refusal"
	"github.com/coppice-dev/coppice/internal/rules/verdict"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
)

// Refused is the last refusal of the server to delete or to change an object (R31).
type Refused struct {
	refusal.Refusal

	Since time.Time
}

// refused explains an object by the refusal that a running collector reports.
func (e *Explainer) refused(o *inventory.Object) (Wait, bool) {
	if e.Collector == nil {
		return Wait{}, false
	}
	r, ok := e.Collector.Refused[o.UID]
	if !ok {
		return Wait{}, false
	}
	return e.remembered(o, r), true
}

// refusal explains a refusal. One that may end by itself is unknown in the first minute.
func (e *Explainer) refusal(o *inventory.Object, r Refused) Wait {
	w := Wait{On: OnRefusal, State: Stuck, Since: &r.Since, Says: "the server refuses it: " + r.String(), Next: e.adviceOn(o, r.Refusal)}
	switch r.By {
	case refusal.ByWebhook, refusal.ByUnreachableWebhook:
		w.On = OnWebhook
	case refusal.ByProtection:
		w.On = OnProtection
	case refusal.ByPolicy, refusal.ByMutatingPolicy, refusal.ByConversion, refusal.ByQuota, refusal.ByConfirmation, refusal.ByRBAC, refusal.ByServer, refusal.ByFailure:
	}
	if r.By.MayPass() && e.Now.Sub(r.Since) < prompt {
		w.State = Unknown
	}
	return w
}

// adviceOn returns the steps that end a refusal.
func (e *Explainer) adviceOn(o *inventory.Object, r refusal.Refusal) []Step {
	switch r.By {
	case refusal.ByPolicy:
		return policySteps("validatingadmissionpolicies", r)
	case refusal.ByMutatingPolicy:
		return policySteps("mutatingadmissionpolicies", r)
	case refusal.ByWebhook:
		return []Step{
			{"do what the webhook asks for, if it does", get(o)},
			{"or change its configuration so that it does not match the object", e.configuration(r.Name)},
		}
	case refusal.ByUnreachableWebhook:
		return e.restoreWebhook(r.Name)
	case refusal.ByConversion:
		return e.restoreConversion(o, r)
	case refusal.ByQuota:
		return []Step{{"raise the quota, or delete other objects that it counts", "kubectl describe resourcequotas " + escape.Shell(r.Name) + namespaceFlag(o.Namespace)}}
	case refusal.ByProtection:
		return []Step{{"look how it is protected: wait for what it outlives, or lift the protection if it may go", get(o)}}
	case refusal.ByConfirmation:
		return []Step{{"look what would be deleted with it, and delete what may go", previewOf(o)}}
	case refusal.ByRBAC:
		return []Step{{"give the user the right", canI(o, r)}}
	case refusal.ByServer:
		return []Step{{"the server will not do it as the object is: read its words, and change the object, or its references to owners if it is to stay", get(o)}}
	case refusal.ByFailure:
	}
	return []Step{{"look into the log of the API server", describe(o)}}
}

// restoreConversion returns the steps after which objects of a kind can be converted again.
func (e *Explainer) restoreConversion(o *inventory.Object, r refusal.Refusal) []Step {
	crd, name := e.definition(o), "customresourcedefinitions"
	switch {
	case o.Kind.Kind == "CustomResourceDefinition":
		crd, name = o, name+"/"+o.Name
	case o.Resource != nil && o.Kind.String() == r.Name:
		name += "/" + o.Resource.GroupResource().String()
	}
	step := Step{"bring back the conversion webhook; or set the strategy None, if the versions have the same fields", "kubectl get " + escape.Shell(name) + " -o jsonpath='{.spec.conversion}'"}
	if crd != nil && e.Facts != nil {
		if body := e.Facts.Body(crd).Value; body != nil {
			home, _, _ := unstructured.NestedString(body.Object, "spec", "conversion", "webhook", "clientConfig", "service", "namespace")
			if home != "" && e.isLeaving(home) {
				step.Says = "the conversion webhook cannot come back, for its namespace is being deleted: set the strategy None, if the versions have the same fields"
			}
		}
	}
	return []Step{step}
}

func policySteps(resource string, r refusal.Refusal) []Step {
	steps := []Step{{"change the policy, or the object so that the policy admits it", "kubectl get " + resource + " " + escape.Shell(r.Name) + " -o yaml"}}
	if r.Binding != "" {
		binding := strings.TrimSuffix(resource, "policies") + "policybindings"
		steps = append(steps, Step{"or change its binding so that it does not match the object", "kubectl get " + binding + " " + escape.Shell(r.Binding) + " -o yaml"})
	}
	return steps
}

// canI returns the command that tests whether a user has the right that was missing.
func canI(o *inventory.Object, r refusal.Refusal) string {
	verb := "delete"
	if strings.Contains(r.Message, " cannot patch ") {
		verb = "patch"
	}
	resource := strings.ToLower(o.Kind.Kind)
	if o.Resource != nil {
		resource = o.Resource.GroupResource().String()
	}
	command := "kubectl auth can-i " + verb + " " + escape.Shell(resource) + namespaceFlag(o.Namespace)
	if r.Name != "" {
		command += " --as " + escape.Shell(r.Name)
	}
	return command
}

func namespaceFlag(namespace string) string {
	if namespace == "" {
		return ""
	}
	return " -n " + escape.Shell(namespace)
}

// webhookNamed returns the webhook with a name, if its configuration could be read.
func (e *Explainer) webhookNamed(name string) (inventory.Webhook, bool) {
	if e.Facts == nil {
		return inventory.Webhook{}, false
	}
	for _, w := range e.Facts.AllWebhooks().Value {
		if w.Name == name {
			return w, true
		}
	}
	return inventory.Webhook{}, false
}

// configuration returns the command that shows the configuration of a webhook.
func (e *Explainer) configuration(webhook string) string {
	const all = "kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations"
	w, _ := e.webhookNamed(webhook)
	kind, name, ok := strings.Cut(w.Configuration, " ")
	if !ok {
		return all
	}
	return "kubectl get " + strings.ToLower(kind) + "s " + escape.Shell(name) + " -o yaml"
}

// restoreWebhook returns the steps after which a webhook that fails closed is called no longer, or answers. A service
// in a namespace that is being deleted cannot be created again.
func (e *Explainer) restoreWebhook(name string) []Step {
	change := Step{"or delete its configuration, or set its failurePolicy to Ignore", e.configuration(name)}
	w, ok := e.webhookNamed(name)
	if !ok || w.Service.Name == "" {
		return []Step{{"make the webhook answer", e.configuration(name)}, change}
	}
	if e.isLeaving(w.Service.Namespace) {
		change.Says = "its service cannot come back, for its namespace is being deleted: delete its configuration, or set its failurePolicy to Ignore"
		return []Step{change}
	}
	return []Step{bringBack(w), change}
}

func bringBack(w inventory.Webhook) Step {
	return Step{"bring back the webhook's service", fmt.Sprintf("kubectl get endpointslices -n %s -l %s",
		escape.Shell(w.Service.Namespace), escape.Shell("kubernetes.io/service-name="+w.Service.Name))}
}

// isLeaving reports whether a namespace is known to be in deletion.
func (e *Explainer) isLeaving(namespace string) bool {
	r := e.Inventory.Resource(ownership.Kind{Kind: "Namespace"})
	if r == nil {
		return false
	}
	ns := e.Inventory.Named(r, "", namespace)
	return ns != nil && isTerminating(ns)
}

// undetached explains an owner whose dependents the collector cannot detach from it.
func (e *Explainer) undetached(o *inventory.Object, d verdict.Disown) (Wait, bool) {
	var waits []Wait
	for n, uid := range d.Dependents {
		dependent := e.Inventory.Object(uid)
		if dependent == nil {
			continue
		}
		w, ok := e.refused(dependent)
		if !ok && n < mostListed {
			remaining := slices.DeleteFunc(slices.Clone(dependent.Owners), func(r ownership.Reference) bool { return r.UID == o.UID })
			w, ok = e.unreported(dependent, detaches(dependent, remaining, requested(o)))
		}
		if ok {
			ref := refOf(dependent)
			w.Object, w.Says = &ref, ref.String()+": "+w.Says
			waits = append(waits, w)
		}
	}
	if len(waits) == 0 {
		return Wait{}, false
	}
	return Wait{On: OnDependent, Says: "the collector cannot detach " + counted(len(waits), "dependent"), Waits: waits}, true
}
