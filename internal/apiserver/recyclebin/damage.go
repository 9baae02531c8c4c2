package recyclebin

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"runtime/debug"
	"time"

	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

// asideSuffix is the suffix of a damaged database. The bin keeps at most one.
const asideSuffix = ".damaged"

var errAnotherKey = errors.New("it was written with another key")

// damage is the error for a damaged database.
type damage struct{ cause error }

func (d damage) Error() string { return d.cause.Error() }
func (d damage) Unwrap() error { return d.cause }

func damaged(cause error) error { return damage{cause} }

func isDamage(err error) bool {
	_, is := errors.AsType[damage](err)
	return is
}

// guard runs a function that reads pages of the database. bbolt panics if they are damaged, and reading beyond the end of
// a truncated file is a fault: both become errors.
func guard(run func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if cause := recover(); cause != nil {
			err = damaged(fmt.Errorf("%v", cause))
		}
	}()
	return run()
}

func (b *Bin) view(read func(tx *bolt.Tx) error) error {
	return b.use(func(db *bolt.DB) error { return db.View(read) })
}

func (b *Bin) update(write func(tx *bolt.Tx) error) error {
	return b.use(func(db *bolt.DB) error { return db.Update(write) })
}

// use runs a function on the database. If the function finds damage, use sets the database aside.
func (b *Bin) use(run func(db *bolt.DB) error) error {
	b.mu.RLock()
	db := b.db
	err := guard(func() error { return run(db) })
	b.mu.RUnlock()
	if !isDamage(err) {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.db != db {
		return err // set aside already
	}
	return errors.Join(err, b.startAnew(err))
}

// open opens the database and reads the index. Its error is damage, or errAnotherKey.
func (b *Bin) open() error {
	return guard(func() error {
		if err := verify(b.path); err != nil {
			return err
		}
		db, err := bolt.Open(b.path, 0o600, &bolt.Options{Timeout: time.Second})
		if err != nil {
			if _, isFile := errors.AsType[*fs.PathError](err); isFile || errors.Is(err, bolterrors.ErrTimeout) {
				return err
			}
			return damaged(err)
		}
		b.db = db
		if err := db.View(b.load); err != nil {
			if !isDamage(err) { // startAnew closes a damaged one
				return errors.Join(err, db.Close())
			}
			return err
		}
		return nil
	})
}

// load reads the index of an opened database. It checks the metadata of all objects and the total size, but decrypts no
// object.
func (b *Bin) load(tx *bolt.Tx) error {
	items, bodies, state := tx.Bucket(itemsBucket()), tx.Bucket(bodiesBucket()), tx.Bucket(stateBucket())
	if items == nil && bodies == nil && state == nil {
		return nil
	}
	if items == nil || bodies == nil || state == nil {
		return damaged(errors.New("a part is missing"))
	}
	id, known := unchecked(string(state.Get(keyIDKey())))
	if known && id != b.key.ID() {
		return errAnotherKey
	}
	var all []indexed
	size := int64(0)
	err := items.ForEach(func(key, head []byte) error {
		i, err := b.item(key, head)
		if err != nil {
			return err
		}
		body := bodies.Get(key)
		if len(key) != binary.Size(uint64(0)) || body == nil {
			return damaged(errors.New("an object is missing"))
		}
		size += int64(len(head) + len(body))
		all = append(all, b.index.entry(binary.BigEndian.Uint64(key), i))
		return nil
	})
	switch {
	case isDamage(err) && !known && len(all) == 0 && state.Get(keyIDKey()) == nil:
		return errAnotherKey // a database from before the key's ID was stored in it
	case err != nil:
		return err
	case size != number(state.Get(sizeKey())):
		return damaged(errors.New("the objects are not as many bytes as were written"))
	}
	b.index.change(all, 0)
	return nil
}

// startAnew sets the damaged database aside and opens an empty one. The caller has locked b.mu, or b is not in use yet.
func (b *Bin) startAnew(cause error) error {
	if old := b.db; old != nil {
		// Damage may block Close. Nothing waits for it, because the new database is another file.
		go func() { _ = guard(old.Close) }()
	}
	b.db = nil
	b.index.clear()
	aside := b.path + asideSuffix
	if err := os.Rename(b.path, aside); err != nil {
		return fmt.Errorf("set the damaged recycle bin aside: %w", err)
	}
	b.log.Error("the recycle bin is damaged: it was set aside, and a new one is empty", "file", aside, "cause", cause)
	if err := b.open(); err != nil {
		return fmt.Errorf("open a new recycle bin: %w", err)
	}
	return nil
}

// checked returns a text with a checksum, which distinguishes a damaged text from another text.
func checked(text string) string {
	return fmt.Sprintf("%s %08x", text, crc32.ChecksumIEEE([]byte(text)))
}

// unchecked returns the text of checked; false if it is damaged.
func unchecked(text string) (string, bool) {
	const checksum = len(" 01234567")
	if len(text) < checksum {
		return "", false
	}
	plain := text[:len(text)-checksum]
	return plain, checked(plain) == text
}
