package ask

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/coppice-dev/coppice/internal/collect/story"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/history"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
)

// mostStories bounds the stories of a collector that are read for a question.
const mostStories = 8

// explainDeleted explains why objects are gone, from audit logs and from the records and stories of a collector. It
// returns a GoneError for an object that none of them has.
func (s *Sources) explainDeleted(ctx context.Context, inv *inventory.Inventory, auditLogs []string, collector *diagnostics, missing []history.Target) ([]history.Explanation, error) {
	resourceOf := func(kind ownership.Kind) (schema.GroupResource, bool) {
		if r := inv.Resource(kind); r != nil {
			return r.GroupResource(), true
		}
		return schema.GroupResource{}, false
	}
	log := history.NewLog(resourceOf)
	records, err := collector.records(ctx)
	if err != nil {
		return nil, err
	}
	log.AddRecords(records)
	s.addStories(ctx, log, func(one *story.Summary) bool {
		return slices.ContainsFunc(missing, func(t history.Target) bool {
			resource, _ := resourceOf(t.Kind)
			return history.Concerns(one, t, resource)
		})
	})
	for _, file := range auditLogs {
		if err := addAuditLog(log, file); err != nil {
			return nil, err
		}
	}
	var all []history.Explanation
	for _, target := range missing {
		x, ok := log.Explain(target)
		if !ok {
			return nil, &GoneError{nameOf(inv, target)}
		}
		all = append(all, x)
	}
	return all, nil
}

// addStories adds the stories of a running collector that concern a question, the latest ones. A collector that answers
// no stories to this user has none.
func (s *Sources) addStories(ctx context.Context, log *history.Log, concerns func(*story.Summary) bool) {
	c, err := s.findCollector(ctx)
	if c == nil || err != nil {
		return
	}
	list, err := c.Stories(ctx)
	if err != nil {
		return
	}
	found := 0
	for n := range list.Items {
		if found == mostStories || !concerns(&list.Items[n]) {
			continue
		}
		found++
		if one, err := c.Story(ctx, string(list.Items[n].ID)); err == nil {
			log.AddStory(&one.Summary, one.Objects)
		}
	}
}

// addAuditLog reads an audit log line by line, because it may be long. It skips a last line without a line feed: the
// server is still writing it.
func addAuditLog(log *history.Log, file string) error {
	in, err := os.Open(file)
	if err != nil {
		return fmt.Errorf("read the audit log: %w", err)
	}
	defer in.Close()
	lines := bufio.NewReaderSize(in, 1<<20)
	for n := 1; ; n++ {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the audit log: %w", err)
		}
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		if err := log.AddLine(line); err != nil {
			return fmt.Errorf("%s:%d: %w", file, n, err)
		}
	}
}
