package simulation

import (
	"os"
	"runtime/debug"
	"testing"
)

// scaled is n, or a tenth of it when there is little time.
func scaled(n int) int {
	if underRace || testing.Short() {
		return n / 10
	}
	return n
}

func TestMain(m *testing.M) {
	debug.SetGCPercent(400) // clusters are small, and there are millions
	os.Exit(m.Run())
}
