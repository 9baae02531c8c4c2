package assets

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/coppice-dev/coppice/internal/system/assets/role"
)

// values are the values of the given flags of kube-apiserver.
type values struct {
	texts     map[string]*string
	numbers   map[string]*int
	bools     map[string]*bool
	durations map[string]*time.Duration
	lists     map[string]*[]string
	maps      map[string]*map[string]string
	given     map[string]bool
	notes     []string // about given flags that have no effect
}

// parse parses the flags. As in kube-apiserver, unknown flags and arguments are errors.
func parse(args []string) (*values, error) {
	v := &values{
		texts: map[string]*string{}, numbers: map[string]*int{}, bools: map[string]*bool{}, durations: map[string]*time.Duration{},
		lists: map[string]*[]string{}, maps: map[string]*map[string]string{}, given: map[string]bool{},
	}
	set := pflag.NewFlagSet(string(role.APIServer), pflag.ContinueOnError)
	set.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		return pflag.NormalizedName(strings.ReplaceAll(name, "_", "-"))
	})
	idle := map[string]string{}
	for _, f := range role.Flags() {
		v.define(set, f)
		idle[f.Name] = f.Idle
	}
	v.bools["version"] = set.Bool("version", false, "")
	insecure := set.Int("insecure-port", 0, "") // old servers needed --insecure-port=0
	if err := set.Parse(args); err != nil {
		return nil, err
	}
	if set.NArg() > 0 {
		return nil, fmt.Errorf("unknown command or argument %q", set.Arg(0))
	}
	if *insecure != 0 {
		return nil, errors.New("--insecure-port must be 0: there is no port without TLS")
	}
	set.Visit(func(f *pflag.Flag) {
		v.given[f.Name] = true
		if reason := idle[f.Name]; reason != "" {
			v.note("--%s has no effect: %s", f.Name, reason)
		}
	})
	return v, nil
}

func (v *values) note(format string, args ...any) {
	v.notes = append(v.notes, fmt.Sprintf(format, args...))
}

func (v *values) define(set *pflag.FlagSet, f role.Flag) {
	switch f.Kind {
	case role.Text:
		v.texts[f.Name] = set.String(f.Name, "", f.Usage)
	case role.Bool:
		v.bools[f.Name] = set.Bool(f.Name, false, f.Usage)
	case role.Number:
		short := ""
		if f.Name == "v" {
			short = "v"
		}
		v.numbers[f.Name] = set.IntP(f.Name, short, 0, f.Usage)
	case role.Duration:
		v.durations[f.Name] = set.Duration(f.Name, 0, f.Usage)
	case role.List:
		v.lists[f.Name] = set.StringSlice(f.Name, nil, f.Usage)
	case role.Repeated:
		v.lists[f.Name] = set.StringArray(f.Name, nil, f.Usage)
	case role.Map:
		v.maps[f.Name] = set.StringToString(f.Name, nil, f.Usage)
	}
}

func (v *values) text(name string) string { return *v.texts[name] }

func (v *values) list(name string) []string { return *v.lists[name] }

// number returns the value of a flag, or otherwise if it was not given.
func (v *values) number(name string, otherwise int) int {
	if v.given[name] {
		return *v.numbers[name]
	}
	return otherwise
}

// duration returns the value of a flag, or otherwise if it was not given.
func (v *values) duration(name string, otherwise time.Duration) time.Duration {
	if v.given[name] {
		return *v.durations[name]
	}
	return otherwise
}

// entries returns the entries of a map, sorted by name.
func (v *values) entries(name string) (names []string, entries map[string]string) {
	entries = *v.maps[name]
	return slices.Sorted(maps.Keys(entries)), entries
}
