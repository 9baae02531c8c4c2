package translations_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	_ "k8s.io/kubectl/pkg/cmd/options" // a package with translated variables
	"k8s.io/kubectl/pkg/util/i18n"

	_ "github.com/coppice-dev/coppice/internal/cli/translations"
)

const english = "Display one or many resources"

// TestMain prints a text of kubectl if the test binary is called with a command.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && !strings.HasPrefix(os.Args[1], "-") {
		fmt.Println(i18n.T(english))
		return
	}
	os.Exit(m.Run())
}

// A control plane loads no translations, not even before main. Other commands load them.
func TestNotTranslated(t *testing.T) {
	for command, translated := range map[string]bool{"up": false, "kubectl": true} {
		process := exec.CommandContext(t.Context(), os.Args[0], command)
		process.Env = append(os.Environ(), "LC_ALL=de_DE.UTF-8")
		out, err := process.Output()
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.TrimSpace(string(out)) != english; got != translated {
			t.Errorf("%s prints %q", command, out)
		}
	}
}
