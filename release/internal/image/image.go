// Package image makes the container image: the binary and the certificates of public authorities,
// for each architecture, in an archive that container runtimes import.
package image

import (
	"bytes"
	"encoding/pem"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"

	"github.com/coppice-dev/coppice/release/internal/archive"
)

// user is the unprivileged user of the container, as in the manifests in deploy.
const user = "65532:65532"

// certificatesPath is a path at which Go looks for certificates on every Linux.
const certificatesPath = "etc/ssl/certs/ca-certificates.crt"

// Image describes the image to make.
type Image struct {
	Name     string // with the registry, without the tag
	Version  string // the tag
	Created  time.Time
	Binaries map[string]string // paths of the binaries for Linux by architecture
}

// Write writes the image as a tar archive of an OCI layout, and returns the digest of its index.
// The layout is made in a temporary directory.
func (i Image) Write(path string) (digest string, err error) {
	index, err := i.index()
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp("", "coppice-image-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	at, err := layout.Write(dir, empty.Index)
	if err != nil {
		return "", err
	}
	// The first name is containerd's, the second one the specification's.
	names := map[string]string{
		"io.containerd.image.name":          i.Name + ":" + i.Version,
		"org.opencontainers.image.ref.name": i.Version,
	}
	if err := at.AppendIndex(index, layout.WithAnnotations(names)); err != nil {
		return "", err
	}
	files, err := archive.Tree(dir, "")
	if err != nil {
		return "", err
	}
	hash, err := index.Digest()
	if err != nil {
		return "", err
	}
	return hash.String(), archive.Create(path, i.Created, files, archive.Tar)
}

func (i Image) index() (v1.ImageIndex, error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, arch := range slices.Sorted(maps.Keys(i.Binaries)) {
		made, err := i.forArchitecture(arch, i.Binaries[arch])
		if err != nil {
			return nil, fmt.Errorf("image for linux/%s: %w", arch, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add:        made,
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}},
		})
	}
	return index, nil
}

func (i Image) forArchitecture(arch, binary string) (v1.Image, error) {
	certificates, err := i.layer([]archive.File{{Name: certificatesPath, Data: authorities(), Mode: 0o644}})
	if err != nil {
		return nil, err
	}
	program, err := i.layer([]archive.File{archive.Executable("coppice", binary)})
	if err != nil {
		return nil, err
	}
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	made, err := mutate.AppendLayers(base, certificates, program)
	if err != nil {
		return nil, err
	}
	file, err := made.ConfigFile()
	if err != nil {
		return nil, err
	}
	file = file.DeepCopy()
	file.OS, file.Architecture, file.Created = "linux", arch, v1.Time{Time: i.Created.UTC()}
	file.Config = v1.Config{
		Entrypoint: []string{"/coppice"},
		User:       user,
		Labels: map[string]string{
			"org.opencontainers.image.title":    "coppice",
			"org.opencontainers.image.version":  i.Version,
			"org.opencontainers.image.licenses": "Apache-2.0",
		},
	}
	return mutate.ConfigFile(made, file)
}

func (i Image) layer(files []archive.File) (v1.Layer, error) {
	var packed bytes.Buffer
	if err := archive.TarGz(&packed, i.Created, files); err != nil {
		return nil, err
	}
	data := packed.Bytes()
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil },
		tarball.WithMediaType(types.OCILayer))
}

// authorities returns the certificates of the authorities that Mozilla trusts without restriction.
func authorities() []byte {
	var text bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			_ = pem.Encode(&text, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}) // to memory
		}
	}
	return text.Bytes()
}
