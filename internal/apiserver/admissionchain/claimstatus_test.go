package admissionchain

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes/fake"
)

// claimPermissions are the permissions of every user: "VERB SUBRESOURCE NAMESPACE/NAME".
type claimPermissions []string

func (p claimPermissions) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	asked := a.GetVerb() + " " + a.GetSubresource() + " " + a.GetNamespace() + "/" + a.GetName()
	if a.GetAPIGroup() == "resource.k8s.io" && a.GetResource() == "resourceclaims" && slices.Contains(p, asked) {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

// requestBy returns the context of an update of a claim's status by a user.
func requestBy(t *testing.T, who user.Info) context.Context {
	t.Helper()
	ctx := genericrequest.WithUser(t.Context(), who)
	return genericrequest.WithRequestInfo(ctx, &genericrequest.RequestInfo{
		IsResourceRequest: true, Verb: "update", APIGroup: "resource.k8s.io", APIVersion: "v1", Namespace: "ns",
		Resource: "resourceclaims", Subresource: "status", Name: "a", Path: http.MethodPut,
	})
}

// claim returns a claim with a device on node n1.
func claim(change func(*resourcev1.ResourceClaimStatus)) *resourcev1.ResourceClaim {
	c := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a"}}
	c.Status.Allocation = &resourcev1.AllocationResult{NodeSelector: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{"n1"}}},
	}}}}
	if change != nil {
		change(&c.Status)
	}
	return c
}

func TestClaimStatusPermissions(t *testing.T) {
	type status = resourcev1.ResourceClaimStatus
	reserved := func(s *status) { s.ReservedFor = []resourcev1.ResourceClaimConsumerReference{{UID: "u"}} }
	reported := func(s *status) { s.Devices = []resourcev1.AllocatedDeviceStatus{{Driver: "gpu.example.com"}} }
	deallocated := func(s *status) { s.Allocation = nil }
	admin := func(s *status) {
		yes := true
		s.Allocation.Devices.Results = []resourcev1.DeviceRequestAllocationResult{{AdminAccess: &yes}}
	}
	ann := &user.DefaultInfo{Name: "ann"}
	driverOn := func(node string) user.Info {
		return &user.DefaultInfo{Name: "system:serviceaccount:ns:driver", Extra: map[string][]string{serviceaccount.NodeNameKey: {node}}}
	}
	const binding, anywhere, here = "update binding /", "arbitrary-node:update driver ns/gpu.example.com", "associated-node:update driver ns/gpu.example.com"
	const needsBinding, needsDriver, needsLabel = "resourceclaims/binding", "resourceclaims/driver", "admin-access: true"
	for name, test := range map[string]struct {
		who      user.Info
		allowed  claimPermissions
		old, now func(*status)
		labels   map[string]string
		want     string
	}{
		"nothing changes":              {ann, nil, reserved, reserved, nil, ""},
		"reserves":                     {ann, claimPermissions{binding}, nil, reserved, nil, ""},
		"may not reserve":              {ann, claimPermissions{anywhere}, nil, reserved, nil, needsBinding},
		"may not release":              {ann, nil, reserved, nil, nil, needsBinding},
		"may not deallocate":           {ann, nil, nil, deallocated, nil, needsBinding},
		"deallocates":                  {ann, claimPermissions{binding}, reported, deallocated, nil, ""},
		"reports":                      {ann, claimPermissions{anywhere}, nil, reported, nil, ""},
		"may not report":               {ann, claimPermissions{binding}, nil, reported, nil, needsDriver},
		"may not withdraw":             {ann, claimPermissions{binding}, reported, nil, nil, needsDriver},
		"reports for its node":         {driverOn("n1"), claimPermissions{here}, nil, reported, nil, ""},
		"reports for another node":     {driverOn("n2"), claimPermissions{here}, nil, reported, nil, needsDriver},
		"is not on a node":             {ann, claimPermissions{here}, nil, reported, nil, needsDriver},
		"admin access":                 {ann, claimPermissions{binding}, nil, admin, map[string]string{"resource.kubernetes.io/admin-access": "true"}, ""},
		"no admin access here":         {ann, claimPermissions{binding}, nil, admin, nil, needsLabel},
		"admin access that it had":     {ann, claimPermissions{binding}, admin, admin, nil, ""},
		"no admin access without name": {ann, claimPermissions{binding}, nil, admin, map[string]string{"resource.kubernetes.io/admin-access": ""}, needsLabel},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := newClaimStatus(test.allowed, fake.NewClientset(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns", Labels: test.labels}}))
			if err != nil {
				t.Fatal(err)
			}
			a := admission.NewAttributesRecord(claim(test.now), claim(test.old), resourcev1.SchemeGroupVersion.WithKind("ResourceClaim"), "ns", "a",
				resourcev1.SchemeGroupVersion.WithResource("resourceclaims"), "status", admission.Update, nil, false, test.who)
			err = p.Validate(requestBy(t, test.who), a, nil)
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, want %q", err, test.want)
			}
		})
	}
}

// TestOtherRequestsAreNoClaimStatus checks that the plug-in ignores other resources, and the claim itself.
func TestOtherRequestsAreNoClaimStatus(t *testing.T) {
	p, err := newClaimStatus(claimPermissions{}, fake.NewClientset())
	if err != nil {
		t.Fatal(err)
	}
	a := admission.NewAttributesRecord(&corev1.Pod{}, &corev1.Pod{}, corev1.SchemeGroupVersion.WithKind("Pod"), "ns", "a",
		corev1.SchemeGroupVersion.WithResource("pods"), "status", admission.Update, nil, false, nil)
	if err := p.Validate(t.Context(), a, nil); err != nil {
		t.Error(err)
	}
	if _, err := newClaimStatus(nil, fake.NewClientset()); err == nil {
		t.Error("it works without an authorizer")
	}
}
