package ask

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/coppice-dev/coppice/collector/report"
	"github.com/coppice-dev/coppice/internal/tools/web/api"
)

// Records returns the records of the named objects, or of all objects.
func (c *Collector) Records(ctx context.Context, objects Objects) (list api.RecordList, err error) {
	query, err := c.query(objects)
	if err != nil {
		return list, err
	}
	err = c.Get(ctx, api.Records, query, &list)
	return list, err
}

// WatchRecords calls visit with the records of the named objects, or of all objects, and with new ones, until ctx ends.
func (c *Collector) WatchRecords(ctx context.Context, objects Objects, visit func(report.Record) error) error {
	query, err := c.query(objects)
	if err != nil {
		return err
	}
	return c.watch(ctx, api.Watch, query, func(e event) error {
		if e.name != api.EventRecord {
			return nil
		}
		var r report.Record
		if err := json.Unmarshal(e.data, &r); err != nil {
			return fmt.Errorf("read a record: %w", err)
		}
		return visit(r)
	})
}
