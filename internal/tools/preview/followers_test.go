package preview_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/coppice-dev/coppice/internal/rules/protection"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
	"github.com/coppice-dev/coppice/internal/tools/preview"
)

// With a ServiceAccount go the Secrets with its tokens, and with a Service the Endpoints of its name, although they have no
// owner.
func TestControllersDeleteWhatFollows(t *testing.T) {
	lines := []string{
		"Namespace shop", "ServiceAccount robot", "Service web", "Secret token", "Secret any", "Secret former", "Secret password",
		"Endpoints ep", "Endpoints other", "Widget slice < ep",
	}
	tokens := []inventory.Token{
		{Secret: "token", Account: "robot", AccountUID: "robot"},
		{Secret: "any", Account: "robot"},
		{Secret: "former", Account: "robot", AccountUID: "another"},
		{Secret: "password", Account: "other"},
	}
	for name, test := range map[string]struct {
		requests []preview.Request
		instead  string // of a line
		idle     bool   // the controllers do not run
		want     []string
	}{
		"a ServiceAccount": {
			requests("Background", "robot"), "", false,
			[]string{"any Deleted by TokensController", "robot Deleted by User", "token Deleted by TokensController"},
		},
		"a ServiceAccount that waits": {
			requests("Background", "robot"), "ServiceAccount robot # example.com/hold", false,
			[]string{"robot Waiting by User for Finalizer example.com/hold[]"},
		},
		"a protected token": {
			requests("Background", "robot"), "Secret token always", false,
			[]string{"any Deleted by TokensController", "robot Deleted by User", "token Kept by owners [] protected"},
		},
		"a Service": {
			requests("Foreground", "web"), "", false,
			[]string{"ep Deleted by EndpointsController", "slice Deleted by Collector", "web Deleted by User"},
		},
		"a Service with Endpoints that nobody deletes": {
			requests("Background", "web"), "", true, []string{"web Deleted by User"},
		},
		"Endpoints that a user deletes, too": {
			requests("Background", "ep", "web"), "", false,
			[]string{"ep Deleted by User", "slice Deleted by Collector", "web Deleted by User"},
		},
		"the namespace": {
			requests("Background", "shop"), "", false,
			[]string{
				"any Deleted by NamespaceController", "ep Deleted by NamespaceController", "former Deleted by NamespaceController",
				"other Deleted by NamespaceController", "password Deleted by NamespaceController", "robot Deleted by NamespaceController",
				"shop Deleted by User", "slice Deleted by NamespaceController", "token Deleted by NamespaceController", "web Deleted by NamespaceController",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			all := slices.Clone(lines)
			if test.instead != "" {
				all[slices.IndexFunc(all, func(line string) bool { return strings.HasPrefix(test.instead, line) })] = test.instead
			}
			inv := cluster(t, all...)
			inv.Object("ep").Name = "web"
			for n := range inv.Object("slice").Owners {
				inv.Object("slice").Owners[n].Name = "web"
			}
			inv.Index()
			p := preview.New(inv).Predict(test.requests, preview.Options{
				Now: now(), Tokens: func(string) []inventory.Token { return tokens }, Follows: func() bool { return !test.idle },
				Protection: func(*inventory.Object) inventory.Fact[inventory.Protection] {
					return inventory.Fact[inventory.Protection]{Value: inventory.Protection{Protection: protection.New(string(protection.Always), ""), Enforced: true}}
				},
			})
			if got := told(p); !slices.Equal(got, test.want) {
				t.Errorf("got  %q\nwant %q", got, test.want)
			}
			counted := 0
			for _, o := range p.Outcomes {
				if o.Fate != preview.Kept && o.By != preview.ByTokensController && o.By != preview.ByEndpointsController {
					counted++
				}
			}
			if c := p.Report(inv).Closure(protection.Limits{}); c.Objects != counted {
				t.Errorf("the server counts %d objects, want %d", c.Objects, counted)
			}
		})
	}
}
