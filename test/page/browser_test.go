// Package page opens the page in a browser: Chromium, without a window. The tests check what a user sees and does,
// and measure how long the user waits.
package page

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/coppice-dev/coppice/internal/testing/eventually"
	"github.com/coppice-dev/coppice/internal/tools/web/page"
)

// patience is how long a test waits for what must happen.
const patience = 30 * time.Second

// networkChanged is how Chromium ends requests that wait for a connection when an interface of this machine comes or
// goes, as beside test/containers. The page then requests the same again.
const networkChanged = "net::ERR_NETWORK_CHANGED"

// TestMain gives the tests a directory for temporary files, which ends with them: the browser leaves files there that it
// does not remove when it is killed, and the built binary is kept for all tests.
func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "coppice-page-*")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		if err := os.Setenv("TMPDIR", dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return m.Run()
	}())
}

// chromium returns the path of the browser. Its absence skips a test on a developer's machine, and fails it in CI,
// which installs what the tests need.
func chromium(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	if os.Getenv("CI") != "" {
		t.Fatal("chromium is missing, and CI is to install it (see .ci/run)")
	}
	t.Skip("chromium is missing")
	return ""
}

// tab is a tab of a browser, and what went wrong in it.
type tab struct {
	ctx    context.Context // which is what chromedp knows the browser by
	t      *testing.T
	server string

	mu       sync.Mutex
	problems []string // guarded by mu: messages of the console, violations of the policy
	asked    []string // guarded by mu: the addresses of all requests
}

// newTab opens a tab at the address of a server, of a given width. The test fails if the page has asked another
// server, or the console has an error, other than that an answer was an expected refusal.
func newTab(t *testing.T, server string, width, height int64, refusals ...int) *tab {
	t.Helper()
	options := slices.Concat(chromedp.DefaultExecAllocatorOptions[:], []chromedp.ExecAllocatorOption{
		chromedp.ExecPath(chromium(t)), chromedp.NoSandbox, chromedp.UserDataDir(t.TempDir()), chromedp.WindowSize(int(width), int(height)),
	})
	allocator, stop := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(stop)
	ctx, leave := chromedp.NewContext(allocator)
	t.Cleanup(leave)
	b := &tab{ctx: ctx, t: t, server: server}
	b.do(chromedp.EmulateViewport(width, height))
	if err := chromedp.Listen(ctx, func(event any) {
		b.mu.Lock()
		defer b.mu.Unlock()
		switch e := event.(type) {
		case *network.EventRequestWillBeSent:
			b.asked = append(b.asked, e.Request.URL)
		case *cdplog.EventEntryAdded:
			b.problems = append(b.problems, e.Entry.Text+" "+e.Entry.URL)
		case *runtime.EventExceptionThrown:
			b.problems = append(b.problems, e.ExceptionDetails.Text+" "+e.ExceptionDetails.Exception.Description)
		}
	}); err != nil {
		t.Fatal(err)
	}
	call(b, network.Enable, network.EnableParams{})
	call(b, cdplog.Enable, cdp.Empty{})
	t.Cleanup(func() { b.check(refusals) })
	return b
}

// check reports what went wrong.
func (b *tab) check(refusals []int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, problem := range b.problems {
		isExpected := slices.ContainsFunc(refusals, func(code int) bool { return strings.Contains(problem, fmt.Sprintf("status of %d", code)) }) ||
			// An object may be gone before the page asks for its explanation (explainHolds).
			strings.Contains(problem, "status of 404") && strings.Contains(problem, "/coppice/v1/explain?uid=") ||
			strings.Contains(problem, networkChanged)
		if !isExpected {
			b.t.Errorf("console: %s", problem)
		}
	}
	own, err := url.Parse(b.server)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, asked := range b.asked {
		if to, err := url.Parse(asked); err != nil || to.Host != own.Host && to.Scheme != "data" && to.Scheme != "blob" {
			b.t.Errorf("the page asks %s", asked)
		}
	}
}

// forgive forgets the problems with a text, which the test has caused.
func (b *tab) forgive(text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.problems = slices.DeleteFunc(b.problems, func(problem string) bool { return strings.Contains(problem, text) })
}

// do takes steps.
func (b *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	run(b, chromedp.Steps(steps...))
}

// run runs an action, which must succeed.
func run[T any](b *tab, action chromedp.Action[T]) T {
	b.t.Helper()
	value, err := attempt(b, action)
	if err != nil {
		b.t.Fatal(err)
	}
	return value
}

// attempt runs an action. The first one starts the browser, which lives as long as its context does: so patience is
// counted here.
func attempt[T any](b *tab, action chromedp.Action[T]) (T, error) {
	b.t.Helper()
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		value, err := chromedp.Run(b.ctx, action)
		done <- result{value, err}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-time.After(patience):
		b.t.Fatalf("the browser does not answer within %s", patience)
		panic("unreachable")
	}
}

// call runs a command of the protocol.
func call[P, R any](b *tab, command cdp.Command[P, R], params P) R {
	b.t.Helper()
	return run(b, func(ctx context.Context, t *chromedp.Target) (R, error) { return cdp.Call(ctx, t, command, params) })
}

// open goes to a view.
func (b *tab) open(view string) {
	b.t.Helper()
	b.visit(chromedp.Navigate(b.server + page.Root + "#/" + view))
}

// visit loads a page, as often as the network of this machine changes.
func (b *tab) visit(load chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	for {
		_, err := attempt(b, load)
		if err == nil {
			return
		}
		if !strings.Contains(err.Error(), networkChanged) {
			b.t.Fatal(err)
		}
	}
}

// click clicks in the middle of the first element of a selector, or of its first line, once a user can: it is in view,
// enabled, and nothing lies above it. One step of the page's script looks and clicks, so that the page cannot move the
// element in between, as it may between two commands of the protocol (what chromedp.Click sends).
func (b *tab) click(selector string) {
	b.t.Helper()
	b.until(fmt.Sprintf(`(() => {
		const wanted = document.querySelector(%q);
		if (!wanted || wanted.disabled) return false;
		wanted.scrollIntoView({block: "center", behavior: "instant"});
		const box = wanted.getClientRects()[0] ?? wanted.getBoundingClientRect();
		const hit = document.elementFromPoint(box.left + box.width / 2, box.top + box.height / 2);
		if (!hit || !wanted.contains(hit)) return false;
		hit.dispatchEvent(new MouseEvent("click", {bubbles: true, cancelable: true, view: window}));
		return true;
	})()`, selector))
}

// eval evaluates an expression, which may be a promise.
func eval[T any](b *tab, expression string) T {
	b.t.Helper()
	return run(b, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
}

// until waits until an expression is true. An error counts as false: the page may be loading again.
func (b *tab) until(expression string) {
	b.t.Helper()
	eventually.Agrees(b.t, func() string {
		says, err := attempt(b, chromedp.Evaluate[string](
			"("+expression+") ? '' : 'not true; the page says: ' + document.body.innerText", chromedp.EvalAwaitPromise))
		if err != nil {
			says = err.Error()
		}
		if says == "" {
			return ""
		}
		return expression + ": " + says
	})
}

// untilText waits until the page shows a text.
func (b *tab) untilText(text string) {
	b.t.Helper()
	b.until(fmt.Sprintf(`document.body.innerText.replace(/[\u202f\u00a0]/g, " ").includes(%q)`, text))
}

// serve serves the page, and answers.
func serve(t *testing.T, answers http.Handler) string {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle(page.Root, page.Handler())
	mux.Handle("/coppice/v1/", answers)
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server.URL
}

// axe returns the script that checks accessibility, which npm installs once.
var axe = sync.OnceValues(func() (string, error) {
	dir := filepath.Join(os.TempDir(), "axe")
	if err := os.CopyFS(dir, os.DirFS("axe")); err != nil {
		return "", err
	}
	install := exec.Command("npm", "ci", "--ignore-scripts")
	install.Dir = dir
	if output, err := install.CombinedOutput(); err != nil {
		return "", fmt.Errorf("npm ci: %w\n%s", err, output)
	}
	script, err := os.ReadFile(filepath.Join(dir, "node_modules", "axe-core", "axe.min.js"))
	return string(script), err
})

// accessible fails the test if axe finds a violation.
func (b *tab) accessible() {
	b.t.Helper()
	script, err := axe()
	if err != nil {
		if _, missing := exec.LookPath("npm"); missing != nil && os.Getenv("CI") == "" {
			b.t.Skip("npm is missing")
		}
		b.t.Fatal(err)
	}
	eval[int](b, script+";0")
	found := eval[[]string](b, `axe.run().then((r) => r.violations.map((v) => v.id + ": " + v.help + ": " + v.nodes.map((n) => n.html.slice(0, 300) + " " + (n.any[0]?.message ?? "")).join(" | ")))`)
	for _, violation := range found {
		b.t.Error(violation)
	}
}
