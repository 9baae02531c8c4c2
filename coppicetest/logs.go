package coppicetest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// ExportLogs writes the output of a failed test to a directory, which it creates if necessary:
// coppice.log has the log of the process, deletions.txt the objects collected since the last mark and
// the reasons, and audit.log, with WithAudit, the requests that changed something. It is for callers
// that are not a test, such as TestMain.
func (p *Plane) ExportLogs(ctx context.Context, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("export logs: %w", err)
	}
	files := map[string]string{"coppice.log": p.process.log.String()}
	if !p.bare {
		deletions, err := p.deletions(ctx)
		if err != nil {
			return fmt.Errorf("export logs: %w", err)
		}
		var text strings.Builder
		for _, d := range deletions {
			fmt.Fprintf(&text, "%s\n", d)
		}
		files["deletions.txt"] = text.String()
	}
	if p.audit {
		files["audit.log"] = readFile(filepath.Join(p.dir, "audit.log"))
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			return fmt.Errorf("export logs: %w", err)
		}
	}
	return nil
}
