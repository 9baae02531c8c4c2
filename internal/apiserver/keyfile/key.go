package keyfile

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"strings"
)

// keySize is the size of an AES-256 key, in bytes.
const keySize = 32

// Key encrypts copies of deleted objects, so that secrets are not readable at rest: AES-256 in Galois/counter mode. A
// sealed text can only be opened with the same key and purpose, and Open detects changes to it. It may be used
// concurrently.
type Key struct {
	id   string
	aead cipher.AEAD
}

// NewKey returns the key of 32 secret bytes.
func NewKey(secret []byte) (*Key, error) {
	if len(secret) != keySize {
		return nil, fmt.Errorf("a key has %d bytes, not %d", keySize, len(secret))
	}
	block, err := aes.NewCipher(secret)
	if err != nil {
		return nil, fmt.Errorf("use the key: %w", err)
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return nil, fmt.Errorf("use the key: %w", err)
	}
	sum := sha256.Sum256(append([]byte("coppice key id "), secret...))
	return &Key{id: hex.EncodeToString(sum[:8]), aead: aead}, nil
}

// ID identifies the key without revealing it.
func (k *Key) ID() string { return k.id }

// Seal encrypts a text for a purpose, which is not secret.
func (k *Key) Seal(text, purpose []byte) []byte { return k.aead.Seal(nil, nil, text, purpose) }

// Open decrypts a text that Seal encrypted for the same purpose.
func (k *Key) Open(text, purpose []byte) ([]byte, error) {
	plain, err := k.aead.Open(nil, nil, text, purpose)
	if err != nil {
		return nil, errors.New("it was changed, or sealed with another key")
	}
	return plain, nil
}

// LoadKey reads the key in a file. IsMissing reports whether its error means that there is no file.
func LoadKey(path string) (*Key, error) {
	text, err := Load(path)
	if err != nil {
		return nil, fmt.Errorf("read the key: %w", err)
	}
	secret, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(text)))
	if err != nil || len(secret) != keySize {
		return nil, noKey(path, len(text))
	}
	return NewKey(secret)
}

// noKey returns the error about a file without a key. A process that is killed while it makes a key may leave a part of
// it.
func noKey(path string, size int) error {
	return fmt.Errorf("%s has no key, which is %d bytes in base64, but %d bytes of text: restore the file from a backup; "+
		"if nothing was sealed with this key yet, remove the file, and a new key is made", path, keySize, size)
}

// LoadOrMakeKey reads the key in a file, or makes a key if there is no file; then made is true. All callers get the key
// that is in the file, also if several make one at the same time: what a lost key has sealed is lost, too.
func LoadOrMakeKey(path string) (key *Key, made bool, err error) {
	key, err = LoadKey(path)
	if !IsMissing(err) {
		return key, false, err
	}
	return makeKey(path)
}

// makeKey makes a key, or reads the key that another process has stored meanwhile.
func makeKey(path string) (key *Key, made bool, err error) {
	secret := make([]byte, keySize)
	if _, err := rand.Read(secret); err != nil {
		return nil, false, fmt.Errorf("make a key: %w", err)
	}
	err = Create(path, []byte(base64.StdEncoding.EncodeToString(secret)+"\n"))
	if errors.Is(err, fs.ErrExist) {
		key, err = LoadKey(path)
		return key, false, err
	}
	if err != nil {
		return nil, false, fmt.Errorf("store the key: %w", err)
	}
	key, err = NewKey(secret)
	return key, true, err
}
