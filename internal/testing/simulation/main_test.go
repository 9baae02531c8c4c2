package simulation

import (
	"os"
	"runtime/debug"
	"testing"
)

// scaled returns n, or a tenth of it in short mode.
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
