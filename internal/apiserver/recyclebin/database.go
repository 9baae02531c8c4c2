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

// Item is the metadata of a kept object.
type Item struct {
	Group     string `json:"group,omitempty"`
	Version   string `json:"version"`
	Kind      string `json:"kind"`
	Resource  string `json:"resource"`
	Namespace string `json:"namespace,omitempty"`
	// NamespaceUID is the UID of the object's namespace when the object was removed; empty if unknown.
	NamespaceUID      types.UID               `json:"namespaceUID,omitempty"`
	Name              string                  `json:"name"`
	UID               types.UID               `json:"uid"`
	Owners            []metav1.OwnerReference `json:"owners,omitempty"`
	DeletionTimestamp *metav1.Time            `json:"deletionTimestamp,omitempty"`
	Grace             *int64                  `json:"deletionGracePeriodSeconds,omitempty"`
	Finalizers        []string                `json:"finalizers,omitempty"`
	Revision          int64                   `json:"revision"`
	Removed           time.Time               `json:"removed"`
	// Stays is true for an object that was not deleted: it has lost the Owners by an orphan deletion.
	Stays bool `json:"stays,omitempty"`
	// OrphansUnknown is true for an object whose deletion kept its dependents, which the bin does not know.
	OrphansUnknown bool `json:"orphansUnknown,omitempty"`
	// Object is the complete object, if the request is for it.
	Object *unstructured.Unstructured `json:"object,omitempty"`
}

// entry is an item with its object as JSON.
type entry struct {
	Item

	body []byte
}

// maxValue bounds the value of an entry, in bytes. etcd accepts only smaller values.
const maxValue = 64 << 20

// The buckets for the metadata of objects, for the objects, and for the state of the bin; and the keys of the state.
func itemsBucket() []byte  { return []byte("items") }
func bodiesBucket() []byte { return []byte("objects") }
func stateBucket() []byte  { return []byte("state") }
func reachedKey() []byte   { return []byte("revision") }
func sizeKey() []byte      { return []byte("bytes") }
func keyIDKey() []byte     { return []byte("key") }

// write writes entries and the revision that was reached, and drops the oldest objects that exceed the bounds.
func (b *Bin) write(entries []entry, reached int64) error {
	var added []indexed
	dropped := 0
	err := b.update(func(tx *bolt.Tx) error {
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
		added = added[:0]
		size := number(state.Get(sizeKey()))
		for n := range entries {
			key, bytes, err := b.add(items, bodies, &entries[n])
			if err != nil {
				return err
			}
			added = append(added, b.index.entry(key, &entries[n].Item))
			size += bytes
		}
		if dropped, size, err = b.drop(items, bodies, added, size); err != nil {
			return err
		}
		return errors.Join(
			state.Put(keyIDKey(), []byte(checked(b.key.ID()))),
			state.Put(sizeKey(), binary.BigEndian.AppendUint64(nil, uint64(size))),
			state.Put(reachedKey(), binary.BigEndian.AppendUint64(nil, uint64(reached))),
		)
	})
	if err != nil {
		return fmt.Errorf("write to the recycle bin: %w", err)
	}
	b.index.change(added, dropped)
	b.progress.set(reached)
	return nil
}

// add adds an entry, and returns its key and its size.
func (b *Bin) add(items, bodies *bolt.Bucket, e *entry) (sequence uint64, size int64, err error) {
	if sequence, err = items.NextSequence(); err != nil {
		return 0, 0, fmt.Errorf("add an entry: %w", err)
	}
	key := keyOf(sequence)
	head, body := b.key.Seal(encodeJSON(e.Item), key), b.key.Seal(compressed(e.body), key)
	if err := errors.Join(items.Put(key, head), bodies.Put(key, body)); err != nil {
		return 0, 0, fmt.Errorf("add an entry: %w", err)
	}
	return sequence, int64(len(head) + len(body)), nil
}

func keyOf(sequence uint64) []byte { return binary.BigEndian.AppendUint64(nil, sequence) }

// drop drops the oldest object as long as the total size, the number of objects or its age exceeds the bounds. It
// returns the number of dropped objects, and the remaining size.
func (b *Bin) drop(items, bodies *bolt.Bucket, added []indexed, size int64) (dropped int, left int64, err error) {
	oldest := b.clock.Now().Add(-b.bounds.Age)
	before := b.index.entries() // up to maxItems, therefore not copied for each write
	next := func() *indexed {
		if dropped < len(before) {
			return &before[dropped]
		}
		return &added[dropped-len(before)]
	}
	for kept := len(before) + len(added); kept > 0; kept-- {
		one := next()
		if size <= b.bounds.Bytes && kept <= maxItems && !one.removed.Before(oldest) {
			break
		}
		key := keyOf(one.key)
		size -= int64(len(items.Get(key)) + len(bodies.Get(key)))
		if err := errors.Join(bodies.Delete(key), items.Delete(key)); err != nil {
			return 0, size, fmt.Errorf("drop the oldest: %w", err)
		}
		dropped++
	}
	return dropped, size, nil
}

// reached returns the revision up to which the bin has all removals; 0 if the bin is new.
func (b *Bin) reached() (revision int64, err error) {
	err = b.view(func(tx *bolt.Tx) error {
		if state := tx.Bucket(stateBucket()); state != nil {
			revision = number(state.Get(reachedKey()))
		}
		return nil
	})
	return revision, err
}

// head returns the metadata of the object with a key, or nil if the bin no longer has the object.
func (b *Bin) head(key uint64) (i *Item, err error) {
	err = b.view(func(tx *bolt.Tx) error {
		if items := tx.Bucket(itemsBucket()); items != nil {
			if head := items.Get(keyOf(key)); head != nil {
				i, err = b.item(keyOf(key), head)
				return err
			}
		}
		return nil
	})
	return i, err
}

// body returns the object with a key, or nil if the bin no longer has the object.
func (b *Bin) body(key uint64) (o *unstructured.Unstructured, err error) {
	err = b.view(func(tx *bolt.Tx) error {
		if bodies := tx.Bucket(bodiesBucket()); bodies != nil {
			if body := bodies.Get(keyOf(key)); body != nil {
				o, err = b.object(keyOf(key), body)
				return err
			}
		}
		return nil
	})
	return o, err
}

func (b *Bin) item(key, head []byte) (*Item, error) {
	if len(head) > maxValue {
		return nil, damaged(errors.New("an object is too long"))
	}
	text, err := b.key.Open(head, key)
	if err != nil {
		return nil, damaged(err)
	}
	i := &Item{}
	if err := json.Unmarshal(text, i); err != nil {
		return nil, damaged(err)
	}
	return i, nil
}

func (b *Bin) object(key, body []byte) (*unstructured.Unstructured, error) {
	if len(body) > maxValue {
		return nil, damaged(errors.New("an object is too long"))
	}
	text, err := b.key.Open(body, key)
	if err != nil {
		return nil, damaged(err)
	}
	expanded, err := gzip.NewReader(bytes.NewReader(text))
	if err != nil {
		return nil, damaged(err)
	}
	plain, err := io.ReadAll(expanded)
	if err != nil {
		return nil, damaged(err)
	}
	o := &unstructured.Unstructured{}
	if err := o.UnmarshalJSON(plain); err != nil {
		return nil, damaged(err)
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
