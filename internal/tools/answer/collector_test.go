package answer

import (
	"testing"

	"github.com/coppice-dev/coppice/collector/report"
)

// A status has the details of a thousand refused objects at most: then the collector does not tell of each object whether
// it is refused.
func TestMoreRefusedObjectsThanInTheStatus(t *testing.T) {
	status := report.Status{Refused: []report.RefusedObject{{UID: "a"}, {UID: "b"}}, RefusedCounts: []report.RefusedCount{{Kind: "Pod", Objects: 1}, {Kind: "Secret", Objects: 1}}}
	if c := CollectorOf("here", &status); c.MoreRefused || len(c.Refused) != 2 {
		t.Errorf("%+v", c)
	}
	status.RefusedCounts[0].Objects++
	if c := CollectorOf("here", &status); !c.MoreRefused {
		t.Errorf("%+v", c)
	}
}
