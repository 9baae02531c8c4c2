package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// counterpart is code of upstream whose behaviour is implemented here.
type counterpart struct {
	module, path string
	here         string // the packages with this behaviour here
}

// counterparts are the code of upstream whose behaviour is implemented here, from its semantics: a change there may need one
// here. Our libraries are not among it: they bring their changes with them.
func counterparts() []counterpart {
	return []counterpart{
		{"k8s.io/apiserver", "pkg/registry/generic/registry", "internal/apiserver/deleteflow, internal/apiserver/registry"},
		{"k8s.io/apiserver", "pkg/registry/rest", "internal/rules/deletion, internal/apiserver/registry"},
		{"k8s.io/apiextensions-apiserver", "pkg/controller", "internal/apiserver/definitions"},
		{kubernetes, "pkg/controller/garbagecollector", "internal/collect, internal/rules"},
		{kubernetes, "pkg/controller/namespace", "internal/collect/namespaces"},
		{kubernetes, "pkg/registry/core/namespace", "internal/apiserver/registry/core"},
		{kubernetes, "pkg/registry/core/pod", "internal/apiserver/registry/core, internal/apiserver/eviction"},
		{kubernetes, "pkg/controller/podgc", "internal/controller/nodelifecycle, internal/rules/builtin"},
		{kubernetes, "pkg/controller/ttlafterfinished", "internal/controller/job"},
		{kubernetes, "pkg/controller/volume/pvcprotection", "internal/controller/volumeprotection, internal/rules/inuse"},
		{kubernetes, "pkg/controller/volume/pvprotection", "internal/controller/volumeprotection, internal/rules/inuse"},
		{kubernetes, "pkg/controller/job", "internal/controller/job"},
		{kubernetes, "pkg/controller/replicaset", "internal/controller/replicaset"},
		{kubernetes, "pkg/controller/deployment", "internal/controller/deployment"},
		{kubernetes, "pkg/controller/statefulset", "internal/controller/statefulset"},
		{kubernetes, "pkg/controller/daemon", "internal/controller/daemonset"},
		{kubernetes, "pkg/controller/cronjob", "internal/controller/cronjob"},
		{kubernetes, "pkg/controller/disruption", "internal/controller/disruption"},
		{kubernetes, "pkg/controller/storageversionmigrator", "internal/controller/storageversionmigrator"},
		{kubernetes, "pkg/controller/certificates", "internal/controller/certificates, internal/controller/signingrequest"},
		{kubernetes, "pkg/controller/devicetainteviction", "internal/controller/devicetainteviction"},
		{kubernetes, "pkg/controller/endpoint", "internal/controller/endpoints"},
		{kubernetes, "pkg/controller/history", "internal/controller"},
		{kubernetes, "pkg/controller/nodelifecycle", "internal/controller/nodelifecycle"},
		{kubernetes, "pkg/controller/podautoscaler", "internal/controller/podautoscaler"},
		{kubernetes, "pkg/controller/resourceclaim", "internal/controller/resourceclaim"},
		{kubernetes, "pkg/controller/resourcequota", "internal/controller/resourcequota"},
		{kubernetes, "pkg/controller/serviceaccount", "internal/controller/serviceaccount"},
		{kubernetes, "pkg/controller/servicecidrs", "internal/controller/servicecidrs"},
		{kubernetes, "pkg/controller/tainteviction", "internal/controller/nodelifecycle"},
		{kubernetes, "pkg/kubelet/pod_workers.go", "internal/node/agent/lifecycle"},
		{kubernetes, "pkg/kubelet/status", "internal/node/agent"},
		{kubernetes, "plugin/pkg/admission", "internal/apiserver/admissionchain"},
		{kubernetes, "plugin/pkg/auth/authorizer", "internal/apiserver/auth"},
	}
}

// codeChanged lists the files of this code that differ, with the lines that came and went.
func codeChanged(ctx context.Context, page *strings.Builder, before, after release) error {
	var rows []string
	for _, c := range counterparts() {
		lines, err := filesChanged(ctx, before.file(c.module, c.path), after.file(c.module, c.path))
		if err != nil {
			return err
		}
		if len(lines) > 0 {
			rows = append(rows, fmt.Sprintf("%s/%s, here %s\n  * %s", c.module, c.path, c.here, strings.Join(lines, "\n  * ")))
		}
	}
	section(page, "Code that changed", "Upstream's code whose behaviour is implemented here, without tests: the lines that came and went. Read each change.", rows)
	return nil
}

// filesChanged returns a line for each file that differs between two directories, or files.
func filesChanged(ctx context.Context, before, after string) ([]string, error) {
	_, noLonger := os.Stat(after)
	_, notYet := os.Stat(before)
	switch {
	case errors.Is(noLonger, fs.ErrNotExist):
		return []string{"it is not there any more"}, nil
	case errors.Is(notYet, fs.ErrNotExist):
		return []string{"it is new"}, nil
	}
	command := exec.CommandContext(ctx, "git", "diff", "--no-index", "--no-renames", "--numstat", "-z", before, after)
	output, err := command.Output()
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 1) { // 1: they differ
		return nil, fmt.Errorf("%v: %w", command.Args, err)
	}
	var lines []string
	// For each file: "came TAB went TAB NUL before NUL after NUL".
	fields := strings.Split(string(bytes.TrimSuffix(output, []byte{0})), "\x00")
	for i := 0; i+2 < len(fields); i += 3 {
		name := strings.TrimPrefix(strings.TrimPrefix(fields[i+2], after), "/")
		if fields[i+2] == os.DevNull {
			name = strings.TrimPrefix(strings.TrimPrefix(fields[i+1], before), "/")
		}
		if name != "" && !isSource(name) {
			continue
		}
		came, went, _ := strings.Cut(strings.TrimSpace(fields[i]), "\t")
		lines = append(lines, fmt.Sprintf("%s +%s -%s", cmp.Or(name, filepath.Base(after)), came, went))
	}
	return lines, nil
}

// isSource reports whether a person has written a file, as a part of the program.
func isSource(name string) bool {
	return strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") && !strings.Contains(name, "testdata/") && !strings.Contains(name, "zz_generated.")
}

// differencesFound lists the differences that the comparison with the new release has recorded, each with its example.
func differencesFound(page *strings.Builder, file string) error {
	if file == "" {
		return nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var rows []string
	for line := range strings.Lines(string(data)) {
		switch isExample, text := strings.HasPrefix(line, " "), strings.TrimSpace(line); {
		case text == "", strings.HasPrefix(text, "#"):
		case isExample && len(rows) > 0:
			rows[len(rows)-1] += "\n  * for example " + text
		default:
			rows = append(rows, text)
		}
	}
	section(page, "Differences between the two servers", "Recorded by the last comparison of whole objects, and not declared: each is to be mended, or declared with a reason.", rows)
	return nil
}
