package ask

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/history"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
)

// explainDeleted explains why objects are gone, from audit logs and the records of a collector. It returns a GoneError
// for an object that neither has.
func explainDeleted(ctx context.Context, inv *inventory.Inventory, auditLogs []string, collector *diagnostics, missing []history.Target) ([]history.Explanation, error) {
	log := history.NewLog(func(kind ownership.Kind) (schema.GroupResource, bool) {
		if r := inv.Resource(kind); r != nil {
			return r.GroupResource(), true
		}
		return schema.GroupResource{}, false
	})
	records, err := collector.records(ctx)
	if err != nil {
		return nil, err
	}
	log.AddRecords(records)
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
