package mcpserver

import (
	"context"
	"fmt"
	"strings"

	"github.com/dustin/go-humanize/english"

	"github.com/coppice-dev/coppice/internal/tools/undo"
)

// deleteInput are the arguments of the tool delete.
type deleteInput struct {
	Deletion

	Digest string `json:"digest" jsonschema:"digest of a preview that this session has shown for the same arguments"`
}

// DeleteAnswer is the answer of the tool delete.
type DeleteAnswer struct {
	Page

	Requested []string `json:"requested" jsonschema:"the requested objects"`
	Deleted   int      `json:"deleted" jsonschema:"objects that the preview predicts to be deleted"`
	Backup    string   `json:"backup,omitempty" jsonschema:"name of the backup, for the tool undo"`
}

// delete deletes objects that the session has previewed. The digest works once, whatever the result.
func (s *session) delete(ctx context.Context, in deleteInput) (*DeleteAnswer, error) {
	if err := in.check(); err != nil {
		return nil, err
	}
	key, err := in.key()
	if err != nil {
		return nil, err
	}
	if err := s.shown.take(shownPreview{in.Digest, key}); err != nil {
		return nil, err
	}
	deleted, err := s.Cluster.Delete(ctx, in.Deletion, in.Digest)
	if deleted.Lines != "" {
		s.Log.InfoContext(ctx, "deleted as previewed", "digest", in.Digest, "objects", deleted.Report.CountDeleted(), "backup", deleted.Backup)
	}
	if err != nil {
		notes := []string{"call preview again before another attempt"}
		if (deleted.Lines != "" || deleted.IsInDoubt) && deleted.Backup != "" { // which was written before the first DELETE
			notes = append(notes, "undo restores deleted objects from the backup "+deleted.Backup)
		}
		return nil, withNotes(err, append(notes, deleted.Lines, deleted.Notes)...)
	}
	answer := &DeleteAnswer{Deleted: deleted.Report.CountDeleted(), Backup: deleted.Backup}
	lines := strings.Split(strings.TrimSpace(deleted.Lines), "\n")
	answer.Requested = fill(&answer.Page, lines, func(line *string) string { return clip(*line, mostName) }, window{most: mostNotable})
	answer.Cursor = ""
	answer.Summary = fmt.Sprintf("%s requested; %s in all", english.Plural(len(lines), "deletion is", "deletions are"), english.Plural(answer.Deleted, "object goes", "objects go"))
	answer.note(deleted.Notes)
	wait := in.arguments()
	if in.Type != "" {
		wait = map[string]any{}
		answer.suggest("stories", "to follow the deletion", wait)
	} else {
		delete(wait, "cascade")
		delete(wait, "assumeReleased")
		answer.suggest("wait", "until everything is gone", wait)
	}
	if deleted.Backup != "" {
		answer.suggest("undo", "to restore the objects", map[string]any{"backup": deleted.Backup})
	}
	return answer, nil
}

// UndoAnswer is the answer of the tool undo.
type UndoAnswer struct {
	Page

	DryRun   bool         `json:"dryRun,omitempty"`
	Outcomes []UndoCount  `json:"outcomes"`
	Objects  []UndoObject `json:"objects,omitempty" jsonschema:"the objects that were not simply made again first"`
}

// UndoCount counts the objects with one outcome.
type UndoCount struct {
	Outcome undo.Outcome `json:"outcome"`
	Objects int          `json:"objects"`
}

// UndoObject is the outcome for one object.
type UndoObject struct {
	Object  string       `json:"object"`
	Outcome undo.Outcome `json:"outcome"`
	Why     string       `json:"why,omitempty"`
}

// undo creates the objects of a deletion again.
func (s *session) undo(ctx context.Context, in Restoration) (*UndoAnswer, error) {
	if err := in.check(); err != nil {
		return nil, err
	}
	report, notes, err := s.Cluster.Undo(ctx, in)
	if err != nil {
		return nil, withNotes(err, notes)
	}
	answer := &UndoAnswer{DryRun: report.DryRun, Outcomes: []UndoCount{}}
	var says []string
	for _, c := range report.Counts {
		answer.Outcomes = append(answer.Outcomes, UndoCount{c.Outcome, c.Objects})
		says = append(says, fmt.Sprintf("%s: %d", c.Outcome, c.Objects))
	}
	var others, made []*undo.ObjectReport
	for n := range report.Objects {
		if o := &report.Objects[n]; o.Outcome == undo.Made {
			made = append(made, o)
		} else {
			others = append(others, o)
		}
	}
	answer.Objects = fill(&answer.Page, append(others, made...), undoObject, window{most: mostPage})
	answer.Cursor = ""
	answer.Summary = "undo: " + strings.Join(says, ", ")
	if report.DryRun {
		answer.Summary = "the undo would have these outcomes: " + strings.Join(says, ", ")
		arguments := map[string]any{"backup": in.Backup, "deletion": in.Deletion, "namespace": in.Namespace}
		for name, value := range arguments {
			if value == "" {
				delete(arguments, name)
			}
		}
		answer.suggest("undo", "to create the objects, if the user agrees", arguments)
	} else {
		s.Log.InfoContext(ctx, "restored deleted objects", "backup", in.Backup, "deletion", in.Deletion, "objects", len(made))
	}
	answer.note(notes)
	return answer, nil
}

func undoObject(of **undo.ObjectReport) UndoObject {
	o := *of
	item := UndoObject{Object: nameOf(o.Kind, o.Namespace, o.Name), Outcome: o.Outcome}
	if o.Outcome != undo.Made {
		item.Why = clip(strings.Join(append([]string{o.Why}, o.Notes...), "; "), mostSays)
	}
	return item
}
