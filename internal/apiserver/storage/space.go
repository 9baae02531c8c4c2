package storage

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

// reliefInterval is how often the space of the database is looked at.
const reliefInterval = 5 * time.Second

// space is how large the database is.
type space struct {
	size  int64 // bytes of the file
	inUse int64 // bytes of it that hold something
	quota int64 // bytes that the file may have
	full  bool  // the quota was exceeded, and etcd takes no writes until told to
}

// relief is what is to be done about the space of the database.
type relief int

const (
	noRelief relief = iota
	// defragment gives free pages back to the file system. It stops the world for
	// about a second for each GB in use, so it is done when it is worth it.
	defragment
	// takeWrites is defragment, and then to take writes again.
	takeWrites
)

// reliefOf decides. What was deleted becomes free pages with the next compaction, and
// free pages are used again; but the quota is about the file, which only shrinks when
// it is written anew.
func reliefOf(s space) relief {
	switch {
	case s.full && s.inUse <= s.quota/10*9:
		return takeWrites
	case !s.full && s.size > s.quota/4*3 && s.inUse <= s.size/2:
		return defragment
	}
	return noRelief
}

// keepSpace looks after the space of the member in this process until ctx ends.
func (s *Store) keepSpace(ctx context.Context, ticks clock.Ticker) {
	defer ticks.Stop()
	wasFull := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C():
		}
		full, err := s.relieve(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			s.log.ErrorContext(ctx, "the space of etcd cannot be looked after", "error", err)
		case full && !wasFull:
			s.log.ErrorContext(ctx, "etcd is full and takes no writes: delete objects, or start again with a larger --quota-backend-bytes", "quota", s.quota)
		case !full && wasFull:
			s.log.InfoContext(ctx, "etcd takes writes again")
		}
		wasFull = full
	}
}

// relieve does what can be done about the space, and returns whether etcd is full still.
func (s *Store) relieve(ctx context.Context) (full bool, err error) {
	now := s.space()
	if now.full {
		// What was deleted in the last minutes is kept for watches that resume. They
		// have to list anew: that does less harm than to take no writes.
		if err := s.compactNow(ctx); err != nil {
			return true, err
		}
		now = s.space()
	}
	action := reliefOf(now)
	if action == noRelief {
		return now.full, nil
	}
	if err := s.member.Server.Defragment(); err != nil {
		return now.full, fmt.Errorf("defragment etcd: %w", err)
	}
	after := s.space()
	s.log.InfoContext(ctx, "etcd was defragmented", "before", now.size, "after", after.size)
	if action != takeWrites {
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

// compactNow drops every revision but the last of each key.
func (s *Store) compactNow(ctx context.Context) error {
	revision, err := s.Revision(ctx)
	if err != nil {
		return err
	}
	if _, err := s.client.Compact(ctx, revision, clientv3.WithCompactPhysical()); err != nil && !errors.Is(err, rpctypes.ErrCompacted) {
		return fmt.Errorf("compact etcd: %w", plain(err))
	}
	return nil
}

// disarm has etcd take writes again.
func (s *Store) disarm(ctx context.Context) (full bool, err error) {
	alarms, err := s.client.AlarmList(ctx)
	if err != nil {
		return true, fmt.Errorf("ask etcd for alarms: %w", plain(err))
	}
	for _, alarm := range alarms.Alarms {
		if alarm.GetAlarm() != etcdserverpb.AlarmType_NOSPACE {
			continue
		}
		_, err := s.client.AlarmDisarm(ctx, &clientv3.AlarmMember{MemberID: alarm.GetMemberID(), Alarm: alarm.GetAlarm()})
		if err != nil {
			return true, fmt.Errorf("disarm etcd: %w", plain(err))
		}
	}
	return false, nil
}
