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

// checkDatabase reads all keys of the database in a member's directory before etcd does.
// etcd does so on goroutines that nobody can recover, so that a damaged page would end
// the process with a stack trace. It costs about as much as etcd's own reading. What it
// cannot find is damage inside a value.
func checkDatabase(dir string) error {
	path := filepath.Join(dir, "member", "snap", "db")
	if _, err := os.Stat(path); err != nil {
		return nil //nolint:nilerr // a member that was never there, or nothing that a member can be: etcd will say
	}
	if err := readThrough(path); err != nil {
		return fmt.Errorf("the database %s is damaged: %.200s; %s", path, err.Error(), restoreInstead)
	}
	return nil
}

// revisionsBucket is where etcd keeps the contents, by revision.
const revisionsBucket = "key"

// readThrough reads every key in order, and looks for it from the root: so both what
// leads to a key and what lies beside it is sound.
func readThrough(path string) (err error) {
	// The file is mapped into memory. What points outside of it is a fault there.
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
			return bucket.ForEach(func(key, _ []byte) error {
				found, _ := seeking.Seek(key)
				if !bytes.Equal(found, key) || before != nil && bytes.Compare(before, key) >= 0 {
					return fmt.Errorf("keys of %q are out of order", name)
				}
				before = key
				if isRevisions {
					mvcc.BytesToBucketKey(key) // panics on what is no revision
				}
				return nil
			})
		})
	})
}
