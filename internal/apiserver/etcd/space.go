package etcd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/utils/clock"
)

// spaceInterval is the interval at which the space of the database is checked.
const spaceInterval = 5 * time.Second

// space describes the size of the database.
type space struct {
	size  int64 // of the file, in bytes
	inUse int64 // in use, in bytes
	quota int64 // maximum size of the file, in bytes
	full  bool  // the quota was exceeded, and etcd accepts no writes until the alarm is disarmed
}

// spaceAction is an action to free space in the database.
type spaceAction int

const (
	leaveSpace spaceAction = iota
	// defragment returns free pages to the file system. It blocks etcd for about a second per
	// GB in use.
	defragment
	// defragmentAndDisarm defragments, and then makes etcd accept writes again.
	defragmentAndDisarm
)

// spaceActionFor returns the action for the given space. The pages of deleted objects are free
// after the next compaction, and are used again. But the quota applies to the file, which only
// shrinks when it is defragmented.
func spaceActionFor(s space) spaceAction {
	switch {
	case s.full && s.inUse <= s.quota/10*9:
		return defragmentAndDisarm
	case !s.full && s.size > s.quota/4*3 && s.inUse <= s.size/2:
		return defragment
	}
	return leaveSpace
}

// maintainSpace keeps the database of the member in this process within its quota until ctx ends.
func (s *Store) maintainSpace(ctx context.Context, ticks clock.Ticker) {
	defer ticks.Stop()
	wasFull := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C():
		}
		full, err := s.reclaimSpace(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			s.log.ErrorContext(ctx, "the space of etcd cannot be maintained", "error", err)
		case full && !wasFull:
			s.log.ErrorContext(ctx, "etcd is full and takes no writes: delete objects, or start again with a larger --quota-backend-bytes", "quota", s.quota)
		case !full && wasFull:
			s.log.InfoContext(ctx, "etcd takes writes again")
		}
		wasFull = full
	}
}

// reclaimSpace takes the action that the space requires, and reports whether etcd is still full.
func (s *Store) reclaimSpace(ctx context.Context) (full bool, err error) {
	now := s.space()
	if now.full {
		// Revisions are kept for some minutes for watches that resume. These watches have to list
		// again now, which does less harm than accepting no writes.
		if err := s.compactNow(ctx); err != nil {
			return true, err
		}
		now = s.space()
	}
	action := spaceActionFor(now)
	if action == leaveSpace {
		return now.full, nil
	}
	if err := s.member.Server.Defragment(); err != nil {
		return now.full, fmt.Errorf("defragment etcd: %w", err)
	}
	after := s.space()
	s.log.InfoContext(ctx, "etcd was defragmented", "before", now.size, "after", after.size)
	if action != defragmentAndDisarm {
		return false, nil
	}
	return s.disarm(ctx)
}

func (s *Store) space() space {
	backend := s.member.Server.Backend()
	now := space{size: backend.Size(), inUse: backend.SizeInUse(), quota: s.quota}
	for _, alarm := range s.member.Server.Alarms() {
		now.full = now.full || alarm.GetAlarm() == etcdserverpb.AlarmType_NOSPACE
	}
	return now
}

// compactNow drops every revision except the last of each key.
func (s *Store) compactNow(ctx context.Context) error {
	revision, err := s.Revision(ctx)
	if err != nil {
		return err
	}
	if _, err := s.client.Compact(ctx, revision, clientv3.WithCompactPhysical()); err != nil && !errors.Is(err, rpctypes.ErrCompacted) {
		return fmt.Errorf("compact etcd: %w", Cause(err))
	}
	return nil
}

// disarm makes etcd accept writes again.
func (s *Store) disarm(ctx context.Context) (full bool, err error) {
	alarms, err := s.client.AlarmList(ctx)
	if err != nil {
		return true, fmt.Errorf("ask etcd for alarms: %w", Cause(err))
	}
	for _, alarm := range alarms.Alarms {
		if alarm.GetAlarm() != etcdserverpb.AlarmType_NOSPACE {
			continue
		}
		_, err := s.client.AlarmDisarm(ctx, &clientv3.AlarmMember{MemberID: alarm.GetMemberID(), Alarm: alarm.GetAlarm()})
		if err != nil {
			return true, fmt.Errorf("disarm etcd: %w", Cause(err))
		}
	}
	return false, nil
}
