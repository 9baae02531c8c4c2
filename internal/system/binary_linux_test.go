package system

import (
	"os"
	"slices"
	"strings"
	"testing"
)

func TestCleanMappings(t *testing.T) {
	const smaps = `00400000-04a00000 r-xp 00000000 fe:00 1234 /bin/coppice
Size:              71680 kB
Rss:               40000 kB
Anonymous:             0 kB
VmFlags: rd ex mr mw me
04a00000-04b00000 r--p 04600000 fe:00 1234 /bin/coppice
Size:               1024 kB
Anonymous:             4 kB
04b00000-04c00000 rw-p 04700000 fe:00 1234 /bin/coppice
Size:               1024 kB
Anonymous:             0 kB
04c00000-04d00000 r--s 04800000 fe:00 1234 /bin/coppice
Anonymous:             0 kB
c000000000-c004000000 rw-p 00000000 00:00 0
Anonymous:         16384 kB
7f0000000000-7f0000001000 r--p 00000000 fe:00 99 /data/etcd/member/snap/db
Anonymous:             0 kB
7f0000002000-7f0000004000 r--p 00000000 fe:00 1234 /bin/coppice
Anonymous:             0 kB
`
	want := []mapping{{0x400000, 0x4600000}, {0x7f0000002000, 0x2000}}
	if got := cleanMappings(strings.NewReader(smaps), "/bin/coppice"); !slices.Equal(got, want) {
		t.Errorf("%x, want %x", got, want)
	}
}

// The test's own program goes on running without its pages.
func TestBinaryIsUnmapped(t *testing.T) {
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.Open("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if len(cleanMappings(file, path)) == 0 {
		t.Errorf("no mapping of %s is found", path)
	}
	if err := unmapBinary(); err != nil {
		t.Error(err)
	}
}
