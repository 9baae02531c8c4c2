package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"k8s.io/utils/clock"

	"github.com/coppice-dev/coppice/internal/apiserver/backup"
	"github.com/coppice-dev/coppice/internal/tools/ask"
	"github.com/coppice-dev/coppice/internal/tools/mcpserver"
	"github.com/coppice-dev/coppice/internal/tools/preview"
	"github.com/coppice-dev/coppice/internal/tools/restore"
	"github.com/coppice-dev/coppice/internal/tools/undo"
)

// mcpCluster answers agents by the functions behind the commands. It implements mcpserver.Cluster.
type mcpCluster struct{ flags *mcpFlags }

// mostBackups bounds the bytes in --backup-dir. Agents may delete and restore as often as they like.
const mostBackups = 1 << 30

// Sources implements mcpserver.Cluster.
func (m *mcpCluster) Sources(scope mcpserver.Scope) (*ask.Sources, error) {
	cluster := m.flags.cluster.within(scope.Namespace)
	cluster.allNamespaces = scope.IsWhole
	return cluster.sources(m.flags.address, nil)
}

// recorded returns streams that keep the output of a command.
func recorded() (s Streams, out, notes *bytes.Buffer) {
	out, notes = new(bytes.Buffer), new(bytes.Buffer)
	return Streams{Out: out, Err: notes}.shown(), out, notes
}

// previewFlags returns the flags of a command for a deletion.
func (m *mcpCluster) previewFlags(d mcpserver.Deletion) previewFlags {
	f := previewFlags{
		cluster: m.flags.cluster.within(d.Namespace), targets: targetFlags{selector: d.Selector, all: d.All},
		cascade: d.Cascade, released: d.AssumeReleased, address: m.flags.address, most: m.flags.deletion.most,
		backup: backupFlags{key: m.flags.deletion.backupKey, without: m.flags.deletion.without},
	}
	if f.cascade == "" {
		f.cascade = "background"
	}
	return f
}

// Preview implements mcpserver.Cluster.
func (m *mcpCluster) Preview(ctx context.Context, d mcpserver.Deletion) (report preview.Report, notes string, err error) {
	f := m.previewFlags(d)
	if err := f.targets.check(d.Args(), false); err != nil {
		return report, "", usageError{err}
	}
	s, _, said := recorded()
	predicted, err := f.predict(ctx, d.Args(), s)
	return predicted.report, said.String(), err
}

// Delete implements mcpserver.Cluster.
func (m *mcpCluster) Delete(ctx context.Context, d mcpserver.Deletion, digest string) (deleted mcpserver.Deleted, err error) {
	if !m.flags.deletion.allowed {
		return deleted, errors.New("nothing is deleted: the server was started without --allow-delete")
	}
	f := m.previewFlags(d)
	if err := f.targets.check(d.Args(), false); err != nil {
		return deleted, usageError{err}
	}
	if dir := m.flags.deletion.backupDir; dir != "" {
		if err := checkBackups(dir); err != nil {
			return deleted, fmt.Errorf("nothing is deleted: %w", err)
		}
		deleted.Backup = fmt.Sprintf("%s-%.12s.backup", time.Now().UTC().Format("20060102-150405.000000"), digest)
		f.backup.file = filepath.Join(dir, deleted.Backup)
	}
	f.patience = restore.WhilePutOff(busyTimeout).Until(m.patientUntil())
	s, out, notes := recorded()
	predicted, err := deletePreviewed(ctx, &f, preview.Report{Digest: digest}, d.Args(), s)
	deleted.Report, deleted.Lines, deleted.Notes = predicted.report, out.String(), notes.String()
	deleted.IsInDoubt = errors.Is(err, errUnanswered)
	return deleted, err
}

// patientUntil returns when a call that begins now stops asking a busy server again.
func (*mcpCluster) patientUntil() time.Time { return clock.RealClock{}.Now().Add(agentBusyTimeout) }

// checkBackups returns an error if the backups in a directory take too many bytes.
func checkBackups(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("read --backup-dir: %w", err)
	}
	total := int64(0)
	for _, e := range entries {
		if info, err := e.Info(); err == nil { // else it was removed
			total += info.Size()
		}
	}
	if total >= mostBackups {
		return fmt.Errorf("the backups in %s have %d bytes, the most is %d: a person has to remove old ones", dir, total, int64(mostBackups))
	}
	return nil
}

// Undo implements mcpserver.Cluster.
func (m *mcpCluster) Undo(ctx context.Context, r mcpserver.Restoration) (report undo.Report, notes string, err error) {
	if !m.flags.deletion.allowed {
		return report, "", errors.New("nothing is restored: the server was started without --allow-delete")
	}
	f := undoFlags{cluster: m.flags.cluster.within(r.Namespace), key: m.flags.deletion.backupKey, dryRun: r.DryRun, until: m.patientUntil()}
	s, _, said := recorded()
	from, err := m.kept(ctx, &f, r, s)
	if err != nil {
		return report, said.String(), err
	}
	if most := m.flags.deletion.most; most > 0 && len(from.Kept) > most {
		return report, said.String(), foundError{fmt.Errorf("nothing is restored: the deletion has %d objects, more than the %d of --max", len(from.Kept), most)}
	}
	report, err = f.restore(ctx, from, s)
	sayLacking(s.Err, undo.LacksHeading, report.Lacks)
	return report, said.String(), err
}

// kept returns the objects to create again. A backup is a file in --backup-dir, whatever path an agent names.
func (m *mcpCluster) kept(ctx context.Context, f *undoFlags, r mcpserver.Restoration, s Streams) (backup.Content, error) {
	if r.Deletion != "" {
		kept, unread, err := f.fromBin(ctx, r.Deletion)
		printUnread(s.Err, unread)
		return backup.Content{Kept: kept}, err
	}
	dir := m.flags.deletion.backupDir
	if dir == "" {
		return backup.Content{}, errors.New("there are no backups: the server was started without --backup-dir")
	}
	if filepath.Base(r.Backup) != r.Backup || !filepath.IsLocal(r.Backup) {
		return backup.Content{}, errors.New("a backup has a name without a path: the answer of the tool delete has it")
	}
	return readBackup(filepath.Join(dir, r.Backup), f.key)
}
