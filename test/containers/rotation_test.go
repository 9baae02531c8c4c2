package containers

import (
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// TestLogsRotateWhileTheyAreFollowed: the log of a container that writes much begins anew while it writes, and who follows it
// misses nothing.
func TestLogsRotateWhileTheyAreFollowed(t *testing.T) {
	t.Parallel()
	p, _ := sharedPlane(t)
	s := newStory(t, p)
	// Again and again 64 Ki lines, which take 3.5 MB of the log, and a number.
	script := `trap 'exit 0' TERM; cd /tmp; echo 0123456789abcde > part
		for i in 1 2 3 4 5 6 7 8; do cat part part part part > more; mv more part; done
		i=0; touch /out/up
		while :; do i=$((i+1)); cat part; echo "number $i"; sleep 0.5; done`
	s.create(corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Command: shell(script)}}})
	p.eventuallyReady(t, s.name)
	s.mark("up")
	// oldest returns the time of the oldest line that `kubectl logs` shows.
	oldest := func() string { return p.run(t, "logs", "--timestamps", "--limit-bytes=30", s.name) }
	before := oldest()
	lines, end := s.begin(client{program: []string{"kubectl"}}, "", "logs", "-f", "--tail=1", s.name)
	defer end()

	last, rotated := 0, 0 // the number read last, and the first one after a rotation
	for deadline := time.Now().Add(patience); rotated == 0 || last <= rotated; {
		line, err := lines.ReadString('\n')
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("logs -f, after number %d: %q, %v", last, line, err)
		}
		text, isNumber := strings.CutPrefix(strings.TrimSpace(line), "number ")
		if !isNumber {
			continue
		}
		n, err := strconv.Atoi(text)
		if err != nil || last != 0 && n != last+1 {
			t.Fatalf("logs -f: after number %d came %q, %v", last, line, err)
		}
		if last = n; rotated == 0 && oldest() != before {
			rotated = n
		}
	}
	p.run(t, "delete", "pod", s.name)
}
