package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/coppice-dev/coppice/collector/report"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/history"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
	"github.com/coppice-dev/coppice/internal/tools/web"
)

// addDeleted explains deleted objects. It returns an error for an object without records.
func (e *explained) addDeleted(ctx context.Context, inv *inventory.Inventory, f *explainFlags, collector *diagnosticsClient, missing []history.Target) error {
	log := history.NewLog(func(kind ownership.Kind) (schema.GroupResource, bool) {
		if r := inv.Resource(kind); r != nil {
			return r.GroupResource(), true
		}
		return schema.GroupResource{}, false
	})
	records, err := collector.records(ctx)
	if err != nil {
		return err
	}
	log.AddRecords(records)
	for _, file := range f.auditLogs {
		if err := addAuditLog(log, file); err != nil {
			return err
		}
	}
	for _, target := range missing {
		x, ok := log.Explain(target)
		if !ok {
			return &goneError{nameOf(inv, target)}
		}
		e.items = append(e.items, x)
		e.text += x.Text(inv.Read)
	}
	return nil
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

// records returns the collector's records; none without a collector.
func (c *diagnosticsClient) records(ctx context.Context) ([]report.Record, error) {
	var records []report.Record
	if c == nil {
		return nil, nil
	}
	text, err := c.get(ctx, web.Records)
	if err == nil {
		err = json.Unmarshal(text, &records)
	}
	return records, c.failed(err)
}
