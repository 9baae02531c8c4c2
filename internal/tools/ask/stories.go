package ask

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/coppice-dev/coppice/internal/collect/story"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/web/api"
)

// Stories returns the observed deletions.
func (c *Collector) Stories(ctx context.Context) (list api.StoryList, err error) {
	err = c.Get(ctx, api.Stories, nil, &list)
	return list, err
}

// Story returns one deletion, with its objects.
func (c *Collector) Story(ctx context.Context, id string) (one api.Story, err error) {
	err = c.Get(ctx, pathOf(id), url.Values{"format": {"json"}}, &one)
	return one, err
}

// StoryText returns one deletion as text, for people.
func (c *Collector) StoryText(ctx context.Context, id string) ([]byte, error) {
	return c.read(ctx, pathOf(id), url.Values{"format": {"text"}})
}

func pathOf(id string) string { return api.Stories + "/" + url.PathEscape(id) }

// errStoryDone ends the watch of one deletion.
var errStoryDone = errors.New("the deletion is done")

// WatchStories calls visit with all deletions, and again with each deletion that has changed, until ctx ends. With an
// ID, it watches one deletion until its end.
func (c *Collector) WatchStories(ctx context.Context, id string, visit func(story.Summary) error) error {
	path := api.Stories + "/watch"
	if id != "" {
		path = pathOf(id) + "/watch"
	}
	err := c.watch(ctx, path, url.Values{}, func(e event) error {
		switch {
		case e.name == api.EventRemoved && id != "":
			return errors.New("the record of this deletion has expired, or was merged into another one")
		case e.name != api.EventStory:
			return nil
		}
		var one story.Summary
		if err := json.Unmarshal(e.data, &one); err != nil {
			return fmt.Errorf("read a deletion: %w", err)
		}
		if err := visit(one); err != nil {
			return err
		}
		if id != "" && one.Done {
			return errStoryDone
		}
		return nil
	})
	if errors.Is(err, errStoryDone) {
		return nil
	}
	return err
}

// Requested returns the UIDs of all objects that the request of a deletion named. If the collector does not have the
// deletion any more, it returns only the UID that is the ID.
func (c *Collector) Requested(ctx context.Context, id string) []types.UID {
	requested := []types.UID{types.UID(id)}
	one, err := c.Story(ctx, id)
	if err != nil || one.More == 0 {
		return requested
	}
	inStory := map[ownership.UID]bool{ownership.UID(id): true}
	for n := range one.Objects {
		inStory[one.Objects[n].UID] = true
	}
	for n := range one.Objects {
		o := &one.Objects[n]
		isOwned := o.In != "" || slices.ContainsFunc(o.Owners, func(r story.Owner) bool { return inStory[r.UID] })
		if !isOwned && o.Fate != story.FateKept && string(o.UID) != id {
			requested = append(requested, types.UID(o.UID))
		}
	}
	return requested
}
