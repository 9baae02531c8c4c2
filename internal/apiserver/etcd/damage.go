package etcd

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
)

// checkDatabase reads all keys of the database in a member's directory before etcd does. etcd reads
// them on goroutines of its own, where a panic cannot be recovered, so a damaged page would end the
// process with a stack trace. It takes a fraction of the time of etcd's own reading
// (BenchmarkCheckDatabase), and does not detect damage inside a value.
func checkDatabase(dir string) error {
	path := filepath.Join(dir, "member", "snap", "db")
	if _, err := os.Stat(path); err != nil {
		return nil //nolint:nilerr // a new member, or not a member's directory: etcd reports which
	}
	if err := recovered(func() error { return readThrough(path) }); err != nil {
		return fmt.Errorf("the database %s is damaged: %.200s; %s", path, err.Error(), restoreInstead)
	}
	return nil
}

// revisionsBucket is the bucket in which etcd keeps the values, by revision.
const revisionsBucket = "key"

// readThrough checks every page of the buckets, once.
func readThrough(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	db, err := bolt.Open(path, 0o600, &bolt.Options{ReadOnly: true})
	if err != nil {
		return err
	}
	defer db.Close()
	return db.View(func(tx *bolt.Tx) error { return readBuckets(tx, file, db.Info().PageSize) })
}

// recovered calls a function, and returns what it panics with as an error. bbolt maps the file into memory: a pointer out
// of it causes a memory fault.
func recovered(read func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if broken := recover(); broken != nil {
			err = fmt.Errorf("%v", broken)
		}
	}()
	return read()
}

// readBuckets checks all buckets of a database, which is read from a file in pages of a size in bytes.
func readBuckets(tx *bolt.Tx, file io.ReaderAt, size int) error {
	pages := newPageReader(file, size, uint64(tx.Size())/uint64(size))
	return tx.ForEach(func(name []byte, bucket *bolt.Bucket) error {
		check := func([]byte) {}
		if string(name) == revisionsBucket {
			check = func(key []byte) { mvcc.BytesToBucketKey(key) } // panics if it is not a revision
		}
		if root := uint64(bucket.Root()); root != 0 {
			tree := tree{pages: pages, check: check}
			return tree.readAll(root)
		}
		return readSmall(string(name), bucket, check) // it is within a page of the list of buckets
	})
}

// readSmall checks a bucket without pages of its own.
func readSmall(name string, bucket *bolt.Bucket, check func(key []byte)) error {
	var before []byte
	return bucket.ForEach(func(key, value []byte) error {
		switch {
		case value == nil:
			return fmt.Errorf("a bucket within %q", name)
		case before != nil && bytes.Compare(before, key) >= 0:
			return fmt.Errorf("keys of %q are out of order", name)
		}
		before = key
		check(key)
		return nil
	})
}
