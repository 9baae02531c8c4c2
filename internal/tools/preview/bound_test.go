package preview_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/finalizerowner"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
	"github.com/coppice-dev/coppice/internal/tools/preview"
)

// A report on one object is bounded, whatever users write into the object, and counts the omitted entries.
func TestReportOfOneObjectIsBounded(t *testing.T) {
	const many, most = 4_000, 256 << 10
	inv := cluster(t, "ConfigMap solid", "Namespace shop", "ConfigMap held # example.com/first", "ConfigMap owned < solid")
	named := func(name string) *inventory.Object { return inv.Object(ownership.UID(name)) }
	for n := range many {
		named("held").Finalizers = append(named("held").Finalizers, fmt.Sprintf("example.com/hold-%d", n))
		named("owned").Owners = append(named("owned").Owners, ownership.Reference{
			APIVersion: "v1", Kind: "ConfigMap", Name: strings.Repeat("x", 300), UID: ownership.UID(fmt.Sprintf("absent-%d-%s", n, strings.Repeat("u", 300))),
		})
	}
	asked := 0
	for _, uid := range []ownership.UID{"held", "solid"} {
		p := preview.New(inv).Predict([]preview.Request{{UID: uid, Propagation: metav1.DeletePropagationBackground}}, preview.Options{})
		p.AddOwners(func(*inventory.Object, string) finalizerowner.Answer {
			asked++
			return finalizerowner.Answer{Evidence: []string{strings.Repeat("because ", 10_000)}}
		})
		report := p.Report(inv)
		encoded, err := json.Marshal(report)
		if err != nil {
			t.Fatal(err)
		}
		if len(encoded) > most || len(report.String()) > most {
			t.Errorf("%s: %d bytes of JSON and %d bytes of text, at most %d", uid, len(encoded), len(report.String()), most)
		}
		for _, o := range report.Objects {
			switch {
			case o.Name == "held" && (o.More == nil || o.More.Waits+len(o.Waits) != many+1 || o.More.Finalizers+len(o.Finalizers) != many+1):
				t.Errorf("held: %d waits, %d finalizers, and %+v more, want %d in all", len(o.Waits), len(o.Finalizers), o.More, many+1)
			case o.Name == "owned" && (o.More == nil || o.More.Owners+len(o.Owners) != many+1):
				t.Errorf("owned: %d owners and %+v more, want %d in all", len(o.Owners), o.More, many+1)
			case o.Name == "held" && !strings.Contains(report.String(), "; and for 3985 more"):
				t.Errorf("the text does not count the waits: %.2000s", report.String())
			}
		}
	}
	if asked > 16 {
		t.Errorf("who serves a finalizer was looked up %d times", asked)
	}
}

// A report counts the names of other objects beyond the first.
func TestReportCountsNames(t *testing.T) {
	lines := []string{"Namespace shop"}
	for n := range 500 {
		lines = append(lines, fmt.Sprintf("ConfigMap c%d # example.com/hold", n))
	}
	inv := cluster(t, lines...)
	p := preview.New(inv).Predict([]preview.Request{{UID: "shop"}}, preview.Options{})
	text := p.Report(inv).String()
	if !strings.Contains(text, "and 495 more") {
		t.Errorf("does not count 500 objects:\n%.1000s", text)
	}
	if listed := len(p.Report(inv).Objects); listed != 501 {
		t.Errorf("%d objects are listed, want all 501", listed)
	}
}
