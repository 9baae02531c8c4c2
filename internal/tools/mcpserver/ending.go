package mcpserver

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dustin/go-humanize/english"

	"github.com/coppice-dev/coppice/internal/collect/story"
	"github.com/coppice-dev/coppice/internal/tools/ask"
	"github.com/coppice-dev/coppice/internal/tools/cascade"
)

// The time of a wait.
const (
	usualWait = time.Minute
	mostWait  = 10 * time.Minute
)

// waitInput are the arguments of the tool wait.
type waitInput struct {
	Objects        []string `json:"objects,omitempty" jsonschema:"deleted objects as TYPE/NAME"`
	ID             string   `json:"id,omitempty" jsonschema:"instead of objects: the id of a deletion in stories"`
	Namespace      string   `json:"namespace,omitempty" jsonschema:"namespace of the objects; default: that of the kubeconfig"`
	TimeoutSeconds int      `json:"timeoutSeconds,omitempty" jsonschema:"longest time of the wait, 1 to 600; default: 60"`
}

// WaitAnswer is the answer of the tool wait.
type WaitAnswer struct {
	Page

	State  cascade.State `json:"state" jsonschema:"Gone, Stuck (somebody has to act) or TimedOut"`
	Gone   int           `json:"gone"`
	Left   int           `json:"left"`
	Causes []Explained   `json:"causes,omitempty"`
}

// wait waits until a deletion is over.
func (s *session) wait(ctx context.Context, in waitInput) (*WaitAnswer, error) {
	limit := usualWait
	switch {
	case (len(in.Objects) == 0) == (in.ID == ""):
		return nil, errors.New("name either the deleted objects as TYPE/NAME, or the id of a deletion")
	case in.TimeoutSeconds < 0 || in.TimeoutSeconds > int(mostWait/time.Second):
		return nil, fmt.Errorf("timeoutSeconds %d is not between 1 and %d", in.TimeoutSeconds, int(mostWait/time.Second))
	case in.TimeoutSeconds > 0:
		limit = time.Duration(in.TimeoutSeconds) * time.Second
	}
	if err := errors.Join(checkNames(in.Objects), checkTexts(in.ID)); err != nil {
		return nil, err
	}
	sources, err := s.sources(Scope{Namespace: in.Namespace})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	report, err := sources.Wait(ctx, ask.Ending{Args: in.Objects, Story: in.ID}, func(cascade.Report) error { return nil })
	if err != nil {
		return nil, err
	}
	answer := &WaitAnswer{State: report.State, Gone: report.Gone, Left: report.Left}
	answer.Causes = fill(&answer.Page, report.Causes, groupOf, window{most: mostPage})
	answer.Cursor = ""
	answer.Summary = fmt.Sprintf("%s: gone: %d, left: %d", report.State, report.Gone, report.Left)
	answer.note(report.Unread...)
	if report.State != cascade.Gone {
		arguments := map[string]any{}
		if in.Namespace != "" {
			arguments["namespace"] = in.Namespace
		}
		answer.suggest("explain", "to see every cause", arguments)
	}
	return answer, nil
}

// storiesInput are the arguments of the tool stories.
type storiesInput struct {
	ID     string `json:"id,omitempty" jsonschema:"id of a deletion: list its objects"`
	Cursor string `json:"cursor,omitempty" jsonschema:"cursor of the page before"`
}

// StoriesAnswer is the answer of the tool stories.
type StoriesAnswer struct {
	Page

	Deletions []StoryItem   `json:"deletions"`
	Objects   []StoryObject `json:"objects,omitempty" jsonschema:"with an id, the objects of the deletion"`
}

// StoryItem is a deletion.
type StoryItem struct {
	ID       string `json:"id"`
	Object   string `json:"object"`
	Further  int    `json:"further,omitempty" jsonschema:"number of further requested objects"`
	By       string `json:"by,omitempty" jsonschema:"user who requested the deletion"`
	Policy   string `json:"policy,omitempty"`
	Began    string `json:"began"`
	Done     bool   `json:"done"`
	Gone     int    `json:"gone"`
	Waiting  int    `json:"waiting"`
	Kept     int    `json:"kept"`
	WaitsFor string `json:"waitsFor,omitempty"`
}

// StoryObject is an object of a deletion.
type StoryObject struct {
	Object string `json:"object"`
	State  string `json:"state" jsonschema:"Gone, Waiting or Kept"`
}

// stories lists the deletions that a collector has observed, or the objects of one.
func (s *session) stories(ctx context.Context, in storiesInput) (*StoriesAnswer, error) {
	from, err := offset(in.Cursor, "")
	if err != nil {
		return nil, err
	}
	if err := checkTexts(in.ID); err != nil {
		return nil, err
	}
	sources, err := s.Cluster.Sources(Scope{IsWhole: true})
	if err != nil {
		return nil, err
	}
	collector, err := sources.Collector()
	if err != nil {
		return nil, err
	}
	if in.ID != "" {
		return oneStory(ctx, collector, in.ID, from)
	}
	list, err := collector.Stories(ctx)
	if err != nil {
		return nil, err
	}
	answer := &StoriesAnswer{}
	answer.Deletions = fill(&answer.Page, list.Items, storyItem, window{from: from, most: mostPage})
	answer.Summary = english.Plural(len(list.Items), "deletion", "")
	answer.note(list.Unread...)
	return answer, nil
}

func storyItem(one *story.Summary) StoryItem {
	item := StoryItem{
		ID: clip(string(one.ID), mostNameInList), Object: clip(one.Root.String(), mostName), Further: one.More, Policy: clip(one.Policy, mostNameInList),
		Began: one.Began.UTC().Format(time.RFC3339), Done: one.Done, Gone: one.Gone, Waiting: one.Waiting, Kept: one.Kept,
		WaitsFor: clip(one.WaitsFor, mostDetail),
	}
	if one.By != nil {
		item.By = clip(one.By.User, mostName)
	}
	return item
}

// oneStory lists the objects of one deletion.
func oneStory(ctx context.Context, collector *ask.Collector, id string, from int) (*StoriesAnswer, error) {
	one, err := collector.Story(ctx, id)
	if err != nil {
		return nil, err
	}
	answer := &StoriesAnswer{Deletions: []StoryItem{storyItem(&one.Summary)}}
	answer.Objects = fill(&answer.Page, one.Objects, storyObject, window{from: from, most: mostNotable})
	answer.Summary = fmt.Sprintf("%s; gone: %d, waiting: %d, kept: %d", answer.Deletions[0].Object, one.Gone, one.Waiting, one.Kept)
	answer.note(one.Unread...)
	if !one.Done {
		answer.suggest("wait", "until the deletion is over", map[string]any{"id": answer.Deletions[0].ID})
	}
	return answer, nil
}

func storyObject(o *story.Object) StoryObject {
	state := "Waiting"
	switch {
	case o.Fate == story.FateKept:
		state = "Kept"
	case o.Gone != nil:
		state = "Gone"
	}
	return StoryObject{clip(o.String(), mostName), state}
}
