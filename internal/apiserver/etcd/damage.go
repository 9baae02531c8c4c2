package etcd

import (
	"bytes"
	"encoding/binary"
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
	tree := branches{file, int64(db.Info().PageSize)}
	return db.View(func(tx *bolt.Tx) error {
		return tx.ForEach(func(name []byte, bucket *bolt.Bucket) error {
			if err := readBucket(string(name), bucket); err != nil {
				return err
			}
			root := uint64(bucket.Root())
			if root == 0 { // a small bucket has no page
				return nil
			}
			_, err := tree.firstKey(root)
			return err
		})
	})
}

func readBucket(name string, bucket *bolt.Bucket) error {
	var before []byte
	seeking := bucket.Cursor()
	return bucket.ForEach(func(key, value []byte) error {
		if value == nil {
			// etcd has no nested buckets. bbolt follows them on another goroutine when it looks for free pages.
			return fmt.Errorf("a bucket within %q", name)
		}
		found, _ := seeking.Seek(key)
		if !bytes.Equal(found, key) || before != nil && bytes.Compare(before, key) >= 0 {
			return fmt.Errorf("keys of %q are out of order", name)
		}
		before = key
		if name == revisionsBucket {
			mvcc.BytesToBucketKey(key) // panics if it is not a revision
		}
		return nil
	})
}

// branches compares each key in the branch pages of a database with the first key of the page below it. bbolt does the
// same when etcd opens the database, and panics if the key in the branch page is greater. Reads do not detect this
// damage. readThrough has checked everything else before.
type branches struct {
	file     io.ReaderAt
	pageSize int64
}

// The format of a page of bbolt, as far as branches reads it, in bytes.
const (
	pageHeader  = 16 // id, flags, count, overflow
	pageElement = 16
	branchFlag  = 1
)

// firstKey returns the first key of a page, or nil if the page has none. It also checks all pages below.
func (b branches) firstKey(id uint64) (first []byte, err error) {
	at := int64(id) * b.pageSize
	header, err := b.read(at, pageHeader)
	if err != nil {
		return nil, err
	}
	native := binary.NativeEndian
	isBranch, count := native.Uint16(header[8:])&branchFlag != 0, int64(native.Uint16(header[10:]))
	if !isBranch {
		return b.key(at+pageHeader, min(count, 1), 4)
	}
	elements, err := b.read(at+pageHeader, count*pageElement)
	for i := int64(0); i < count && err == nil; i++ {
		var key, below []byte
		if key, err = b.key(at+pageHeader+i*pageElement, 1, 0); err == nil {
			below, err = b.firstKey(native.Uint64(elements[i*pageElement+8:]))
		}
		if err == nil && below != nil && bytes.Compare(key, below) > 0 {
			err = fmt.Errorf("a key of page %d is greater than those below it", id)
		}
		if i == 0 {
			first = key
		}
	}
	return first, err
}

// key returns the key of an element, or nil if count is 0. After some other bytes, an element has the position of its
// key, relative to the element, and the length of the key.
func (b branches) key(element, count, after int64) ([]byte, error) {
	if count == 0 {
		return nil, nil
	}
	where, err := b.read(element+after, 8)
	if err != nil {
		return nil, err
	}
	return b.read(element+int64(binary.NativeEndian.Uint32(where)), int64(binary.NativeEndian.Uint32(where[4:])))
}

func (b branches) read(at, length int64) ([]byte, error) {
	text := make([]byte, length)
	_, err := b.file.ReadAt(text, at)
	return text, err
}
