package recyclebin

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	bolt "go.etcd.io/bbolt"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// Item is what is told of a kept object without what it contains.
type Item struct {
	Group             string                  `json:"group,omitempty"`
	Version           string                  `json:"version"`
	Kind              string                  `json:"kind"`
	Resource          string                  `json:"resource"`
	Namespace         string                  `json:"namespace,omitempty"`
	Name              string                  `json:"name"`
	UID               types.UID               `json:"uid"`
	Owners            []metav1.OwnerReference `json:"owners,omitempty"`
	DeletionTimestamp *metav1.Time            `json:"deletionTimestamp,omitempty"`
	Grace             *int64                  `json:"deletionGracePeriodSeconds,omitempty"`
	Finalizers        []string                `json:"finalizers,omitempty"`
	Revision          int64                   `json:"revision"`
	Removed           time.Time               `json:"removed"`
	// Object is the whole object, where that was asked for.
	Object *unstructured.Unstructured `json:"object,omitempty"`
}

// entry is an item with its object as JSON.
type entry struct {
	Item

	body []byte
}

// The buckets: what is told of objects, and the objects, by revision; and the revision that was reached.
func itemsBucket() []byte  { return []byte("items") }
func bodiesBucket() []byte { return []byte("objects") }
func stateBucket() []byte  { return []byte("state") }
func reachedKey() []byte   { return []byte("revision") }
func sizeKey() []byte      { return []byte("bytes") }

// write writes entries and the revision that was reached, and drops what is too much.
func (b *Bin) write(entries []entry, reached int64) error {
	err := b.db.Update(func(tx *bolt.Tx) error {
		items, err := tx.CreateBucketIfNotExists(itemsBucket())
		if err != nil {
			return err
		}
		bodies, err := tx.CreateBucketIfNotExists(bodiesBucket())
		if err != nil {
			return err
		}
		state, err := tx.CreateBucketIfNotExists(stateBucket())
		if err != nil {
			return err
		}
		size := number(state.Get(sizeKey()))
		for n := range entries {
			added, err := b.add(items, bodies, &entries[n])
			if err != nil {
				return err
			}
			size += added
		}
		if size, err = b.drop(items, bodies, size); err != nil {
			return err
		}
		if err := state.Put(sizeKey(), binary.BigEndian.AppendUint64(nil, uint64(size))); err != nil {
			return err
		}
		return state.Put(reachedKey(), binary.BigEndian.AppendUint64(nil, uint64(reached)))
	})
	if err != nil {
		return fmt.Errorf("write to the recycle bin: %w", err)
	}
	return nil
}

// add adds an entry, and returns its size.
func (b *Bin) add(items, bodies *bolt.Bucket, e *entry) (size int64, err error) {
	sequence, err := items.NextSequence()
	if err != nil {
		return 0, fmt.Errorf("add an entry: %w", err)
	}
	key := binary.BigEndian.AppendUint64(nil, sequence)
	head, body := b.key.Seal(encodeJSON(e.Item), key), b.key.Seal(compressed(e.body), key)
	if err := errors.Join(items.Put(key, head), bodies.Put(key, body)); err != nil {
		return 0, fmt.Errorf("add an entry: %w", err)
	}
	return int64(len(head) + len(body)), nil
}

// drop drops the oldest as long as there is too much, or it is too old, and returns the size that is left.
func (b *Bin) drop(items, bodies *bolt.Bucket, size int64) (int64, error) {
	oldest := b.clock.Now().Add(-b.bounds.Age)
	cursor := items.Cursor()
	for key, head := cursor.First(); key != nil; key, head = cursor.First() {
		if size <= b.bounds.Bytes {
			i, err := b.item(key, head)
			if err != nil {
				return size, err // nothing is dropped because it cannot be read
			}
			if !i.Removed.Before(oldest) {
				break
			}
		}
		size -= int64(len(head) + len(bodies.Get(key)))
		if err := bodies.Delete(key); err != nil {
			return size, fmt.Errorf("drop the oldest: %w", err)
		}
		if err := cursor.Delete(); err != nil {
			return size, fmt.Errorf("drop the oldest: %w", err)
		}
	}
	return size, nil
}

// checkKey returns an error if the last item that was written cannot be read with the key.
func (b *Bin) checkKey() error {
	return b.db.View(func(tx *bolt.Tx) error { //nolint:wrapcheck // says all of it
		items := tx.Bucket(itemsBucket())
		if items == nil {
			return nil
		}
		key, head := items.Cursor().Last()
		if key == nil {
			return nil
		}
		_, err := b.item(key, head)
		return err
	})
}

// reached returns the revision up to which the bin has all that was removed; 0 if it is new.
func (b *Bin) reached() (revision int64, err error) {
	err = b.db.View(func(tx *bolt.Tx) error {
		if state := tx.Bucket(stateBucket()); state != nil {
			revision = number(state.Get(reachedKey()))
		}
		return nil
	})
	return revision, err //nolint:wrapcheck // of the database, which is open
}

// each calls visit with all items, the oldest first. body returns the object.
func (b *Bin) each(visit func(i *Item, body func() (*unstructured.Unstructured, error)) error) error {
	oldest := b.clock.Now().Add(-b.bounds.Age)
	return b.db.View(func(tx *bolt.Tx) error { //nolint:wrapcheck // says all of it
		items, bodies := tx.Bucket(itemsBucket()), tx.Bucket(bodiesBucket())
		if items == nil {
			return nil
		}
		return items.ForEach(func(key, head []byte) error {
			i, err := b.item(key, head)
			if err != nil {
				return err
			}
			if i.Removed.Before(oldest) {
				return nil
			}
			return visit(i, func() (*unstructured.Unstructured, error) { return b.object(key, bodies.Get(key)) })
		})
	})
}

func (b *Bin) item(key, head []byte) (*Item, error) {
	text, err := b.key.Open(head, key)
	if err != nil {
		return nil, fmt.Errorf("read the recycle bin: %w", err)
	}
	i := &Item{}
	if err := json.Unmarshal(text, i); err != nil {
		return nil, fmt.Errorf("read the recycle bin: %w", err)
	}
	return i, nil
}

func (b *Bin) object(key, body []byte) (*unstructured.Unstructured, error) {
	text, err := b.key.Open(body, key)
	if err != nil {
		return nil, fmt.Errorf("read the recycle bin: %w", err)
	}
	expanded, err := gzip.NewReader(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("read the recycle bin: %w", err)
	}
	plain, err := io.ReadAll(expanded)
	if err != nil {
		return nil, fmt.Errorf("read the recycle bin: %w", err)
	}
	o := &unstructured.Unstructured{}
	if err := o.UnmarshalJSON(plain); err != nil {
		return nil, fmt.Errorf("read the recycle bin: %w", err)
	}
	return o, nil
}

func compressed(text []byte) []byte {
	var to bytes.Buffer
	w := gzip.NewWriter(&to)
	_, _ = w.Write(text) // into memory
	_ = w.Close()
	return to.Bytes()
}

func number(text []byte) int64 {
	if len(text) != 8 {
		return 0
	}
	return int64(binary.BigEndian.Uint64(text))
}
