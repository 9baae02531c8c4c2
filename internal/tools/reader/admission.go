package reader

import (
	"context"
	"errors"
	"fmt"
	"sync"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/coppice-dev/coppice/internal/collect/pace"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
)

const (
	// mostBodies and mostBytes bound the whole objects that a question reads: their number, and their JSON in bytes.
	mostBodies = 2000
	mostBytes  = 64 << 20
	// paramsPage is the number of objects of a paramKind in an answer. mostBytes bounds them, too.
	paramsPage = 50
	// bodiesAtOnce is the number of GETs under way.
	bodiesAtOnce = 8
)

var (
	errTooManyBodies = errors.New("too many objects would have to be read, or too large ones")
	errTooManyParams = errors.New("they are too many, or too large, to be read")
	errReplaced      = errors.New("it was replaced meanwhile")
)

// policies reads all ValidatingAdmissionPolicies that have bindings, and the objects of their paramKinds. A server
// without the kind has none.
func (r *Facts) policies(ctx context.Context) ([]inventory.Policy, error) {
	client := r.client.AdmissionregistrationV1()
	bindings, err := client.ValidatingAdmissionPolicyBindings().List(ctx, metav1.ListOptions{})
	if err != nil || len(bindings.Items) == 0 {
		return nil, missingRight(ignoreNotFound(err), "list")
	}
	policies, err := client.ValidatingAdmissionPolicies().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, missingRight(err, "list")
	}
	bound := map[string][]admissionregistrationv1.ValidatingAdmissionPolicyBinding{}
	for _, b := range bindings.Items {
		bound[b.Spec.PolicyName] = append(bound[b.Spec.PolicyName], b)
	}
	var found []inventory.Policy
	for _, p := range policies.Items {
		if len(bound[p.Name]) == 0 {
			continue
		}
		one := inventory.Policy{ValidatingAdmissionPolicy: p, Bindings: bound[p.Name]}
		if kind := p.Spec.ParamKind; kind != nil {
			var params []*unstructured.Unstructured
			params, one.ParamsAreNamespaced, err = r.params(ctx, schema.FromAPIVersionAndKind(kind.APIVersion, kind.Kind))
			one.Params = inventory.FactOf(params, err)
		}
		found = append(found, one)
	}
	return found, nil
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// missingRight returns an error that names the right that a user lacks, in few words: it may be repeated for each object.
// It returns other errors unchanged.
func missingRight(err error, verb string) error {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok || !apierrors.IsForbidden(err) || status.ErrStatus.Details == nil {
		return err
	}
	resource := schema.GroupResource{Group: status.ErrStatus.Details.Group, Resource: status.ErrStatus.Details.Kind}
	return fmt.Errorf("you may not %s %s", verb, resource)
}

// params reads the objects of a paramKind.
func (r *Facts) params(ctx context.Context, kind schema.GroupVersionKind) (found []*unstructured.Unstructured, namespaced bool, err error) {
	mapping, err := r.mapper().RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return nil, false, err
	}
	client, err := r.objects()
	if err != nil {
		return nil, false, err
	}
	for page := (metav1.ListOptions{Limit: paramsPage}); ; {
		list, err := client.Resource(mapping.Resource).List(ctx, page)
		if err != nil {
			return nil, false, err
		}
		for i := range list.Items {
			found = append(found, &list.Items[i])
			r.bytesOfBodies.Add(sizeOf(&list.Items[i]))
		}
		if r.bytesOfBodies.Load() > mostBytes {
			return nil, false, errTooManyParams
		}
		if page.Continue = list.GetContinue(); page.Continue == "" {
			return found, mapping.Scope.Name() == meta.RESTScopeNameNamespace, nil
		}
	}
}

// readBodies reads whole objects. An object that was replaced meanwhile counts as unread.
func (r *Facts) readBodies(ctx context.Context, needs map[ownership.UID]*inventory.Object, known map[ownership.UID]inventory.Fact[*unstructured.Unstructured]) {
	var mu sync.Mutex
	add := func(uid ownership.UID, body *unstructured.Unstructured, err error) {
		mu.Lock()
		defer mu.Unlock()
		known[uid] = inventory.FactOf(body, err)
	}
	if len(needs) == 0 {
		return
	}
	all := sorted(needs)
	client, err := r.objects()
	if err != nil {
		for _, o := range all {
			add(o.UID, nil, err)
		}
		return
	}
	within := all[:max(0, min(len(all), mostBodies-len(known)))]
	for _, o := range all[len(within):] {
		add(o.UID, nil, errTooManyBodies)
	}
	_ = pace.Each(bodiesAtOnce, within, func(o *inventory.Object) error {
		if r.bytesOfBodies.Load() > mostBytes {
			add(o.UID, nil, errTooManyBodies)
			return nil
		}
		body, err := bodyOf(ctx, client, o)
		if err == nil {
			r.bytesOfBodies.Add(sizeOf(body))
		}
		add(o.UID, body, err)
		return nil
	})
}

// sizeOf returns the size of an object as JSON, in bytes.
func sizeOf(body *unstructured.Unstructured) int64 {
	text, err := body.MarshalJSON()
	if err != nil {
		return mostBytes // no more are read
	}
	return int64(len(text))
}

func bodyOf(ctx context.Context, client dynamic.Interface, o *inventory.Object) (*unstructured.Unstructured, error) {
	body, err := client.Resource(o.Resource.GroupVersionResource).Namespace(o.Namespace).Get(ctx, o.Name, metav1.GetOptions{})
	if err == nil && ownership.UID(body.GetUID()) != o.UID {
		return nil, errReplaced
	}
	return body, err
}

// deleters returns the users whose requests a preview plays: the user itself, and the components, by their names on our
// server or on clusters whose kube-controller-manager uses a service account for each controller.
func (r *Facts) deleters(ctx context.Context) (inventory.Deleters, error) {
	review, err := r.client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return inventory.Deleters{}, err
	}
	all := inventory.KubernetesControllers()
	if r.isOurs() {
		all = inventory.OurControllers()
	}
	all.Requester = review.Status.UserInfo
	return all, nil
}
