package ask

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/url"
)

// event is a server-sent event. The data is valid until the next one is read.
type event struct {
	name, id string
	data     []byte
}

// watch calls visit with each event of a path, until ctx ends, visit returns an error, or the collector does not
// answer. The server ends each response within a minute; the next request continues after the last event.
func (c *Collector) watch(ctx context.Context, path string, query url.Values, visit func(event) error) error {
	query.Set("after", "0")
	for ctx.Err() == nil {
		body, err := c.open(ctx, path, query)
		if err == nil {
			err = eachEvent(body, func(e event) error {
				if e.id != "" {
					query.Set("after", e.id)
				}
				return visit(e)
			})
			body.Close()
		}
		if err != nil && ctx.Err() == nil {
			return err
		}
	}
	return nil
}

// mostEvent bounds the data of an event, in bytes: one event has all objects of a deletion.
const mostEvent = 256 << 20

// eachEvent reads server-sent events until their stream ends.
func eachEvent(stream io.Reader, visit func(event) error) error {
	lines := bufio.NewScanner(stream)
	lines.Buffer(nil, mostEvent)
	var e event
	for lines.Scan() {
		field, value, _ := bytes.Cut(lines.Bytes(), []byte(": "))
		switch string(field) {
		case "event":
			e.name = string(value)
		case "id":
			e.id = string(value)
		case "data":
			e.data = value
			if err := visit(e); err != nil {
				return err
			}
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read the answer of the collector: %w", err)
	}
	return nil
}
