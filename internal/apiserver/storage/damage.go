package storage

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
)

// checkDatabase reads all keys of the database in a member's directory before etcd does. etcd reads
// them on goroutines of its own, where a panic cannot be recovered, so a damaged page would end the
// process with a stack trace. It takes about as long as etcd's own reading, and does not detect
// damage inside a value.
func checkDatabase(dir string) error {
	path := filepath.Join(dir, "member", "snap", "db")
	if _, err := os.Stat(path); err != nil {
		return nil //nolint:nilerr // a new member, or not a member's directory: etcd reports which
	}
	if err := readThrough(path); err != nil {
		return fmt.Errorf("the database %s is damaged: %.200s; %s", path, err.Error(), restoreInstead)
	}
	return nil
}

// revisionsBucket is the bucket in which etcd keeps the values, by revision.
const revisionsBucket = "key"

// readThrough reads every key in order, and seeks it from the root, so that both the leaves and the
// branches that lead to them are checked.
func readThrough(path string) (err error) {
	// The file is mapped into memory: a pointer out of it causes a memory fault.
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if broken := recover(); broken != nil {
			err = fmt.Errorf("%v", broken)
		}
	}()
	db, err := bolt.Open(path, 0o600, &bolt.Options{ReadOnly: true})
	if err != nil {
		return err
	}
	defer db.Close()
	return db.View(func(tx *bolt.Tx) error {
		return tx.ForEach(func(name []byte, bucket *bolt.Bucket) error {
			isRevisions := string(name) == revisionsBucket
			var before []byte
			seeking := bucket.Cursor()
			return bucket.ForEach(func(key, value []byte) error {
				if value == nil {
					// etcd has none. Looking for free pages, bbolt follows it on a goroutine of its own.
					return fmt.Errorf("a bucket within %q", name)
				}
				found, _ := seeking.Seek(key)
				if !bytes.Equal(found, key) || before != nil && bytes.Compare(before, key) >= 0 {
					return fmt.Errorf("keys of %q are out of order", name)
				}
				before = key
				if isRevisions {
					mvcc.BytesToBucketKey(key) // panics if it is not a revision
				}
				return nil
			})
		})
	})
}
