package rawclient

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// Watch opens a watch and calls event for each event, without decoding it. It returns when the
// server has accepted the watch; the connection serves only that watch until it is closed. The
// error that ends the watch is sent to failed.
func (c *Client) Watch(ctx context.Context, path string, event func()) (failed <-chan error, err error) {
	response, err := c.send(ctx, http.MethodGet, path, nil) //nolint:bodyclose // closed where the watch ends
	if err != nil {
		return nil, err
	}
	ended := make(chan error, 1)
	go func() {
		defer response.Body.Close()
		ended <- frames(bufio.NewReader(response.Body), event)
	}()
	return ended, nil
}

// frames reads events: four bytes with the length of each, and the event.
func frames(body *bufio.Reader, event func()) error {
	var length [4]byte
	for {
		if _, err := io.ReadFull(body, length[:]); err != nil {
			return fmt.Errorf("the watch ended: %w", err)
		}
		if _, err := body.Discard(int(binary.BigEndian.Uint32(length[:]))); err != nil {
			return errors.Join(errors.New("the watch ended within an event"), err)
		}
		event()
	}
}
