package undo

import (
	"slices"
	"strings"

	"github.com/coppice-dev/coppice/internal/rules/escape"
)

// Report is the result of an undo for programs: the output of coppice undo -o json. Fields are only added, never
// renamed.
type Report struct {
	// DryRun is true if nothing was changed: the undo would create the Made objects.
	DryRun  bool           `json:"dryRun,omitempty"`
	Counts  []CountReport  `json:"counts"`
	Objects []ObjectReport `json:"objects"`
	// Lacks has a line for each object that the backup lacks, and for each resource of which it may lack objects.
	Lacks []string `json:"lacks,omitempty"`
}

// LacksHeading is the heading of Lacks for people.
const LacksHeading = "The backup is incomplete, and may lack these and what depends on them"

// CountReport counts the objects with one outcome.
type CountReport struct {
	Outcome Outcome `json:"outcome"`
	Objects int     `json:"objects"`
}

// ObjectReport is the result of the undo for one object.
type ObjectReport struct {
	Kind      string   `json:"kind"`
	Namespace string   `json:"namespace,omitempty"`
	Name      string   `json:"name"`
	Outcome   Outcome  `json:"outcome"`
	Why       string   `json:"why,omitempty"`
	Notes     []string `json:"notes,omitempty"`
	// From is the UID that the object had, UID its present one.
	From string `json:"from"`
	UID  string `json:"uid,omitempty"`
	Wave int    `json:"wave,omitempty"`
}

// outcomes returns the outcomes in the order of the report.
func outcomes() []Outcome {
	return []Outcome{Made, MadeBefore, Remade, Exists, LeftOut, Terminating, Occupied, Failed}
}

// Report returns the progress of the plan.
func (p *Plan) Report() Report {
	p.noteUnlinked()
	r := Report{Counts: []CountReport{}, Objects: []ObjectReport{}}
	for _, o := range outcomes() {
		count := 0
		for _, s := range p.Steps {
			if s.Outcome != o || s.kept.Stays && o == Exists && len(s.Notes) == 0 {
				continue
			}
			count++
			notes := s.Notes
			if o == Made && s.UID == "" && s.unread != "" { // a plan: the creation has not decided yet
				notes = append(slices.Clone(notes), "unless an object has its name, which could not be read: "+s.unread)
			}
			r.Objects = append(r.Objects, ObjectReport{
				Kind: s.place.Kind.String(), Namespace: s.place.Namespace, Name: s.place.Name,
				Outcome: o, Why: s.Why, Notes: notes, From: string(s.kept.UID()), UID: string(s.UID), Wave: s.Wave,
			})
		}
		if count > 0 {
			r.Counts = append(r.Counts, CountReport{o, count})
		}
	}
	return r
}

// Missing counts the objects that should exist and do not.
func (r Report) Missing() int {
	missing := 0
	for _, c := range r.Counts {
		if c.Outcome.IsMissing() {
			missing += c.Objects
		}
	}
	return missing
}

// String returns the report for people.
func (r Report) String() string {
	var text strings.Builder
	last := Outcome("")
	for n := range r.Objects {
		o := &r.Objects[n]
		if o.Outcome != last {
			last = o.Outcome
			text.WriteString(escape.Line(r.heading(last)) + "\n")
		}
		name := o.Name
		if o.Namespace != "" {
			name = o.Namespace + "/" + name
		}
		line := o.Kind + " " + name
		if o.Why != "" {
			line += ": " + o.Why
		}
		text.WriteString("  " + escape.Line(strings.Join(append([]string{line}, o.Notes...), "; ")) + "\n")
	}
	for _, c := range r.Counts {
		text.WriteString(escape.Sprintf("%s: %d\n", strings.TrimSuffix(r.heading(c.Outcome), ":"), c.Objects))
	}
	if len(r.Lacks) > 0 {
		text.WriteString(LacksHeading + ":\n")
	}
	for _, line := range r.Lacks {
		text.WriteString("  " + escape.Line(line) + "\n")
	}
	return text.String()
}

func (r Report) heading(o Outcome) string {
	switch o {
	case Made:
		if r.DryRun {
			return "Would be restored:"
		}
		return "Restored:"
	case MadeBefore:
		return "Restored before:"
	case Remade:
		return "Re-created by a controller, according to their owner references:"
	case Exists:
		return "Still there:"
	case Terminating:
		return "Still being deleted:"
	case Occupied:
		return "Not restored, the name is taken:"
	case LeftOut:
		return "Left out:"
	case Failed:
		return "Could not be restored:"
	}
	return string(o)
}
