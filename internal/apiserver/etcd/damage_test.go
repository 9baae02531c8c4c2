package etcd

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
)

// After overwriting any part of the database, either everything can still be read, or one line names the file and the
// remedy. No damage causes a stack trace.
func TestDamagedDatabaseIsReportedInOneLine(t *testing.T) {
	dir, file, whole := database(t, 2000)
	must(t, checkDatabase(dir))
	pages, size := pagesInUse(t, file)

	random := rand.New(rand.NewPCG(1, 2))
	overlooked := 0
	for i, length := range []int{1, 16, 512, 4096, 65536} {
		for try := range 20 {
			damaged := bytes.Clone(whole)
			at := random.IntN(size - length)
			for j := range length {
				damaged[at+j] ^= byte(1 + random.IntN(255))
			}
			must(t, os.WriteFile(file, damaged, 0o600))
			err := checkDatabase(dir)
			switch {
			case err == nil && pages.beginWithin(at, length):
				t.Errorf("%d bytes at %d are not noticed", length, at)
			case err != nil:
				checkFatalLine(t, err.Error(), file)
			case overlooked < 4 && try%2 == i%2: // each costs half a second
				overlooked++
				openDamaged(t, dir)
			}
		}
	}
	if overlooked == 0 {
		t.Error("etcd itself was never tried")
	}
}

// database makes the database of a member that has ended, with some keys, and returns its contents.
func database(t *testing.T, keys int) (dir, file string, contents []byte) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "etcd")
	s, err := Open(t.Context(), Options{Dir: dir})
	must(t, err)
	for i := range keys {
		s.put(t, fmt.Sprint("/configmaps/team/", i), strings.Repeat("x", 100))
	}
	must(t, s.Close())
	file = filepath.Join(dir, "member", "snap", "db")
	contents, err = os.ReadFile(file)
	must(t, err)
	return dir, file, contents
}

// A single bit can make a value a bucket, whose pages bbolt then looks for on its own goroutine, where no code can
// recover a panic.
func TestValueThatBecomesABucketIsDamage(t *testing.T) {
	dir, file, whole := database(t, 100)
	const isBucket = 1 // the first of a leaf element's flags, which are its first bytes
	whole[fullest(t, file, "leaf")+pageHeader] |= isBucket
	must(t, os.WriteFile(file, whole, 0o600))
	err := checkDatabase(dir)
	if err == nil {
		t.Fatal("a value that has become a bucket is not noticed")
	}
	checkFatalLine(t, err.Error(), file)
}

// Readers find all keys even if a key of a branch is greater than the first key below it. bbolt checks for this when
// etcd opens the database, and panics.
func TestKeyOfABranchThatIsTooGreatIsDamage(t *testing.T) {
	dir, file, whole := database(t, 2000)
	must(t, checkDatabase(dir))
	// An element of a branch begins with the position of its key, counted from the element, and the key's length.
	first := whole[fullest(t, file, "branch")+pageHeader:]
	position, length := binary.NativeEndian.Uint32(first), binary.NativeEndian.Uint32(first[4:])
	first[position+length-1]++
	must(t, os.WriteFile(file, whole, 0o600))
	err := checkDatabase(dir)
	if err == nil {
		t.Fatal("a key of a branch that is too great is not noticed")
	}
	checkFatalLine(t, err.Error(), file)
}

// Readers do not find a key that is also the first one of the next page. The pages are read in parts: the test looks at
// every two neighbors.
func TestKeyThatBelongsToTheNextPageIsDamage(t *testing.T) {
	dir, file, whole := database(t, 400)
	branch := whole[fullest(t, file, "branch"):]
	keyOf := func(page []byte, element, at int) []byte { // at is the place of the position of the key
		e := page[pageHeader+element*elementSize:]
		return e[binary.NativeEndian.Uint32(e[at:]):][:binary.NativeEndian.Uint32(e[at+4:])]
	}
	for n := 1; n < int(binary.NativeEndian.Uint16(branch[10:])); n++ {
		below := binary.NativeEndian.Uint64(branch[pageHeader+(n-1)*elementSize+8:])
		leaf := whole[int(below)*os.Getpagesize():]
		last := keyOf(leaf, int(binary.NativeEndian.Uint16(leaf[10:]))-1, 4)
		right := bytes.Clone(last)
		copy(last, keyOf(branch, n, 0))
		must(t, os.WriteFile(file, whole, 0o600))
		err := checkDatabase(dir)
		if err == nil {
			t.Fatalf("key %d is twice in the database, which is not noticed", n)
		}
		checkFatalLine(t, err.Error(), file)
		copy(last, right)
	}
}

// bbolt panics on another goroutine if two branches lead to a page, and descends without an end if a page leads to itself.
func TestPageThatIsUsedTwiceIsDamage(t *testing.T) {
	dir, file, whole := database(t, 2000)
	at := fullest(t, file, "branch")
	id := func(element int) []byte { return whole[at+pageHeader+element*elementSize+8:][:8] }
	for name, other := range map[string][]byte{"neighbor": bytes.Clone(id(0)), "itself": bytes.Clone(whole[at:][:8])} {
		right := bytes.Clone(id(1))
		copy(id(1), other)
		must(t, os.WriteFile(file, whole, 0o600))
		err := checkDatabase(dir)
		if err == nil {
			t.Fatalf("%s: a page that is used twice is not noticed", name)
		}
		checkFatalLine(t, err.Error(), file)
		copy(id(1), right)
	}
}

// fullest returns the offset of the page of a type that has the most elements.
func fullest(t *testing.T, file, pageType string) (at int) {
	t.Helper()
	db, err := bolt.Open(file, 0o600, &bolt.Options{ReadOnly: true, PreLoadFreelist: true})
	must(t, err)
	defer db.Close()
	most := 0
	must(t, db.View(func(tx *bolt.Tx) error {
		for id := 0; ; {
			page, err := tx.Page(id)
			if page == nil {
				return err
			}
			if page.Type == pageType && page.Count > most {
				most, at = page.Count, id*db.Info().PageSize
			}
			id += 1 + page.OverflowCount
		}
	}))
	return at
}

// pages are the offsets of the pages of a database that are in use.
type pages []int

// pagesInUse returns the pages in use of an undamaged database, and the size of all its pages: the file is longer.
// Which pages are free depends on how often etcd committed.
func pagesInUse(t *testing.T, file string) (used pages, size int) {
	t.Helper()
	db, err := bolt.Open(file, 0o600, &bolt.Options{ReadOnly: true, PreLoadFreelist: true})
	must(t, err)
	defer db.Close()
	must(t, db.View(func(tx *bolt.Tx) error {
		size = int(tx.Size())
		for id := 0; ; {
			page, err := tx.Page(id)
			if page == nil {
				return err
			}
			if page.Type == "leaf" || page.Type == "branch" {
				used = append(used, id*db.Info().PageSize)
			}
			id += 1 + page.OverflowCount
		}
	}))
	if len(used) < 10 {
		t.Fatalf("%d pages of the database are in use", len(used))
	}
	return used, size
}

// beginWithin reports whether a page in use begins within a range of bytes.
func (p pages) beginWithin(at, length int) bool {
	return slices.ContainsFunc(p, func(page int) bool { return at <= page && page+pageHeader <= at+length })
}

func checkFatalLine(t *testing.T, said, where string) {
	t.Helper()
	if !strings.Contains(said, where) || !strings.Contains(said, "coppice snapshot restore FILE") || strings.Contains(said, "\n") {
		t.Errorf("it says %q, want one line with %s and what to do", said, where)
	}
}

// openDamaged opens a directory whose damage was not detected. etcd may end the process.
func openDamaged(t *testing.T, dir string) {
	t.Helper()
	if output, err := self(t, damagedVariable, dir).CombinedOutput(); err != nil {
		checkFatalLine(t, strings.TrimSpace(string(output)), dir)
	}
}

// BenchmarkCheckDatabase prints how long a start takes longer because the database is checked.
func BenchmarkCheckDatabase(b *testing.B) {
	const keys = 100_000
	file := filepath.Join(b.TempDir(), "db")
	db, err := bolt.Open(file, 0o600, &bolt.Options{NoSync: true})
	if err != nil {
		b.Fatal(err)
	}
	value := make([]byte, 900)
	err = db.Update(func(tx *bolt.Tx) error {
		bucket, err := tx.CreateBucket([]byte(revisionsBucket))
		if err != nil {
			return err
		}
		bucket.FillPercent = 0.9 // as etcd's
		for i := range keys {
			key := mvcc.NewRevBytes()
			if err := bucket.Put(mvcc.RevToBytes(mvcc.Revision{Main: int64(i)}, key), value); err != nil {
				return err
			}
		}
		return nil
	})
	if err := errors.Join(err, db.Close()); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if err := readThrough(file); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/keys, "ns/key")
}
