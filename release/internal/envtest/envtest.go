// Package envtest makes the downloads of envtest, setup-envtest and their ports: an archive with
// kube-apiserver, etcd and kubectl for each platform, and the index of the archives.
package envtest

import (
	"crypto/sha512"
	"encoding/hex"
	"fmt"
	"io"
	"os"

	"sigs.k8s.io/yaml"

	"github.com/coppice-dev/coppice/release/internal/archive"
	"github.com/coppice-dev/coppice/release/internal/target"
)

// IndexName is the file name of the index. It is upstream's.
const IndexName = "envtest-releases.yaml"

// directory is the directory of the files in the archives, as in upstream's.
const directory = "controller-tools/envtest/"

// ArchiveName returns the file name of the archive for a platform, which readers of the index
// parse. version is the version of Kubernetes.
func ArchiveName(version string, t target.Target) string {
	return fmt.Sprintf("envtest-%s-%s-%s.tar.gz", version, t.OS, t.Arch)
}

// Files returns the files of an archive: Coppice as kube-apiserver, and a launcher of it under each
// of the other names.
func Files(t target.Target, coppice, launcher string) []archive.File {
	return []archive.File{
		archive.Executable(directory+t.Program("kube-apiserver"), coppice),
		archive.Executable(directory+t.Program("etcd"), launcher),
		archive.Executable(directory+t.Program("kubectl"), launcher),
	}
}

// index has the fields of upstream's index.
type index struct {
	Releases map[string]map[string]entry `json:"releases"`
}

type entry struct {
	Hash     string `json:"hash"`
	SelfLink string `json:"selfLink"`
}

// Index returns the index of archives, which are in dir now and will be below baseURL.
func Index(version, baseURL, dir string, names []string) ([]byte, error) {
	archives := map[string]entry{}
	for _, name := range names {
		hash, err := hashOf(dir + "/" + name)
		if err != nil {
			return nil, err
		}
		archives[name] = entry{Hash: hash, SelfLink: baseURL + "/" + name}
	}
	return yaml.Marshal(index{Releases: map[string]map[string]entry{version: archives}})
}

func hashOf(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	hash := sha512.New()
	if _, err := io.Copy(hash, file); err != nil {
		return "", err
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}
