package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
)

// suite is a test suite of another project that uses envtest.
type suite struct {
	name, kind string
	source     source
	// packages are patterns of packages; of these, the ones whose tests use envtest are run.
	packages []string
	// directories maps environment variables that the suite expects to directories of modules that it
	// requires.
	directories map[string]moduleDirectory
	// copies maps directories of the suite, which its Makefile copies from modules that it requires, to these.
	copies map[string]moduleDirectory
	// omitted names the tests that are not run, and the reason; empty if all are run.
	omitted string
	// explained has the reason why tests fail only with our assets, by a part of their names.
	explained map[string]string
}

// source is the source of a suite's code: a module of the module proxy or a commit of a repository. A
// commit is for a directory that module zips leave out, and for tests between two releases.
type source struct {
	module, version string
	repository, dir string
}

// moduleDirectory is a directory in a module.
type moduleDirectory struct{ module, dir string }

// expectsADelay is the reason why a test fails at times if the server is fast.
const expectsADelay = "the test expects that a cache which has just started has not synced, which a fast server proves wrong at times"

// racesItself is the reason why tests that delete a worker pod sometimes fail, on either side.
const racesItself = "the test deletes a worker pod and expects the leader pod to follow, which the suite's controllers may miss: " +
	"that fails with upstream's assets at times, too"

// writesOnce is the reason why a test that removes all conditions fails at times.
const writesOnce = "the test tries once to write the status, and gets a conflict if the suite's controller has written it since the test read it"

// racesTheList is the reason why tests that list StatefulSets while their controller writes pass with kube-apiserver: it answers a
// list from a cache, which first waits until etcd reports its progress, every 100 ms.
const racesTheList = "the test lists StatefulSets and copies a revision that the suite's controller is about to write, so it passes if the list is slow: " +
	"kube-apiserver with --watch-cache-sizes=statefulsets.apps#0 fails it, too"

// suites are the suites that are run.
func suites() []suite {
	return []suite{{
		name: "controller-runtime", kind: "the library of operators, and envtest itself",
		source:    source{module: "sigs.k8s.io/controller-runtime", version: "v0.25.2"},
		packages:  []string{"./..."},
		explained: map[string]string{"should allow for get informer to be cancelled": expectsADelay},
	}, {
		name: "cert-controller", kind: "a controller of webhooks' certificates",
		source:   source{module: "github.com/open-policy-agent/cert-controller", version: "v0.16.0"},
		packages: []string{"./..."},
	}, {
		name: "cronjob-tutorial", kind: "the operator of kubebuilder's tutorial",
		source: source{
			repository: "https://github.com/kubernetes-sigs/kubebuilder", version: "5c400728930120dd385712db61cb0a937238ce81",
			dir: "docs/book/src/cronjob-tutorial/testdata/project",
		},
		packages: []string{"./internal/..."},
	}, {
		name: "leaderworkerset", kind: "a workload of groups of pods: its controllers and its webhooks",
		source:   source{module: "sigs.k8s.io/lws", version: "v0.8.0"},
		packages: []string{"./test/integration/..."},
		explained: map[string]string{
			"RecreateGroupOnPodRestart": racesItself, "RecreateGroupAfterStart": racesItself,
			"Test default progressing state":                writesOnce,
			"resize should update the size of the replicas": racesTheList, "worker template and number of replicas changed": racesTheList,
		},
	}, {
		name: "jobset", kind: "a workload of Jobs: its controllers and its webhooks",
		source:   source{module: "sigs.k8s.io/jobset", version: "v0.12.0"},
		packages: []string{"./test/integration/..."},
		explained: map[string]string{
			"rejects updates to parallelism and completions": "the suite has no webhook that would reject the update: the test passes only if the suite's controller writes between its GET and its PUT",
		},
	}, {
		name: "trust-manager", kind: "a controller that distributes certificates to all namespaces",
		source:   source{module: "github.com/cert-manager/trust-manager", version: "v0.25.0"},
		packages: []string{"./..."},
	}, {
		name: "approver-policy", kind: "an approver of requests, by policies and the rights of the requesting user",
		source:      source{module: "github.com/cert-manager/approver-policy", version: "v0.28.0"},
		packages:    []string{"./..."},
		directories: map[string]moduleDirectory{"CERT_MANAGER_CRDS": {"github.com/cert-manager/cert-manager", "deploy/crds"}},
	}, {
		name: "karpenter", kind: "an autoscaler of nodes",
		source:   source{module: "sigs.k8s.io/karpenter", version: "v1.14.1"},
		packages: []string{"./pkg/controllers/node/termination", "./pkg/controllers/nodeclaim/disruption", "./pkg/controllers/nodeclaim/lifecycle"},
		omitted:  "Of its packages with such tests, these three are run: node/termination, nodeclaim/disruption and nodeclaim/lifecycle.",
	}, {
		name: "kuberay", kind: "an operator of Ray clusters: its controllers and its webhooks",
		source:   source{module: "github.com/ray-project/kuberay/ray-operator", version: "v1.5.0"},
		packages: []string{"./controllers/...", "./pkg/..."},
	}, {
		name: "trainer", kind: "an operator of trainings, which it makes JobSets of: its controllers and its webhooks",
		source:   source{module: "github.com/kubeflow/trainer/v2", version: "v2.0.0"},
		packages: []string{"./test/integration/..."},
		copies: map[string]moduleDirectory{
			"manifests/external-crds/jobset-operator":   {"sigs.k8s.io/jobset", "config/components/crd/bases"},
			"manifests/external-crds/scheduler-plugins": {"sigs.k8s.io/scheduler-plugins", "manifests/coscheduling"},
		},
	}, {
		name: "kro", kind: "an operator that makes CustomResourceDefinitions of graphs of resources, and their controllers",
		source:   source{module: "github.com/kubernetes-sigs/kro", version: "v0.9.4"},
		packages: []string{"./test/integration/suites/..."},
	}, {
		name: "gatekeeper", kind: "a policy controller, which makes CustomResourceDefinitions and admission policies of templates",
		source:   source{module: "github.com/open-policy-agent/gatekeeper/v3", version: "v3.23.1"},
		packages: []string{"./pkg/controller/config", "./pkg/controller/syncset", "./pkg/readiness", "./pkg/watch"},
		omitted:  "Of its packages with such tests, these four are run: controller/config, controller/syncset, readiness and watch. Those of controller/constrainttemplate need a beta API of admission policies, which Kubernetes 1.37 no longer serves.",
	}}
}

// environment returns the variables that the suite, whose module is in dir, expects.
func (s suite) environment(ctx context.Context, dir string) ([]string, error) {
	var variables []string
	for _, name := range slices.Sorted(maps.Keys(s.directories)) {
		path, err := s.directories[name].path(ctx, dir)
		if err != nil {
			return nil, err
		}
		variables = append(variables, name+"="+path)
	}
	return variables, nil
}

// complete copies the directories of other modules into dir, which has the suite's module.
func (s suite) complete(ctx context.Context, dir string) error {
	for to, from := range s.copies {
		path, err := from.path(ctx, dir)
		if err != nil {
			return err
		}
		if err := os.CopyFS(filepath.Join(dir, to), os.DirFS(path)); err != nil {
			return fmt.Errorf("copy %s of %s: %w", from.dir, from.module, err)
		}
	}
	return nil
}

// path returns the directory in the version that the module in dir requires.
func (d moduleDirectory) path(ctx context.Context, dir string) (string, error) {
	download := exec.CommandContext(ctx, "go", "mod", "download", "-json", d.module)
	download.Dir, download.Env, download.Stderr = dir, append(os.Environ(), "GOWORK=off"), os.Stderr
	output, err := download.Output()
	if err != nil {
		return "", fmt.Errorf("download %s: %w", d.module, err)
	}
	var got struct{ Dir string }
	if err := json.Unmarshal(output, &got); err != nil {
		return "", fmt.Errorf("find %s: %w", d.module, err)
	}
	return filepath.Join(got.Dir, d.dir), nil
}

// fetch copies the code to a writable directory, and returns the directory of the module and its
// version.
func (s source) fetch(ctx context.Context, to string) (dir, version string, err error) {
	if s.repository != "" {
		return s.checkout(ctx, to)
	}
	download := exec.CommandContext(ctx, "go", "mod", "download", "-json", s.module+"@"+s.version)
	download.Dir, download.Env = os.TempDir(), append(os.Environ(), "GOWORK=off")
	output, failure := download.Output()
	var got struct{ Dir, Version, Error string }
	if err := json.Unmarshal(output, &got); err != nil {
		return "", "", fmt.Errorf("download %s: %w", s.module, failure)
	}
	if got.Error != "" {
		return "", "", fmt.Errorf("download %s: %s", s.module, got.Error)
	}
	if err := os.CopyFS(to, os.DirFS(got.Dir)); err != nil {
		return "", "", fmt.Errorf("copy %s: %w", s.module, err)
	}
	return to, got.Version, makeWritable(to)
}

// checkout makes a work tree of the module at the commit, without the site of its documentation.
func (s source) checkout(ctx context.Context, to string) (dir, version string, err error) {
	patterns := []string{"/*", "!/site/"}
	if s.dir != "" {
		patterns = []string{"/" + s.dir + "/"}
	}
	for _, arguments := range [][]string{
		{"clone", "--quiet", "--filter=blob:none", "--no-checkout", s.repository, to},
		append([]string{"-C", to, "sparse-checkout", "set", "--no-cone"}, patterns...),
		{"-C", to, "checkout", "--quiet", s.version},
	} {
		if output, err := exec.CommandContext(ctx, "git", arguments...).CombinedOutput(); err != nil {
			return "", "", fmt.Errorf("git %s: %w\n%s", arguments, err, output)
		}
	}
	const abbreviated = 12
	return filepath.Join(to, s.dir), s.version[:abbreviated], nil
}

// makeWritable makes files writable for their owner, as in a work tree; files of the module cache are
// read-only.
func makeWritable(root string) error {
	return filepath.WalkDir(root, func(path string, entry os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		return os.Chmod(path, info.Mode().Perm()|0o200)
	})
}

// testPackage is a package with tests that start a control plane.
type testPackage struct {
	path, dir, binary string
	ginkgo            bool
}

const (
	envtestPackage = "sigs.k8s.io/controller-runtime/pkg/envtest"
	ginkgoPackage  = "github.com/onsi/ginkgo/v2"
)

// packagesOf returns the packages of a module that match the patterns and whose tests use envtest.
func packagesOf(ctx context.Context, dir string, patterns []string) ([]testPackage, error) {
	list := exec.CommandContext(ctx, "go", append([]string{"list", "-test", "-json=ImportPath,Dir,Deps"}, patterns...)...)
	list.Dir, list.Stderr = dir, os.Stderr
	list.Env = append(os.Environ(), "GOWORK=off")
	output, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("list the packages: %w", err)
	}
	return parsePackages(output)
}

// compile compiles the tests of a package into a binary.
func (p *testPackage) compile(ctx context.Context, binary string) error {
	compile := exec.CommandContext(ctx, "go", "test", "-c", "-p=1", "-vet=off", "-o", binary, p.path)
	compile.Dir, compile.Env = p.dir, append(os.Environ(), "GOWORK=off")
	if output, err := compile.CombinedOutput(); err != nil {
		return fmt.Errorf("compile the tests of %s: %w\n%s", p.path, err, bytes.TrimSpace(output))
	}
	p.binary = binary
	return nil
}
