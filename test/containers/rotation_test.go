package containers

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

// TestRotation: the log of a container that writes much begins anew, and who follows it misses
// nothing of what comes then.
func TestRotation(t *testing.T) {
	p, _ := sharedPlane(t)
	s := newStory(t, p)
	// Eleven times a megabyte.
	script := `trap 'exit 0' TERM; cd /tmp; echo 0123456789abcde > part; for i in a b c d; do cat part part part part part part part part > more; mv more part; done
		for i in a b c d; do cat part part > more; mv more part; done
		for i in 1 2 3 4 5 6 7 8 9 10 11; do cat part; done; touch /out/up
		while [ ! -e /out/go ]; do sleep 0.1; done; echo after; ` + idle
	s.create(corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Command: shell(script)}}})
	p.eventuallyReady(t, s.name)
	s.mark("up")
	lines, end := s.begin(nil, "", "logs", "-f", "--tail=1", s.name)
	defer end()
	if line, err := lines.ReadString('\n'); err != nil || line != "0123456789abcde\n" {
		t.Errorf("logs -f: %q, %v", line, err)
	}
	eventually.Agrees(t, func() string {
		if got := p.run(t, "logs", s.name); len(got) > 0 {
			return fmt.Sprintf("the log has %d bytes still", len(got))
		}
		return ""
	})
	if err := os.WriteFile(filepath.Join(s.out, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if line, err := lines.ReadString('\n'); err != nil || line != "after\n" {
		t.Errorf("logs -f after the rotation: %q, %v", line, err)
	}
	if got := p.run(t, "logs", s.name); strings.TrimSpace(got) != "after" {
		t.Errorf("logs after the rotation: %d bytes", len(got))
	}
	p.run(t, "delete", "pod", s.name)
}
