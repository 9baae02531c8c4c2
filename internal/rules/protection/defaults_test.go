package protection

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func definitions() schema.GroupResource {
	return schema.GroupResource{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"}
}

func TestR28_LabelOverridesTheDefault(t *testing.T) {
	d := Defaults{definitions(): Unused}
	for _, test := range []struct {
		resource  schema.GroupResource
		labels    map[string]string
		want      Mode // empty: not protected
		byDefault bool
	}{
		{definitions(), nil, Unused, true},
		{definitions(), map[string]string{"app": "web"}, Unused, true},
		{definitions(), map[string]string{Label: "always"}, Always, false},
		{definitions(), map[string]string{Label: "cascading"}, Cascading, false},
		{definitions(), map[string]string{Label: "never"}, Always, false},
		{definitions(), map[string]string{Label: None}, "", false},
		{schema.GroupResource{Resource: "secrets"}, nil, "", false},
		{schema.GroupResource{Resource: "secrets"}, map[string]string{Label: "unused"}, Unused, false},
		{schema.GroupResource{Resource: "secrets"}, map[string]string{Label: None}, "", false},
	} {
		p, protected := d.Of(test.resource, &metav1.ObjectMeta{Labels: test.labels})
		if protected != (test.want != "") || p.Mode != test.want || p.ByDefault != test.byDefault {
			t.Errorf("%s %v: %+v, %t", test.resource, test.labels, p, protected)
		}
	}
}

func TestR28_RefusalByDefaultSaysSo(t *testing.T) {
	p, _ := Defaults{definitions(): Unused}.Of(definitions(), &metav1.ObjectMeta{})
	err := p.Decide(Request, []Remaining{{Outlived: shop}}).Error(definitions(), "", "widgets.acme.io")
	const want = "protected by default, as if it had the label coppice.dev/protect=unused: it is in use by ConfigMap shop/web; " +
		"to lift that: coppice unprotect customresourcedefinitions.apiextensions.k8s.io/widgets.acme.io"
	if message, refused := Refused(err); !refused || message != want {
		t.Errorf("%s, want %s", message, want)
	}
}

func TestDefaultsAreListedAndReadAgain(t *testing.T) {
	d := Defaults{definitions(): Unused, {Resource: "secrets"}: Cascading}
	if diff := cmp.Diff(d, DefaultsOf(d.List())); diff != "" {
		t.Error(diff)
	}
	if got := DefaultsOf([]Default{{"secrets", "of a later version"}}); got[schema.GroupResource{Resource: "secrets"}] != Always {
		t.Errorf("an unknown mode is read as %v", got)
	}
}
