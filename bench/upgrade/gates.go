package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"
	"sigs.k8s.io/yaml"
)

// gate is a feature gate, with its changes by version of Kubernetes.
type gate struct {
	Name           string     `json:"name"`
	VersionedSpecs []gateSpec `json:"versionedSpecs"`
}

// gateSpec is a feature gate from a version on.
type gateSpec struct {
	Default       bool   `json:"default"`
	LockToDefault bool   `json:"lockToDefault"`
	PreRelease    string `json:"preRelease"`
	Version       string `json:"version"`

	// fields are the fields and constants of stable versions that the gate enables, as far as their comments say so.
	fields []string
}

// gatesChanged lists the feature gates that came, went, or changed their default or their stage.
func gatesChanged(page *strings.Builder, before, after release) error {
	rows, err := compare(before, after, readGates, compareGates)
	section(page, "Feature gates that changed", "First those whose default changed: behaviour that users see; with the fields whose comments name the gate.", rows)
	return err
}

// readGates reads the feature gates of a release, as they are in its minor.
func readGates(r release) (map[string]gateSpec, error) {
	file := r.file(kubernetes, "test", "compatibility_lifecycle", "reference", "versioned_feature_list.yaml")
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var gates []gate
	if err := yaml.Unmarshal(data, &gates); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	minor, err := version.ParseGeneric(r.version)
	if err != nil {
		return nil, err
	}
	fields, err := gateFields(r.file(library))
	if err != nil {
		return nil, err
	}
	all := map[string]gateSpec{}
	for _, g := range gates {
		for _, s := range g.VersionedSpecs {
			since, err := version.ParseGeneric(s.Version)
			if err != nil {
				return nil, fmt.Errorf("%s: %s: %w", file, g.Name, err)
			}
			if !since.GreaterThan(minor) { // the specs are in the order of their versions
				s.fields = fields[g.Name]
				all[g.Name] = s
			}
		}
	}
	return all, nil
}

// compareGates describes each gate that differs; first those with another default.
func compareGates(old, young map[string]gateSpec) []string {
	var defaults, stages []string
	names := maps.Clone(old)
	maps.Copy(names, young)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		was, hadIt := old[name]
		is, hasIt := young[name]
		switch {
		case !hasIt:
			stages = append(stages, fmt.Sprintf("went: %s (was %s)", name, was))
		case !hadIt && is.Default:
			defaults = append(defaults, fmt.Sprintf("**came: %s (%s)**%s", name, is, is.list()))
		case !hadIt:
			stages = append(stages, fmt.Sprintf("came: %s (%s)", name, is))
		case was.Default != is.Default:
			defaults = append(defaults, fmt.Sprintf("**%s: was %s, is %s**%s", name, was, is, is.list()))
		case was.PreRelease != is.PreRelease || was.LockToDefault != is.LockToDefault:
			stages = append(stages, fmt.Sprintf("%s: was %s, is %s", name, was, is))
		}
	}
	return slices.Concat(defaults, stages)
}

func (s gateSpec) String() string {
	text := "off"
	if s.Default {
		text = "on"
	}
	if s.LockToDefault {
		text += " for good"
	}
	stage := s.PreRelease
	if stage == "" {
		stage = "GA"
	}
	return text + ", " + stage
}

// list returns the fields of a gate, a line for each.
func (s gateSpec) list() string {
	var lines strings.Builder
	for _, field := range s.fields {
		lines.WriteString("\n  * " + field)
	}
	return lines.String()
}

// gateFields returns the fields and constants of stable versions in k8s.io/api, by the gate that their comments name.
func gateFields(api string) (map[string][]string, error) {
	files, err := filepath.Glob(filepath.Join(api, "*", "v[0-9]", "types.go"))
	if err != nil || len(files) == 0 {
		return nil, errors.Join(err, fmt.Errorf("%s has no types", api))
	}
	fields := map[string][]string{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		version := strings.ReplaceAll(strings.TrimPrefix(filepath.Dir(file), api+"/"), "/", ".")
		var prefix string // of the fields of the current type
		var gates []string
		for line := range strings.Lines(string(data)) {
			words := strings.Fields(line)
			switch {
			case strings.HasPrefix(line, "type ") && words[len(words)-1] == "{":
				prefix = words[1] + "."
			case strings.HasPrefix(line, "}"), strings.HasPrefix(line, ")"):
				prefix = ""
			case len(words) > 1 && words[0] == "//" && strings.HasPrefix(words[1], "+featureGate="):
				gates = append(gates, strings.Split(strings.TrimPrefix(words[1], "+featureGate="), ",")...)
			case len(words) == 0, words[0] == "//":
			default:
				for _, gate := range gates {
					fields[gate] = append(fields[gate], version+"."+prefix+words[0])
				}
				gates = nil
			}
		}
	}
	return fields, nil
}
