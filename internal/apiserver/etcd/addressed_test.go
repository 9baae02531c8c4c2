package etcd

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// recordedStream is a watch stream that has received all its responses.
type recordedStream struct {
	etcdserverpb.Watch_WatchClient

	responses []*etcdserverpb.WatchResponse
}

func (s *recordedStream) Recv() (*etcdserverpb.WatchResponse, error) {
	if len(s.responses) == 0 {
		return nil, io.EOF
	}
	next := s.responses[0]
	s.responses = s.responses[1:]
	return next, nil
}

// A report of progress for all watches reaches those that have begun and not ended, and no other: clientv3 panics when it
// gives one to a watch that the server has just ended.
func TestReportsOfProgressAreAddressed(t *testing.T) {
	created := func(id int64) *etcdserverpb.WatchResponse {
		return &etcdserverpb.WatchResponse{WatchId: id, Created: true}
	}
	canceled := func(id int64) *etcdserverpb.WatchResponse {
		return &etcdserverpb.WatchResponse{WatchId: id, Canceled: true}
	}
	progress := func(id, revision int64) *etcdserverpb.WatchResponse {
		return &etcdserverpb.WatchResponse{WatchId: id, Header: &etcdserverpb.ResponseHeader{Revision: revision}}
	}
	s := &addressedStream{watches: map[int64]bool{}, Watch_WatchClient: &recordedStream{responses: []*etcdserverpb.WatchResponse{
		progress(clientv3.InvalidWatchID, 1), created(7), created(3), progress(clientv3.InvalidWatchID, 2), progress(3, 3),
		canceled(3), progress(clientv3.InvalidWatchID, 4), canceled(7), progress(clientv3.InvalidWatchID, 5),
	}}}
	var got []string
	for {
		response, err := s.Recv()
		if err != nil {
			break
		}
		switch {
		case response.Created:
			got = append(got, fmt.Sprintf("%d begins", response.WatchId))
		case response.Canceled:
			got = append(got, fmt.Sprintf("%d ends", response.WatchId))
		default:
			got = append(got, fmt.Sprintf("%d at %d", response.WatchId, response.Header.Revision))
		}
	}
	const want = "7 begins, 3 begins, 3 at 2, 7 at 2, 3 at 3, 3 ends, 7 at 4, 7 ends"
	if text := strings.Join(got, ", "); text != want {
		t.Errorf("%s, want %s", text, want)
	}
}
