package resourceclaim

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// podWith returns a pod with the claim "gpu" from the template "t" and the claim "net", which is the
// ResourceClaim "shared".
func podWith(change func(*corev1.Pod)) *corev1.Pod {
	template, shared := "t", "shared"
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u"}}
	p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimTemplateName: &template}, {Name: "net", ResourceClaimName: &shared}}
	if change != nil {
		change(p)
	}
	return p
}

// claimOf returns a claim that was made for the pod with that uid.
func claimOf(name string, owner types.UID, podClaim string) *resourcev1.ResourceClaim {
	isController := true
	return &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: name, Annotations: map[string]string{resourcev1.PodResourceClaimAnnotation: podClaim},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "p", UID: owner, Controller: &isController}},
	}}
}

func allocated(c *resourcev1.ResourceClaim, reservedFor ...types.UID) *resourcev1.ResourceClaim {
	c.Finalizers = []string{"example.com/a", resourcev1.Finalizer}
	c.Status.Allocation = &resourcev1.AllocationResult{}
	for _, uid := range reservedFor {
		c.Status.ReservedFor = append(c.Status.ReservedFor, resourcev1.ResourceClaimConsumerReference{Resource: "pods", Name: "p", UID: uid})
	}
	return c
}

func shared() *resourcev1.ResourceClaim {
	return &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "shared"}}
}

func (p PodPlan) String() string {
	var words []string
	for _, c := range p.Create {
		words = append(words, "create "+c.Name)
	}
	for _, c := range p.Missing {
		words = append(words, describe(c))
	}
	for _, s := range p.Statuses {
		words = append(words, s.Name+" is "+*s.ResourceClaimName)
	}
	for _, c := range p.Reserve {
		words = append(words, "reserve "+c.Name)
	}
	return strings.Join(words, ", ")
}

func TestDecidePod(t *testing.T) {
	named := func(name string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: "gpu", ResourceClaimName: &name}}
		}
	}
	bound := func(p *corev1.Pod) { p.Spec.NodeName = "n" }
	made := newClaim(podWith(nil), "gpu", &resourcev1.ResourceClaimTemplate{}).Name
	var full []types.UID
	for i := range resourcev1.ResourceClaimReservedForMaxSize {
		full = append(full, types.UID(fmt.Sprint(i)))
	}
	gone := func(c *resourcev1.ResourceClaim) *resourcev1.ResourceClaim {
		c.DeletionTimestamp = &metav1.Time{}
		return c
	}
	for name, test := range map[string]struct {
		pod       *corev1.Pod
		claims    []*resourcev1.ResourceClaim
		templates []string
		want      string
	}{
		"new":                   {podWith(nil), nil, []string{"t"}, "create " + made + ", gpu is " + made},
		"no template":           {podWith(nil), nil, []string{"other"}, `PodResourceClaim gpu: resource claim template "t": resourceclaimtemplate.resource.k8s.io "t" not found`},
		"made a moment ago":     {podWith(nil), []*resourcev1.ResourceClaim{claimOf("a", "u", "gpu")}, []string{"t"}, "gpu is a"},
		"made and said so":      {podWith(named("a")), []*resourcev1.ResourceClaim{claimOf("a", "u", "gpu")}, []string{"t"}, ""},
		"made without template": {podWith(named("a")), []*resourcev1.ResourceClaim{claimOf("a", "u", "gpu")}, nil, ""},
		"somebody deleted it":   {podWith(named("a")), nil, []string{"t"}, "create " + made + ", gpu is " + made},
		"deleted, same name":    {podWith(named(made)), nil, []string{"t"}, "create " + made},
		"another pod's":         {podWith(named("a")), []*resourcev1.ResourceClaim{claimOf("a", "v", "gpu")}, []string{"t"}, "create " + made + ", gpu is " + made},
		"of another of its claims": {
			podWith(nil),
			[]*resourcev1.ResourceClaim{claimOf("a", "u", "disk")},
			[]string{"t"},
			"create " + made + ", gpu is " + made,
		},
		"it needs none": {podWith(func(p *corev1.Pod) {
			p.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: "gpu"}}
		}), nil, []string{"t"}, ""},
		"being deleted":               {podWith(func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} }), nil, []string{"t"}, ""},
		"ended":                       {podWith(func(p *corev1.Pod) { bound(p); p.Status.Phase = corev1.PodFailed }), []*resourcev1.ResourceClaim{allocated(shared())}, []string{"t"}, ""},
		"bound without a scheduler":   {podWith(bound), []*resourcev1.ResourceClaim{allocated(shared())}, nil, `PodResourceClaim gpu: resource claim template "t": resourceclaimtemplate.resource.k8s.io "t" not found, reserve shared`},
		"bound, and reserved":         {podWith(func(p *corev1.Pod) { bound(p); named("a")(p) }), []*resourcev1.ResourceClaim{allocated(shared(), "u"), claimOf("a", "u", "gpu")}, nil, ""},
		"bound, and allocated":        {podWith(func(p *corev1.Pod) { bound(p); named("a")(p) }), []*resourcev1.ResourceClaim{allocated(claimOf("a", "u", "gpu"))}, nil, "reserve a"},
		"not bound, allocated":        {podWith(named("a")), []*resourcev1.ResourceClaim{allocated(claimOf("a", "u", "gpu")), allocated(shared())}, nil, ""},
		"bound, as many as can be":    {podWith(func(p *corev1.Pod) { bound(p); named("a")(p) }), []*resourcev1.ResourceClaim{allocated(shared(), full...), claimOf("a", "u", "gpu")}, nil, ""},
		"bound, the claim is leaving": {podWith(func(p *corev1.Pod) { bound(p); named("a")(p) }), []*resourcev1.ResourceClaim{gone(allocated(shared())), claimOf("a", "u", "gpu")}, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			known := PodClaims{Claims: map[string]*resourcev1.ResourceClaim{}, Templates: map[string]*resourcev1.ResourceClaimTemplate{}}
			for _, c := range test.claims {
				known.Claims[c.Name] = c
			}
			for _, t := range test.templates {
				known.Templates[t] = &resourcev1.ResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: t}}
			}
			if got := DecidePod(test.pod, known).String(); got != test.want {
				t.Errorf("%s, want %s", got, test.want)
			}
		})
	}
}

// TestNewClaim: the claim follows the template, belongs to the pod, and has a valid name.
func TestNewClaim(t *testing.T) {
	template := &resourcev1.ResourceClaimTemplate{}
	template.Spec.Labels, template.Spec.Annotations = map[string]string{"a": "b"}, map[string]string{"c": "d"}
	template.Spec.Spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: "r"}}
	c := newClaim(podWith(nil), "gpu", template)
	if !metav1.IsControlledBy(c, podWith(nil)) || c.OwnerReferences[0].BlockOwnerDeletion != nil {
		t.Errorf("owners are %v", c.OwnerReferences)
	}
	if c.Labels["a"] != "b" || c.Annotations["c"] != "d" || c.Annotations[resourcev1.PodResourceClaimAnnotation] != "gpu" || len(c.Spec.Devices.Requests) != 1 {
		t.Errorf("not what the template says: %v", c)
	}
	if len(template.Spec.Annotations) != 1 {
		t.Error("the template has changed")
	}
	if !strings.HasPrefix(c.Name, "p-gpu-") || len(c.Name) != len("p-gpu-12345") || c.GenerateName != "p-gpu-" {
		t.Errorf("name %q of %q", c.Name, c.GenerateName)
	}
	if requeueAfter := newClaim(podWith(nil), "gpu", template); requeueAfter.Name != c.Name {
		t.Errorf("the name changes: %s, %s", c.Name, requeueAfter.Name)
	}
	if other := newClaim(podWith(func(p *corev1.Pod) { p.UID = "v" }), "gpu", template); other.Name == c.Name {
		t.Error("another pod's claim has the same name")
	}
	long := newClaim(podWith(func(p *corev1.Pod) { p.Name = strings.Repeat("p", 200) }), strings.Repeat("c", 60), template)
	if len(long.Name) > 63 || !strings.Contains(long.Name, "-c") {
		t.Errorf("name %q", long.Name)
	}
}

func (p ClaimPlan) String() string {
	var words []string
	if p.Release {
		words = append(words, fmt.Sprintf("release, %d remain", len(p.Remaining)))
	}
	for _, step := range []struct {
		does bool
		word string
	}{{p.Deallocate, "deallocate"}, {p.Unprotect, "unprotect"}, {p.Delete, "delete"}} {
		if step.does {
			words = append(words, step.word)
		}
	}
	return strings.Join(words, ", ")
}

func TestDecideClaim(t *testing.T) {
	leaving := func(c *resourcev1.ResourceClaim) *resourcev1.ResourceClaim {
		c.DeletionTimestamp = &metav1.Time{}
		return c
	}
	foreign := func(c *resourcev1.ResourceClaim) *resourcev1.ResourceClaim {
		c.Finalizers = []string{"example.com/a"}
		return c
	}
	failed := podWith(func(p *corev1.Pod) { p.Status.Phase, p.Spec.NodeName = corev1.PodFailed, "n" })
	for name, test := range map[string]struct {
		claim *resourcev1.ResourceClaim
		ended []types.UID
		owner *corev1.Pod
		want  string
	}{
		"not allocated":               {shared(), nil, nil, ""},
		"in use":                      {allocated(shared(), "u", "v"), nil, nil, ""},
		"one pod has ended":           {allocated(shared(), "u", "v"), []types.UID{"u"}, nil, "release, 1 remain"},
		"the last pod has ended":      {allocated(shared(), "u"), []types.UID{"u"}, nil, "release, 0 remain, deallocate, unprotect"},
		"allocated by somebody else":  {foreign(allocated(shared(), "u")), []types.UID{"u"}, nil, "release, 0 remain"},
		"never reserved":              {allocated(shared()), nil, nil, ""},
		"never reserved, leaving":     {leaving(allocated(shared())), nil, nil, "deallocate, unprotect"},
		"leaving, in use":             {leaving(allocated(shared(), "u")), nil, nil, ""},
		"leaving, of somebody else":   {leaving(foreign(allocated(shared()))), nil, nil, ""},
		"made for a pod that runs":    {claimOf("a", "u", "gpu"), nil, podWith(nil), ""},
		"made for a pod that ended":   {allocated(claimOf("a", "u", "gpu"), "u"), []types.UID{"u"}, failed, "release, 0 remain, deallocate, unprotect, delete"},
		"others use it, too":          {allocated(claimOf("a", "u", "gpu"), "u", "v"), []types.UID{"u"}, failed, "release, 1 remain"},
		"its pod was never scheduled": {claimOf("a", "u", "gpu"), nil, podWith(func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} }), "delete"},
		"its pod is ending":           {claimOf("a", "u", "gpu"), nil, podWith(func(p *corev1.Pod) { p.DeletionTimestamp, p.Spec.NodeName = &metav1.Time{}, "n" }), ""},
		"another pod has ended":       {claimOf("a", "v", "gpu"), nil, failed, ""},
		"leaving already":             {leaving(claimOf("a", "u", "gpu")), nil, failed, ""},
		"nobody's, its pod ended":     {shared(), nil, failed, ""},
	} {
		t.Run(name, func(t *testing.T) {
			ended := map[resourcev1.ResourceClaimConsumerReference]bool{}
			for _, r := range test.claim.Status.ReservedFor {
				ended[r] = slices.Contains(test.ended, r.UID)
			}
			if got := DecideClaim(test.claim, ended, test.owner).String(); got != test.want {
				t.Errorf("%s, want %s", got, test.want)
			}
		})
	}
}
