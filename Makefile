# make            what there is
# make check      the tests that CI runs; then lint today graphs race
.DEFAULT_GOAL := help

# A semantic version: that of the tag; after it, v0.1.0-5-gabc1234; before the first one, v0.0.0-….
VERSION    ?= $(shell git describe --tags --match 'v[0-9]*' --dirty 2>/dev/null || \
                (git rev-parse --short HEAD 2>/dev/null | sed 's/^/v0.0.0-g/') | grep . || echo devel)
LIBRARIES  := $(shell go list -m -f '{{.Version}}' k8s.io/apiserver)
KUBERNETES := $(LIBRARIES:v0.%=v1.%)
STAMP      := -X github.com/coppice-dev/coppice/internal/tools/version.stamped=$(VERSION) \
              -X k8s.io/component-base/version.gitVersion=$(KUBERNETES)+coppice-$(patsubst v%,%,$(VERSION)) \
              -X k8s.io/component-base/version.gitTreeState=clean

.PHONY: help build quick steady test check lint race bench sim faults planted races races-webhook confirmations graphs exhaustive mutants today kubernetes conformance differential upstream replicas previews previews-kubernetes undos soak kills starts nodes pictures page suites upgrade-report libraries generate dist dist-serve module clusters first-build

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/'

build: ## one static binary, bin/coppice, with its version in it
	CGO_ENABLED=0 go build -trimpath -ldflags '-s -w $(STAMP)' -o bin/coppice ./cmd/coppice

BASE_URL ?= http://127.0.0.1:8451
IMAGE    ?= docker.io/library/coppice
TARGETS  ?=
dist: ## the files of a release, in dist (an hour on two cores, the first time): VERSION=v0.1.0 BASE_URL=https://… IMAGE=registry/name TARGETS=linux/amd64,…
	cd release && go run . -o ../dist -version '$(VERSION)' -kubernetes '$(KUBERNETES)' -ldflags '$(STAMP)' \
	  -base-url '$(BASE_URL)' -image '$(IMAGE)' -targets '$(TARGETS)' -epoch "$$(git log -1 --format=%ct)"

dist-serve: ## serve the files of dist at http://127.0.0.1:8451
	cd release && go run . -serve ../dist

module: ## the collector as a Go module, in bin/module, for GOPROXY=file://…/bin/module: VERSION=v0.1.0 (a second)
	cd release && go run . -version '$(VERSION)' -module ../bin/module -epoch "$$(git log -1 --format=%ct)"

# Most rules need no more of Kubernetes than its metadata; those that need the types of pods and volumes take as long to
# compile as all others, and are tested by make test. go vet would compile nothing, but read everything below them; make
# check has it. The tables of debuggers and the C compiler would take a fifth of the time.
QUICK = $$(go list ./internal/rules/... | grep -vE '/rules/(builtin|inuse)$$')
quick: ## the tests of the rules, in half a minute on a machine that has compiled nothing before, in seconds after; prints how long they took
	@began=$$(date +%s); CGO_ENABLED=0 go test -vet=off -gcflags=all=-dwarf=false -ldflags='-s -w' $(QUICK) && echo "The rules hold; it took $$(($$(date +%s) - began)) s."

test: ## the tests
	go test -timeout 30m ./...

# Nested modules that have code: each is linted and tested on its own.
MODULES := bench coppicetest coppicetest/e2eframework coppicetest/fakes coppicetest/restconfig deploy release test/e2e/operator test/envtest test/page test/suites test/upstream
LINT    := $(CURDIR)/bin/golangci-lint

lint: ## golangci-lint, built from its module, in this module and the nested ones
	go build -modfile=tools/go.mod -o $(LINT) github.com/golangci/golangci-lint/v2/cmd/golangci-lint
	GOGC=400 $(LINT) run ./...
	for m in $(MODULES); do (cd $$m && GOGC=400 $(LINT) run --config $(CURDIR)/.golangci.yml ./...) || exit 1; done

# Two streams of tests run side by side, each a package at a time: many tests wait for other processes, so the two finish
# in two thirds of the time that they take one after the other, and each test shows that it holds beside other load.
#
# Everything is compiled with the flags of the binaries that are built on the way (make build, kube-apiserver), without
# cgo, which only the race detector needs: with others, the packages of Kubernetes were compiled twice. All analyzers of
# go vet are part of make lint, which takes types from compiled packages; go vet reads the source of each package that
# Kubernetes consists of, for each module again. The tables of debuggers are a third of the time that linking takes.
check lint today graphs race steady: export GOFLAGS += -trimpath -vet=off -ldflags=-s
check lint today graphs steady: export CGO_ENABLED := 0
check: ## the tests that CI runs first; make lint, today, graphs and race come after them
	@echo "CI checks, begun at $$(date)"
	go mod verify
	go mod tidy -diff
	go build ./...
	$(MAKE) --jobs=2 check-tests kubernetes check-modules
	@echo "CI checks, ended at $$(date)"

.PHONY: check-tests check-modules
check-tests:
	go test -p 1 -timeout 30m ./...

check-modules:
	for m in $(MODULES); do (cd $$m && go test -p 1 -timeout 20m ./...) || exit 1; done

# The race detector is left out where other processes do the work, or one goroutine does, as in the tables of objects of
# registry/builtin, and in pure packages, which may not import sync; and in test/conformance and test/differential, whose
# servers other packages race.
PURE = /internal/rules/|/internal/collect/(refused|story)$$|/internal/controller/quota$$|/internal/tools/(preview|explain|inventory|finalizerowner|cascade|undo)$$|/node/agent/lifecycle$$|/placement$$
UNRACED = /test/(e2e|containers|conformance|differential|structure)|/internal/testing/simulation|/registry/builtin|$(PURE)
race: ## the tests under the race detector, where goroutines of one process share something (half an hour: it compiles Kubernetes' packages for itself)
	CGO_ENABLED=1 go test -race -p 2 -timeout 30m $$(go list ./... | grep -vE '$(UNRACED)')

RUNS     ?= 20
PACKAGES ?=
RECORD   ?= $(CURDIR)/bin/steady.record
steady: ## run the tests of each package RUNS (20) times in a shuffled order, two packages at once, a quarter of the runs with the race detector, half beside two processes that burn the cores, half on one processor; prints each failure with its seeds, and tests that once take much longer (hours on two cores): PACKAGES=./internal/cli/... narrows it, and the file RECORD keeps how runs have ended, which are not made again until the tests or the product change
	@go run ./test/steady -runs=$(RUNS) -record='$(RECORD)' -unraced='$(UNRACED)' -modules='$(if $(PACKAGES),.,. $(MODULES))' $(PACKAGES)

today: ## build the simulator with each of the dozen planted bugs of the day; it must find them
	go test ./internal/testing/simulation -count=1 -v -run TestMutants -timeout 1h -sim.mutants=today

LEVEL ?= harsh
faults: ## the tests of coppicetest, and its collector, on a control plane with the faults of LEVEL (harsh) and of the seed SEED; then the control plane's own controllers with them: four minutes
	cd coppicetest && COPPICE_FAULTS='seed=$(SEED); $(LEVEL)' go test -count=1 -v .
	go test -count=1 -v -run 'TestControllersMeetFaults$$' ./internal/system -own.level=$(LEVEL) -own.seed=$(SEED)

PLANTED ?= 100
planted: ## an operator with each of 15 publicly reported bugs, until the faults of the level realistic show it; and PLANTED (100) runs without a bug, in which nothing may be found (a quarter of an hour)
	cd test/e2e/operator && go test -count=1 -timeout 8h -v ./planted -planted.all -planted.time=1m -planted.runs=$(PLANTED)

SEEDS    ?= 0
DURATION ?= 60s
sim: ## the simulator for DURATION (60s), or for SEEDS seeds
	go test ./internal/testing/simulation -count=1 -v -run TestSeeds -timeout 24h -sim.duration=$(DURATION) -sim.seeds=$(SEEDS)

RACES ?= 10000
races: ## RACES (10000) creations in an unused namespace, and as many of instances, each beside the deletion: exactly one succeeds
	COPPICE_TEST_RACES=$(RACES) go test ./internal/apiserver -count=1 -v -timeout 24h -run '^TestR28_CreationRacesDeletionOfUnused$$'

confirmations: ## 73 ways to delete more than may go unconfirmed, none of which succeeds, and 220 ordinary deletions, none of which is refused (half a minute)
	COPPICE_TEST_ORDINARY=20 go test ./internal/system -count=1 -v -run '^TestR32_'
	go test ./internal/rules/ownership -run '^$$' -bench '^BenchmarkClosure$$'

races-webhook: ## RACES (10000) creations of a user, each beside the deletion of an object in mode unused, on a real kube-apiserver with the webhook; prints how many deletions it has overlooked (minutes)
	cd bench && COPPICE_TEST_RACES=$(RACES) go run ./onkubernetes -dir .. go test ./test/conformance -count=1 -v -timeout 24h -run '^TestRacesOfTheWebhook$$'

graphs: ## all graphs of up to 4 objects, with a crash at every step of each (two minutes)
	go test ./internal/testing/simulation -count=1 -v -run 'TestGraphs$$' -timeout 1h -sim.objects=4

exhaustive: ## all graphs of 4 objects, and of 5 that have up to 6 references or only blocking ones, with 2 crashes each: an hour on two cores; tells each minute how far it is
	go test ./internal/testing/simulation -count=1 -v -run 'TestGraphs$$' -timeout 48h -sim.exhaustive

mutants: ## build the simulator with each planted bug; it must find them
	go test ./internal/testing/simulation -count=1 -v -run TestMutants -timeout 2h -sim.mutants=all

kubernetes: ## the conformance suite, the comparison of deletions and of a sample of whole objects, a sample of previews, coppice wait, and coppice conformance, against a real kube-apiserver, which is built first (8 minutes)
	cd bench && go run ./onkubernetes -dir .. go test -count=1 -run 'TestFreshServers$$' ./test/differential
	cd bench && go run ./onkubernetes -dir .. go test -count=1 -p 1 ./test/conformance ./test/differential
	$(MAKE) previews-kubernetes KUBERNETES_PREVIEWS=15
	cd bench && go run ./onkubernetes -upstream -dir .. go test -count=1 -run 'TestWait|TestDeleteWaits$$' ./test/e2e
	$(MAKE) conformance

conformance: build ## coppice conformance on a real kube-apiserver, with upstream's garbage collector and namespace controller: only what docs/semantics.md declares may differ (two minutes)
	cd bench && go run ./onkubernetes -upstream -dir .. bin/coppice conformance

SEED ?= $(shell date -u +%Y%m%d)
differential: ## the comparison of whole objects with a real kube-apiserver: every field of every kind, right and wrong, and the pairs of SEED, by default that of the day (three quarters of an hour)
	cd bench && COPPICE_TEST_OBJECTS=all COPPICE_TEST_SEED=$(SEED) go run ./onkubernetes -dir .. go test -count=1 -timeout 2h -v -run 'TestObjectsAreStoredAsUpstream$$' ./test/differential

upstream: ## the comparison of registries with upstream's, in one process: every field of every kind, right and wrong, and the pairs and the sample of SEED (two minutes)
	cd test/upstream && go test -count=1 -timeout 30m -v . -seed=$(SEED)

replicas: ## two control planes on three etcd members, each of the five killed in turn under load (a minute)
	go test ./test/e2e -count=1 -v -run 'TestKilledReplicasLoseNothing$$' -replicas.all

PREVIEWS ?= 1000
previews: ## PREVIEWS (1000) random cases whose deletions are predicted, made and compared, with policies and webhooks that refuse some, lost nodes, broken conversions and APIs that do not answer; and 60 deletions that are stuck or slow, explained (half an hour)
	go test ./test/e2e -count=1 -v -timeout 2h -run 'TestPreviewIsWhatHappens$$|TestExplanationNamesTheRefuser$$|TestSlowDeletionIsNotCalledStuck$$' -preview.cases=$(PREVIEWS) -preview.blind=$$(($(PREVIEWS) / 25))

KUBERNETES_PREVIEWS ?= 200
previews-kubernetes: ## the same on a real kube-apiserver, with upstream's garbage collectors, of objects and of pods, and namespace controller: KUBERNETES_PREVIEWS (200) cases (forty minutes)
	cd bench && go run ./onkubernetes -upstream -dir .. go test -count=1 -v -timeout 2h -run 'TestPreviewIsWhatHappens$$' ./test/e2e -preview.cases=$(KUBERNETES_PREVIEWS) -preview.blind=$$(($(KUBERNETES_PREVIEWS) / 25))

SOAK ?= 2h
soak: ## a control plane under work for SOAK (2h): churn, cascades, faults, clients that die, at first restarts; goroutines and open files must end where they were after the first ten minutes, and memory where it was after an hour, for which Events are kept
	go test ./test/e2e -count=1 -v -timeout 24h -run 'TestSoak$$' -soak=$(SOAK)

UNDOS ?= 1000
undos: ## UNDOS (1000) random cascades are deleted and undone, a third of them interrupted, and then 10000 objects at once (ten minutes); the seeds are printed
	go test ./test/e2e -count=1 -v -timeout 1h -run 'TestR29_RandomCascades$$|TestUndoScale$$' -undo.cases=$(UNDOS) -undo.objects=10000

KILLS ?= 100
kills: ## kill KILLS (100) test processes that have started a control plane with envtest: nothing may stay (ten minutes)
	cd test/envtest && go test -count=1 -v -timeout 1h -run '^TestKilled' -kills=$(KILLS)

STARTS    ?= 1000
ALONGSIDE ?= 32
starts: ## start STARTS (1000) control planes with envtest one by one, and ALONGSIDE (32) at once: none may fail; prints p50, p95, memory; with COPPICE_UPSTREAM_ASSETS=dir those of kube-apiserver and etcd in there, too
	cd test/envtest && go test -count=1 -v -timeout 3h -run '^(TestManyStartsWithoutAnError|TestControlPlanesCollectTheirOwnGarbage)$$' -starts=$(STARTS) -alongside=$(ALONGSIDE)

pictures: ## what docs/page.md shows, as Chromium draws it, into docs/page (half a minute)
	mkdir -p docs/page
	cd test/page && go test -count=1 -run '^TestPicturesAreWhatChromiumShows$$' . -pictures $(CURDIR)/docs/page

OBJECTS ?= 134000
page: ## the page in Chromium, beside a cluster of OBJECTS (134000) objects: prints delays, frames a second, and the first paint (five minutes)
	cd test/page && go test -count=1 -timeout 30m -v . -objects=$(OBJECTS)

SUITES ?=
CONTROLLERS ?=
LEVELS ?=
suites: build ## suites written elsewhere, as they are, with envtest: with upstream's assets and with ours, into docs/performance (half an hour, most of it compiles); SUITES="controller-runtime jobset" runs these only; CONTROLLERS="none gc,namespace" prints what passes with each COPPICE_CONTROLLERS, LEVELS="mild realistic" with the faults of each
	cd bench && go run ./suites -binary ../bin/coppice -o ../docs/performance -controllers "$(CONTROLLERS)" -faults "$(LEVELS)" $(SUITES)

SECTIONS ?=
bench: build ## every figure of README and docs, both sides, into docs/performance: an hour, and upstream's programs are built first; SECTIONS="start cascade" measures these only
	cd bench && go run . -binary ../bin/coppice -o ../docs/performance $(SECTIONS)

first-build: ## what a machine compiles that has compiled nothing before, into docs/performance (five minutes)
	cd bench && go run ./firstbuild -dir .. -o ../docs/performance/first-build.md

FROM ?=
upgrade-report: ## what changes from one minor of Kubernetes to another, into bin/upgrade.md: FROM=v1.36.3 KUBERNETES=v1.37.2 (seconds)
	mkdir -p bin
	cd bench && go run ./upgrade -from '$(FROM)' -to '$(KUBERNETES)' -findings ../test/differential/testdata/objects.txt -o ../bin/upgrade.md

# A library without such a version stays as it is: not all are published with an alpha. go mod tidy raises the go line
# where the libraries need a newer Go; in test/suites it would remove what the tests of the libraries need. The generator of
# the OpenAPI definitions has the version of k8s.io/kube-openapi that the libraries have. kwok keeps the libraries that
# it was released with: the benchmarks compare with it as it is.
MODULE_FILES = git ls-files '*go.mod' '*go.mod.txt' ':!bench/kwok'
libraries: ## the libraries of another release of Kubernetes, in all modules: KUBERNETES=v1.38.0 (two minutes)
	@for library in $$($(MODULE_FILES) | xargs grep -hoE 'k8s\.io/[a-z-]+ $(subst .,\.,$(LIBRARIES))( |$$)' | cut -d' ' -f1 | sort -u); do \
	  if (cd tools && go list -m $$library@$(KUBERNETES:v1.%=v0.%)); then \
	    $(MODULE_FILES) | xargs sed -E -i "s#(^|[^.])($$library) $(subst .,\.,$(LIBRARIES))( |\$$)#\1\2 $(KUBERNETES:v1.%=v0.%)\3#" || exit 1; \
	  else echo "$$library stays at $(LIBRARIES)"; fi; \
	done
	$(MODULE_FILES) | xargs sed -E -i '/k8s\.io\/kubernetes /s/ v1\.[^ ]+/ $(KUBERNETES)/'
	go mod tidy
	version=$$(go list -m -f '{{.Version}}' k8s.io/kube-openapi) && cd tools && go get k8s.io/kube-openapi@$$version
	for m in tools bench/kubernetes $(filter-out test/suites,$(MODULES)); do (cd $$m && go mod tidy) || exit 1; done

generate: ## the OpenAPI definitions
	go generate ./internal/apiserver/openapi

CLUSTERS ?= 100
KINDS    ?= 30
clusters: ## what CLUSTERS (100) clusters of 1000 objects and KINDS (30) kinds, collected by one process, take when nothing happens in them: memory, goroutines (half a minute)
	go test ./collector -count=1 -v -run 'TestManyClustersSleepInOneProcess$$' -timeout 30m -clusters=$(CLUSTERS) -clusters.kinds=$(KINDS)

PODS  ?= 20000
NODES ?= 1000
nodes: ## what PODS (20000) pods on NODES (1000) simulated nodes in one process take: time, memory (ten minutes)
	go test ./internal/system -count=1 -v -run 'TestCostOfManyNodesAndPods$$' -timeout 1h -scale.pods=$(PODS) -scale.nodes=$(NODES)
