package main

import (
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestActionFollowsTheRules of the services that read it, which report a mistake only when a job runs.
func TestActionFollowsTheRules(t *testing.T) {
	text := read(t, actionFile)
	a := readAction(t)
	if a.Name == "" || a.Description == "" || a.Runs.Using != "composite" || len(a.Runs.Steps) == 0 {
		t.Errorf("the action is %+v", a)
	}
	for name, input := range a.Inputs {
		if input.Description == "" || input.Default == nil {
			t.Errorf("input %s has no description or no default", name)
		}
		if !strings.Contains(text, "inputs."+name) {
			t.Errorf("input %s is not used", name)
		}
	}
	before := map[string]step{}
	for _, s := range a.Runs.Steps {
		if s.Shell != "bash" || s.Run == "" || s.Name == "" {
			t.Errorf("step %q has the shell %q and the script %q", s.Name, s.Shell, s.Run)
		}
		if strings.Contains(s.Run, "${{") {
			t.Errorf("step %q has an expression in its script, where a value would be code", s.Name)
		}
		for _, expression := range append(expressionsOf(s.Env), s.If) {
			checkReferences(t, expression, a, before)
		}
		before[s.ID] = s
	}
	for name, output := range a.Outputs {
		if output.Description == "" || !expressionPattern.MatchString(output.Value) {
			t.Errorf("output %s is %+v", name, output)
		}
		checkReferences(t, output.Value, a, before)
	}
}

var (
	inputReference  = regexp.MustCompile(`inputs\.([\w-]+)`)
	outputReference = regexp.MustCompile(`steps\.([\w-]+)\.outputs\.([\w-]+)`)
)

// checkReferences checks that an expression names inputs that there are, and outputs of steps before
// it, whose scripts set them.
func checkReferences(t *testing.T, expression string, a action, before map[string]step) {
	t.Helper()
	for _, reference := range inputReference.FindAllStringSubmatch(expression, -1) {
		if _, ok := a.Inputs[reference[1]]; !ok {
			t.Errorf("%q: there is no input %s", expression, reference[1])
		}
	}
	for _, reference := range outputReference.FindAllStringSubmatch(expression, -1) {
		if !strings.Contains(before[reference[1]].Run, `echo "`+reference[2]+"=") {
			t.Errorf("%q: no step %s before sets %s", expression, reference[1], reference[2])
		}
	}
}

func expressionsOf(env map[string]string) []string {
	var all []string
	for _, value := range env {
		all = append(all, value)
	}
	return all
}

// TestActionInstallsARelease: with a checksum and without, the steps that follow have the program.
func TestActionInstallsARelease(t *testing.T) {
	sum := fmt.Sprintf("%x", sha256.Sum256([]byte(read(t, filepath.Join(made.dir, "install.sh")))))
	for name, checksum := range map[string]string{"with a checksum": sum, "without": ""} {
		t.Run(name, func(t *testing.T) {
			j := newJob(t)
			outputs, out, err := j.use(map[string]string{"base-url": made.server.URL, "checksum": checksum})
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			if said, err := j.run("coppice version"); err != nil || said != "coppice version\n" {
				t.Errorf("the step that follows says %q: %v", said, err)
			}
			if said, err := j.run("echo $KUBEBUILDER_ASSETS-$KUBECONFIG"); err != nil || said != outputs["assets"]+"-\n" {
				t.Errorf("the variables are %q, want %q: %v", said, outputs["assets"], err)
			}
			// The program in the place of Coppice prints its arguments.
			if want := "coppice assets --dir " + filepath.Join(j.temp, "coppice", "assets"); outputs["assets"] != want {
				t.Errorf("the assets are %q, want %q", outputs["assets"], want)
			}
			if said, err := j.run(`"` + outputs["binary"] + `" version`); err != nil || said != "coppice version\n" {
				t.Errorf("the binary %s says %q: %v", outputs["binary"], said, err)
			}
			if outputs["kubeconfig"]+outputs["pid"] != "" {
				t.Errorf("without start, the outputs are %v", outputs)
			}
		})
	}
}

// TestActionRefuses what is not the release, and what does not start: the job fails, and says why.
func TestActionRefuses(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "touch malice") }))
	defer other.Close()
	marker := filepath.Join(t.TempDir(), "executed")
	for name, test := range map[string]struct {
		inputs map[string]string
		want   string
	}{
		"not encrypted":  {map[string]string{"base-url": "http://example.com/coppice"}, "is not https"},
		"not a URL":      {map[string]string{"base-url": "$(touch " + marker + ")"}, "is not https"},
		"no release":     {map[string]string{"checksum": strings.Repeat("0", 64)}, "needs base-url"},
		"start":          {map[string]string{"start": "yes"}, "start is yes"},
		"other checksum": {map[string]string{"base-url": other.URL, "checksum": strings.Repeat("0", 64)}, "has the checksum"},
		"nothing there":  {map[string]string{"base-url": made.server.URL + "/v0"}, "404"},
		"ends at once":   {map[string]string{"base-url": made.server.URL, "start": "true", "arguments": "$(touch " + marker + ")"}, "is not ready"},
	} {
		t.Run(name, func(t *testing.T) {
			j := newJob(t)
			if _, out, err := j.use(test.inputs); err == nil || !strings.Contains(out, test.want) {
				t.Errorf("got %v and %q, want an error with %q", err, out, test.want)
			}
			for _, path := range []string{marker, filepath.Join(j.temp, "coppice", "malice")} {
				if _, err := os.Stat(path); err == nil {
					t.Errorf("%s was executed", path)
				}
			}
		})
	}
}

// TestActionStartsAControlPlane that is built from the source. The steps that follow delete with the
// kubectl of its assets, and check that the owned objects are gone.
func TestActionStartsAControlPlane(t *testing.T) {
	j := newJob(t)
	outputs, out, err := j.use(map[string]string{"start": "true", "arguments": "--nodes=2 --audit-log-path="})
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var pid int
	if _, err := fmt.Sscan(outputs["pid"], &pid); err != nil || pid <= 1 {
		t.Fatalf("the process is %q: %v", outputs["pid"], err)
	}
	plane, err := os.FindProcess(pid)
	if err != nil {
		t.Fatal(err)
	}
	stopped := false
	defer func() {
		if !stopped {
			_ = plane.Kill() // an error means that it has ended
		}
	}()
	said, err := j.run(`
		"$KUBEBUILDER_ASSETS/kubectl" create deployment web --image=registry.example/web --replicas=2
		coppice kubectl wait --for=condition=Available deployment/web --timeout=2m
		coppice kubectl get nodes -o name
		coppice kubectl delete deployment web --cascade=foreground --timeout=2m
		coppice kubectl get pods,replicasets -o name`)
	if want := "deployment.apps/web created\ndeployment.apps/web condition met\nnode/node-1\nnode/node-2\n" +
		"deployment.apps \"web\" deleted from default namespace\n"; err != nil || said != want {
		t.Errorf("the steps that follow say %q, want %q: %v", said, want, err)
	}
	if said, err := j.run(`echo "$KUBECONFIG"`); err != nil || said != outputs["kubeconfig"]+"\n" {
		t.Errorf("KUBECONFIG is %q, want %q: %v", said, outputs["kubeconfig"], err)
	}
	if err := plane.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	stopped = becomesAbsent(t, filepath.Dir(outputs["kubeconfig"]))
}

// becomesAbsent waits until a directory is gone, which a process removes last, and reports whether it
// is.
func becomesAbsent(t *testing.T, dir string) bool {
	t.Helper()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	deadline := time.After(3 * time.Minute)
	for {
		if _, err := os.Stat(dir); os.IsNotExist(err) {
			return true
		}
		select {
		case <-again.C:
		case <-deadline:
			t.Errorf("%s is still there", dir)
			return false
		}
	}
}
