// Package sbom lists the modules of a binary in CycloneDX format. It reads them from the binary,
// into which the linker has written them.
package sbom

import (
	"bytes"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	"github.com/CycloneDX/cyclonedx-go"
)

// Write returns the bill of materials of the binary at path, a version of Coppice.
func Write(path, version string, made time.Time) ([]byte, error) {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return nil, err
	}
	main := component(cyclonedx.ComponentTypeApplication, info.Main.Path, version, "")
	components := []cyclonedx.Component{component(cyclonedx.ComponentTypeLibrary, "std", strings.TrimPrefix(info.GoVersion, "go"), "")}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		components = append(components, component(cyclonedx.ComponentTypeLibrary, m.Path, m.Version, m.Sum))
	}
	used := make([]string, len(components))
	for i, c := range components {
		used[i] = c.BOMRef
	}
	bill := cyclonedx.NewBOM()
	bill.Metadata = &cyclonedx.Metadata{
		Timestamp: made.UTC().Format(time.RFC3339), Component: &main, Properties: settings(info),
	}
	bill.Components = &components
	bill.Dependencies = &[]cyclonedx.Dependency{{Ref: main.BOMRef, Dependencies: &used}}
	var text bytes.Buffer
	if err := cyclonedx.NewBOMEncoder(&text, cyclonedx.BOMFileFormatJSON).SetPretty(true).Encode(bill); err != nil {
		return nil, err
	}
	return text.Bytes(), nil
}

// component returns a Go module. sum is its checksum as in go.sum.
func component(kind cyclonedx.ComponentType, path, version, sum string) cyclonedx.Component {
	url := fmt.Sprintf("pkg:golang/%s@%s", path, strings.ReplaceAll(version, "+", "%2B"))
	c := cyclonedx.Component{BOMRef: url, Type: kind, Name: path, Version: version, PackageURL: url}
	// h1 is the SHA-256 of a list of the module's files with the SHA-256 of each.
	if encoded, ok := strings.CutPrefix(sum, "h1:"); ok {
		if hash, err := base64.StdEncoding.DecodeString(encoded); err == nil {
			c.Hashes = &[]cyclonedx.Hash{{Algorithm: cyclonedx.HashAlgoSHA256, Value: hex.EncodeToString(hash)}}
		}
	}
	return c
}

// settings returns the build settings of the binary.
func settings(info *debug.BuildInfo) *[]cyclonedx.Property {
	all := []cyclonedx.Property{{Name: "go:version", Value: info.GoVersion}}
	for _, s := range info.Settings {
		all = append(all, cyclonedx.Property{Name: "go:" + s.Key, Value: s.Value})
	}
	return &all
}
