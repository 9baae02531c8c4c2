package main

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// action is an action of the go command, with its cost.
type action struct {
	Mode, Package       string
	CmdUser, CmdSys     time.Duration
	TimeStart, TimeDone time.Time
}

func (a action) cost() time.Duration { return a.CmdUser + a.CmdSys }

const (
	// link is the row of the linker.
	link = "(the linker)"
	// longest is the number of packages that are listed individually.
	longest = 40
	// least is the minimum time of a module that gets a row.
	least = time.Second
	// elements is the number of path elements that name a group of packages.
	elements = 3
)

// row is a line of a table.
type row struct {
	name     string
	packages int
	cost     time.Duration
}

// machine describes the machine and the tools that a build depends on.
type machine struct {
	commit     string
	processors int
}

// list returns the listing as Markdown.
func list(actions []action, on machine) (string, error) {
	groups, single := map[string]row{}, []row{}
	var all row
	var begin, end time.Time
	for _, a := range actions {
		if a.cost() == 0 || a.Mode != "build" && a.Mode != "link" {
			continue
		}
		if begin.IsZero() || a.TimeStart.Before(begin) {
			begin = a.TimeStart
		}
		if a.TimeDone.After(end) {
			end = a.TimeDone
		}
		packages, group := 1, groupOf(a.Package)
		if a.Mode == "link" {
			packages, group = 0, link
		} else {
			single = append(single, row{a.Package, 1, a.cost()})
		}
		g := groups[group]
		groups[group] = row{group, g.packages + packages, g.cost + a.cost()}
		all.packages += packages
		all.cost += a.cost()
	}
	if all.packages == 0 {
		return "", errors.New("nothing was compiled")
	}
	var out strings.Builder
	fmt.Fprintf(&out, `# The first build

Written by `+"`make first-build`"+`; do not edit. `+"`go build ./cmd/coppice`"+` on a machine with %d processors where
nothing was compiled before, at commit %s on %s: **%s**, for %d packages. The compiler and the linker
took %.0f s of processor time, listed here. Other work on the machine makes it longer, by up to a half; the shares stay.

| packages | how many | s |
|---|---|---|
`, on.processors, on.commit, end.Format(time.DateOnly), end.Sub(begin).Round(time.Second), all.packages, all.cost.Seconds())
	rest := row{name: "the others"}
	for _, r := range sorted(slices.Collect(maps.Values(groups))) {
		if r.cost < least {
			rest.packages += r.packages
			rest.cost += r.cost
			continue
		}
		r.write(&out)
	}
	rest.write(&out)
	out.WriteString("\nThe longest single packages:\n\n| package | how many | s |\n|---|---|---|\n")
	for _, r := range sorted(single)[:min(longest, len(single))] {
		r.write(&out)
	}
	return out.String(), nil
}

// groupOf returns the group of a package: the standard library, or the beginning of its path.
func groupOf(path string) string {
	parts := strings.SplitN(path, "/", elements+1)
	if !strings.Contains(parts[0], ".") {
		return "the standard library"
	}
	return strings.Join(parts[:min(elements, len(parts))], "/")
}

// sorted sorts rows, the most expensive first.
func sorted(rows []row) []row {
	return slices.SortedFunc(slices.Values(rows), func(a, b row) int {
		return cmp.Or(cmp.Compare(b.cost, a.cost), cmp.Compare(a.name, b.name))
	})
}

func (r row) write(out *strings.Builder) {
	fmt.Fprintf(out, "| %s | %d | %.1f |\n", r.name, r.packages, r.cost.Seconds())
}
