// Package target names the platforms of a release, and the files of each.
package target

import (
	"fmt"
	"slices"
	"strings"
)

// Target is a platform, in Go's terms.
type Target struct{ OS, Arch string }

// All returns the platforms of a release.
func All() []Target {
	var all []Target
	for _, system := range []string{"darwin", "linux", "windows"} {
		for _, arch := range []string{"amd64", "arm64"} {
			all = append(all, Target{system, arch})
		}
	}
	return all
}

// ParseList reads platforms with commas between them, and returns each once, in the order of All. The
// empty list is all platforms.
func ParseList(list string) ([]Target, error) {
	if list == "" {
		return All(), nil
	}
	chosen := map[Target]bool{}
	for name := range strings.SplitSeq(list, ",") {
		t, err := Parse(name)
		if err != nil {
			return nil, err
		}
		chosen[t] = true
	}
	return slices.DeleteFunc(All(), func(t Target) bool { return !chosen[t] }), nil
}

// Parse reads a platform as Target.String writes it.
func Parse(s string) (Target, error) {
	for _, t := range All() {
		if t.String() == s {
			return t, nil
		}
	}
	return Target{}, fmt.Errorf("%q is no platform of a release: choose among %v", s, All())
}

func (t Target) String() string { return t.OS + "/" + t.Arch }

// Program returns the file name of a program.
func (t Target) Program(name string) string {
	if t.OS == "windows" {
		return name + ".exe"
	}
	return name
}

// Archive returns the file name of the archive with the binary.
func (t Target) Archive(version string) string {
	extension := ".tar.gz"
	if t.OS == "windows" {
		extension = ".zip"
	}
	return fmt.Sprintf("coppice-%s-%s-%s%s", version, t.OS, t.Arch, extension)
}

// BillOfMaterials returns the file name of the binary's bill of materials.
func (t Target) BillOfMaterials(version string) string {
	return fmt.Sprintf("coppice-%s-%s-%s.cdx.json", version, t.OS, t.Arch)
}
