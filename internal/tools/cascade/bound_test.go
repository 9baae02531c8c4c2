package cascade_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/cascade"
	"github.com/coppice-dev/coppice/internal/tools/explain"
)

// The cascade forgets what is beyond its bounds, and its report counts it.
func TestCascadeIsBounded(t *testing.T) {
	const roots, stays, members = 150, 1500, 600_000
	c := cascade.New()
	for n := range roots {
		c.AddRoot(explain.Ref{Kind: "ConfigMap", Name: strings.Repeat("n", 5000), UID: ownership.UID(fmt.Sprint("root", n))})
	}
	var lines []string
	for n := range stays {
		lines = append(lines, fmt.Sprintf("ConfigMap s%d < root0 other", n))
	}
	for n := range 100 {
		lines = append(lines, fmt.Sprintf("ConfigMap g%d deleting # example.com/%d < root0", n, n))
	}
	for n := range members {
		c.Add(ownership.UID(fmt.Sprint("member", n)))
	}
	h := &waiting{t: t, cascade: c, now: start}
	report, _ := h.observe(clusterOf(append(lines, "ConfigMap other"), start), "")
	if len(report.Roots) != 100 || report.MoreRoots != roots-100 || len(report.Roots[0].Name) > 1100 {
		t.Errorf("%d roots, %d more, with a name of %d bytes", len(report.Roots), report.MoreRoots, len(report.Roots[0].Name))
	}
	if len(report.Stays) != 1000 || report.MoreStays != stays-1000 {
		t.Errorf("%d objects stay, and %d more", len(report.Stays), report.MoreStays)
	}
	if report.Left != 100 || len(report.Causes) > 32 || len(report.Causes)+report.MoreCauses != 100 {
		t.Errorf("%d objects are left for %d causes and %d more", report.Left, len(report.Causes), report.MoreCauses)
	}
	if report.Gone != 500_000 {
		t.Errorf("%d members are known to be gone", report.Gone)
	}
	long := cascade.New()
	for n := range 40 {
		long.Add(ownership.UID(fmt.Sprint(n, strings.Repeat("u", 1<<20))))
	}
	h = &waiting{t: t, cascade: long, now: start}
	if report, _ := h.observe(clusterOf(nil, start), ""); report.Gone == 0 || report.Gone > 32 {
		t.Errorf("%d UIDs of a megabyte are kept", report.Gone)
	}
}
