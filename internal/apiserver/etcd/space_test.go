package etcd

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

func TestSpaceActionDependsOnFreePagesAndQuota(t *testing.T) {
	const quota = 1000
	for name, test := range map[string]struct {
		space space
		want  spaceAction
	}{
		"new":                              {space{size: 10, inUse: 10}, leaveSpace},
		"well used":                        {space{size: 900, inUse: 800}, leaveSpace},
		"small, mostly free":               {space{size: 700, inUse: 10}, leaveSpace},
		"large, mostly free":               {space{size: 800, inUse: 400}, defragment},
		"full of what is needed":           {space{size: 1000, inUse: 950, full: true}, leaveSpace},
		"full, and something was deleted":  {space{size: 1000, inUse: 900, full: true}, defragmentAndDisarm},
		"full, although there is room now": {space{size: 100, inUse: 100, full: true}, defragmentAndDisarm},
	} {
		test.space.quota = quota
		if got := spaceActionFor(test.space); got != test.want {
			t.Errorf("%s: %d, want %d", name, got, test.want)
		}
	}
}

// putLarge writes a value of size bytes. The size of the store is known after that.
func (s *Store) putLarge(t testing.TB, key string, size int) error {
	t.Helper()
	_, err := s.client.Put(t.Context(), s.prefix+"/"+key, strings.Repeat("x", size))
	s.member.Server.Backend().ForceCommit() // the size is that of the last commit
	return err
}

// reclaimed returns an error while the store is full.
func (s *Store) reclaimed(t testing.TB) error {
	full, err := s.reclaimSpace(t.Context())
	if err == nil && full {
		err = fmt.Errorf("full: %+v", s.space())
	}
	return err
}

// When the quota is used up, writes are refused, and existing values can be read and removed. After that, writes are
// accepted again, without a restart.
func TestFullStoreAcceptsWritesAgainAfterRemovals(t *testing.T) {
	// Three values leave room below nine tenths of the quota, and four take more than that. So whether the store can be
	// reclaimed does not depend on the pages that it wastes, nor on the commit that frees them.
	const large, quota = 1_000_000, 4_350_000
	s := openWith(t, Options{Dir: t.TempDir(), Ephemeral: true, QuotaBytes: quota})
	for len(s.keys(t)) < 4 {
		eventually.Succeeds(t, func() error { return s.reclaimed(t) })
		if err := s.putLarge(t, fmt.Sprint(len(s.keys(t))), large); err != nil && !errors.Is(err, rpctypes.ErrNoSpace) {
			t.Fatal(err)
		}
	}
	if err := s.putLarge(t, "more", large); !errors.Is(err, rpctypes.ErrNoSpace) {
		t.Fatalf("want a write beyond the quota to be refused for the lack of space; the answer is %v", err)
	}
	if full, err := s.reclaimSpace(t.Context()); err != nil || !full {
		t.Errorf("full: %t %v, although nothing was removed", full, err)
	}
	if err := s.putLarge(t, "more", 1); err == nil {
		t.Error("a write is taken")
	}
	for _, key := range s.keys(t) {
		s.remove(t, key)
	}
	eventually.Succeeds(t, func() error { return s.reclaimed(t) }) // pages are free once etcd has committed, at most 100 ms later
	must(t, s.putLarge(t, "more", 100_000))
	if got := s.keys(t); len(got) != 1 {
		t.Errorf("there are %d values, want one", len(got))
	}
	if now := s.space(); now.full || now.size >= now.quota {
		t.Errorf("%d bytes of %d are used, full: %t", now.size, now.quota, now.full)
	}
}

// Free pages are returned before the quota is used up.
func TestStoreIsDefragmentedBeforeItIsFull(t *testing.T) {
	s := openWith(t, Options{Dir: t.TempDir(), Ephemeral: true, QuotaBytes: 16 << 20})
	before, values := s.space(), 0
	for ; before.size <= before.quota/4*3; values++ {
		must(t, s.putLarge(t, fmt.Sprint(values), 100_000))
		before = s.space()
	}
	for i := range values {
		s.remove(t, fmt.Sprint("/", i))
	}
	must(t, s.compactNow(t.Context()))
	eventually.Succeeds(t, func() error {
		s.put(t, "/small", "x") // freed pages are known after the next commit
		if _, err := s.reclaimSpace(t.Context()); err != nil {
			return err
		}
		if after := s.space(); after.size > before.size/2 {
			return fmt.Errorf("from %d bytes to %d, of %d", before.size, after.size, before.quota)
		}
		return nil
	})
}

// fill writes until the process ends.
func fill(dir string) error {
	s, err := Open(context.Background(), Options{Dir: dir, FatalLog: os.Stderr})
	if err != nil {
		return err
	}
	fmt.Println("opened")
	for i := 0; ; i++ {
		key := fmt.Sprint("/fill/", i)
		if _, err := s.client.Put(context.Background(), key, strings.Repeat("x", 100_000)); err != nil {
			return err
		}
		fmt.Println(key)
	}
}

// verify checks that the acknowledged writes exist.
func verify(dir string) error {
	s, err := Open(context.Background(), Options{Dir: dir, FatalLog: os.Stderr})
	if err != nil {
		return err
	}
	defer s.Close()
	n := 0
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); n++ {
		if lines.Text() == "opened" {
			continue
		}
		got, err := s.client.Get(context.Background(), lines.Text(), clientv3.WithKeysOnly())
		if err != nil {
			return err
		}
		if len(got.Kvs) == 0 {
			return fmt.Errorf("%s was acknowledged and is lost", lines.Text())
		}
	}
	if n < 2 {
		return errors.New("nothing was acknowledged")
	}
	_, err = s.client.Put(context.Background(), "/fill/more", "room")
	return err
}

// When the disk is full, the process ends with one line that reports it. Acknowledged writes still
// exist when there is space again.
func TestFullDiskEndsTheProcessAndLosesNothing(t *testing.T) {
	const mount = `mount -t tmpfs -o size=%s tmpfs "$DIR"`
	dir := t.TempDir()
	acknowledged, said := filepath.Join(t.TempDir(), "acknowledged"), filepath.Join(t.TempDir(), "said")
	script := func(namespaces []string, text string) ([]byte, error) {
		command := exec.CommandContext(t.Context(), "unshare", append(slices.Clone(namespaces), "sh", "-ec", text)...)
		command.Env = append(os.Environ(), "DIR="+dir, "SELF="+os.Args[0], "ACKNOWLEDGED="+acknowledged, "SAID="+said)
		return command.CombinedOutput()
	}
	// Any user may mount in its own namespaces; where user namespaces are forbidden, only root may
	// mount.
	namespaces := []string{"--user", "--map-root-user", "--mount"}
	if _, err := script(namespaces, fmt.Sprintf(mount, "1m")); err != nil {
		namespaces = []string{"--mount"}
	}
	if output, err := script(namespaces, fmt.Sprintf(mount, "1m")); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("CI must be able to mount a file system: %v: %s", err, output)
		}
		t.Skipf("no file system of a chosen size can be mounted here: %v: %s", err, output)
	}
	// The log of etcd takes 64 MB at once, twice.
	output, err := script(namespaces, fmt.Sprintf(mount, "150m")+`
		if `+fillVariable+`="$DIR/etcd" "$SELF" >"$ACKNOWLEDGED" 2>"$SAID"; then echo it goes on; exit 1; fi
		mount -o remount,size=500m "$DIR"
		`+verifyVariable+`="$DIR/etcd" "$SELF" <"$ACKNOWLEDGED"`)
	if err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	words, err := os.ReadFile(said)
	must(t, err)
	for _, want := range []string{"coppice: etcd on " + dir, "no space left on device", "all acknowledged writes are on disk"} {
		if !strings.Contains(string(words), want) || strings.Count(strings.TrimSpace(string(words)), "\n") > 0 {
			t.Errorf("it says %q, want one line with %q", words, want)
		}
	}
}
