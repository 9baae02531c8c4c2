package mcpserver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/dustin/go-humanize/english"

	"github.com/coppice-dev/coppice/internal/tools/preview"
)

// previewInput are the arguments of the tool preview.
type previewInput struct {
	Deletion

	Cursor string `json:"cursor,omitempty" jsonschema:"all, or the cursor of a page, to list all objects"`
}

// PreviewAnswer is the answer of the tool preview.
type PreviewAnswer struct {
	Page

	Digest    string          `json:"digest,omitempty" jsonschema:"digest of this preview, for the tool delete"`
	Deleted   int             `json:"deleted" jsonschema:"objects that are deleted now or later, with those that wait"`
	Waiting   int             `json:"waiting" jsonschema:"objects that would hang until something else happens"`
	Stay      int             `json:"stay" jsonschema:"objects that stay although an owner is deleted"`
	Refused   int             `json:"refused" jsonschema:"objects about which the server refuses a request"`
	Undecided int             `json:"undecided" jsonschema:"objects whose deletion a webhook or policy decides"`
	Kinds     []PreviewKind   `json:"kinds,omitempty"`
	Objects   []PreviewObject `json:"objects,omitempty" jsonschema:"without a cursor, the objects that need attention"`
}

// PreviewKind counts the objects of a kind with one fate.
type PreviewKind struct {
	Fate    preview.Fate `json:"fate"`
	Kind    string       `json:"kind"`
	Objects int          `json:"objects"`
}

// PreviewObject is the outcome for one object.
type PreviewObject struct {
	Object string       `json:"object" jsonschema:"KIND NAMESPACE/NAME"`
	Fate   preview.Fate `json:"fate"`
	Why    string       `json:"why,omitempty"`
}

const (
	wholePreview = "all"
	// digestPrefix is the number of characters of a digest in a cursor.
	digestPrefix = 12
	// mostKinds bounds the kinds in a preview, mostNotable the objects that need attention, in bytes.
	mostKinds, mostNotable = 8, 1500
)

// preview predicts a deletion.
func (s *session) preview(ctx context.Context, in previewInput) (*PreviewAnswer, error) {
	if err := in.check(); err != nil {
		return nil, err
	}
	report, notes, err := s.Cluster.Preview(ctx, in.Deletion)
	if err != nil {
		return nil, withNotes(err, notes)
	}
	if in.Cursor != "" {
		return pageOf(report, in.Cursor)
	}
	answer := summarize(report)
	answer.note(notes)
	if s.Mode == Deleting && report.Digest != "" {
		key, err := in.key()
		if err != nil {
			return nil, err
		}
		s.shown.add(shownPreview{report.Digest, key})
		arguments := in.arguments()
		arguments["digest"] = report.Digest
		answer.suggest("delete", "to make this deletion, if the user agrees", arguments)
		return answer, nil
	}
	if answer.Waiting > 0 {
		answer.suggest("explain", "to find what holds objects that are being deleted already", map[string]any{})
	}
	return answer, nil
}

// withNotes adds the first notes for the user to an error, one line each.
func withNotes(err error, notes ...string) error {
	var p Page
	for _, note := range notes {
		p.note(note)
	}
	if len(p.Notes) == 0 {
		return err
	}
	return fmt.Errorf("%w; %s", err, strings.Join(p.Notes, "; "))
}

// summarize returns the counts of a report, and the objects that need attention.
func summarize(r preview.Report) *PreviewAnswer {
	answer := countsOf(r)
	answer.Digest = r.Digest
	for _, c := range r.Counts {
		if len(answer.Kinds) == mostKinds {
			answer.note(fmt.Sprintf("further kinds: %d", len(r.Counts)-mostKinds))
			break
		}
		answer.Kinds = append(answer.Kinds, PreviewKind{c.Fate, clip(c.Kind, mostNameInList), c.Objects})
	}
	var notable []*preview.ObjectReport
	for n := range r.Objects {
		if o := &r.Objects[n]; needsAttention(o) {
			notable = append(notable, o)
		}
	}
	slices.SortStableFunc(notable, func(a, b *preview.ObjectReport) int { return rank(a.Fate) - rank(b.Fate) })
	answer.Objects = fill(&answer.Page, notable, func(o **preview.ObjectReport) PreviewObject { return objectOf(*o) }, window{most: mostNotable})
	answer.Cursor = wholePreview
	answer.More = len(r.Objects) - len(answer.Objects)
	if answer.More == 0 {
		answer.Cursor = ""
	}
	answer.Summary = answer.sentence(r)
	answer.note(r.AdmissionNote()) // before the others, of which there may be too many
	answer.note(r.Unread...)
	for _, b := range r.Budgets {
		answer.note(fmt.Sprintf("PodDisruptionBudget %s/%s allows %d disruptions, and the deletion takes more of its pods; a DELETE ignores that", b.Namespace, b.Name, b.Allowed))
	}
	return answer
}

// mostNameInList bounds a name in a list of kinds.
const mostNameInList = 80

func countsOf(r preview.Report) *PreviewAnswer {
	answer := &PreviewAnswer{Deleted: r.CountDeleted(), Refused: r.Refused, Undecided: r.Undecided}
	for _, c := range r.Counts {
		switch c.Fate {
		case preview.Waiting:
			answer.Waiting += c.Objects
		case preview.Detached, preview.Kept, preview.Unknown:
			answer.Stay += c.Objects
		case preview.Deleted:
		}
	}
	return answer
}

// sentence returns the summary.
func (a *PreviewAnswer) sentence(r preview.Report) string {
	parts := []string{english.Plural(a.Deleted, "object", "") + " would be deleted"}
	for _, part := range []struct {
		count int
		says  string
	}{
		{a.Waiting, "would hang"}, {a.Stay, "would stay without an owner"}, {a.Refused, "refused by the server"}, {a.Undecided, "undecided"},
	} {
		if part.count > 0 {
			parts = append(parts, fmt.Sprintf("%s: %d", part.says, part.count))
		}
	}
	var kinds []string
	for _, k := range a.Kinds[:min(len(a.Kinds), 4)] {
		kinds = append(kinds, fmt.Sprintf("%s %s %d", strings.ToLower(string(k.Fate)), k.Kind, k.Objects))
	}
	if len(a.Kinds) > len(kinds) {
		kinds = append(kinds, "…")
	}
	text := strings.Join(parts, "; ") + " (" + strings.Join(kinds, ", ") + ")"
	if r.GraceSeconds > 0 {
		text += fmt.Sprintf("; nodes may take %d s to end pods", r.GraceSeconds)
	}
	return text
}

// needsAttention reports whether an object is not simply deleted.
func needsAttention(o *preview.ObjectReport) bool {
	return o.Fate != preview.Deleted || o.Requested || o.Refused != "" || o.Refusal != nil || len(o.DecidedBy) > 0 || o.Race
}

// rank returns the place of a fate in the list of objects that need attention.
func rank(f preview.Fate) int {
	return slices.Index([]preview.Fate{preview.Waiting, preview.Unknown, preview.Kept, preview.Detached, preview.Deleted}, f)
}

func objectOf(o *preview.ObjectReport) PreviewObject {
	return PreviewObject{Object: nameOf(o.Kind, o.Namespace, o.Name), Fate: o.Fate, Why: clip(o.Says(), mostSays)}
}

// nameOf names an object.
func nameOf(kind, namespace, name string) string {
	if namespace != "" {
		name = namespace + "/" + name
	}
	return clip(kind+" "+name, mostName)
}

// pageOf returns a page of all objects of a report. Its cursor names the preview, so that the pages are of one.
func pageOf(r preview.Report, cursor string) (*PreviewAnswer, error) {
	prefix := r.Digest[:min(len(r.Digest), digestPrefix)] + ":"
	if cursor == wholePreview {
		cursor = prefix + "0"
	}
	from, err := offset(cursor, prefix)
	if err != nil {
		return nil, errors.New("the cluster has changed since the page before, or the cursor is not of this preview: call preview without a cursor")
	}
	answer := countsOf(r)
	answer.Objects = fill(&answer.Page, r.Objects, objectOf, window{prefix, from, mostPage})
	answer.Summary = fmt.Sprintf("objects %d to %d of %d", from+min(1, len(answer.Objects)), from+len(answer.Objects), len(r.Objects))
	return answer, nil
}
