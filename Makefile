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
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 21

build: ## one static binary, bin/coppice, with its version in it
	CGO_ENABLED=0 go build -trimpath -ldflags '-s -w $(STAMP)' -o bin/coppice ./cmd/coppice

BASE_URL ?= http://127.0.0.1:8451
IMAGE    ?= docker.io/library/coppice
TARGETS  ?=
dist: ## the files of a release, in dist (an hour): VERSION, BASE_URL, IMAGE, TARGETS=linux/amd64,…
	cd release && go run . -o ../dist -version '$(VERSION)' -kubernetes '$(KUBERNETES)' -ldflags '$(STAMP)' \
	  -base-url '$(BASE_URL)' -image '$(IMAGE)' -targets '$(TARGETS)' -epoch "$$(git log -1 --format=%ct)"

dist-serve: ## serve the files of dist at http://127.0.0.1:8451
	cd release && go run . -serve ../dist

module: ## the collector as a Go module, in bin/module, for GOPROXY=file://…/bin/module: VERSION
	cd release && go run . -version '$(VERSION)' -module ../bin/module -epoch "$$(git log -1 --format=%ct)"

# Most rules need no more of Kubernetes than its metadata; those that need the types of pods and volumes take as long to
# compile as all others, and are tested by make test. go vet would compile nothing, but read everything below them; make
# check has it. The tables of debuggers and the C compiler would take a fifth of the time.
QUICK = $$(go list ./internal/rules/... | grep -vE '/rules/(builtin|inuse)$$')
quick: ## the tests of the rules, in half a minute where nothing is compiled, then in seconds
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
# in two thirds of the time that they take one after the other, and each test shows that it holds beside other load. The
# modules that compile most come last, in whichever stream is free first, so that both end at about the same time.
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
	$(MAKE) --jobs=2 check-tests kubernetes check-modules check-compiled
	@echo "CI checks, ended at $$(date)"

.PHONY: check-tests check-modules check-compiled
check-tests:
	go test -p 1 -timeout 30m ./...

COMPILED := test/suites test/upstream
check-modules:
	for m in $(filter-out $(COMPILED),$(MODULES)); do (cd $$m && go test -p 1 -timeout 20m ./...) || exit 1; done

check-compiled:
	for m in $(COMPILED); do (cd $$m && go test -p 1 -timeout 20m ./...) || exit 1; done

# The race detector is left out where other processes do the work, or one goroutine does, as in the tables of objects of
# registry/builtin, and in pure packages, which may not import sync; and in test/conformance and test/differential, whose
# servers other packages race.
PURE = /internal/rules/|/internal/collect/(refused|story)$$|/internal/controller/quota$$|/internal/tools/(preview|explain|inventory|finalizerowner|cascade|undo)$$|/node/agent/lifecycle$$|/placement$$
UNRACED = /test/(e2e|containers|conformance|differential|structure)|/internal/testing/simulation|/registry/builtin|$(PURE)
race: ## the tests under the race detector, where goroutines share something (half an hour)
	CGO_ENABLED=1 go test -race -p 2 -timeout 30m $$(go list ./... | grep -vE '$(UNRACED)')

RUNS     ?= 20
PACKAGES ?=
RECORD   ?= $(CURDIR)/bin/steady.record
steady: ## the tests of each package RUNS (20) times, in every order and under load (hours): PACKAGES, RECORD
	@go run ./test/steady -runs=$(RUNS) -record='$(RECORD)' -unraced='$(UNRACED)' -modules='$(if $(PACKAGES),.,. $(MODULES))' $(PACKAGES)

today: ## the simulator with each of the dozen planted bugs of the day, which it must find
	go test ./internal/testing/simulation -count=1 -v -run TestMutants -timeout 1h -sim.mutants=today

LEVEL ?= harsh
faults: ## coppicetest, and the controllers, with the faults of LEVEL (harsh) and SEED (four minutes)
	cd coppicetest && COPPICE_FAULTS='seed=$(SEED); $(LEVEL)' go test -count=1 -v .
	go test -count=1 -v -run 'TestControllersMeetFaults$$' ./internal/system -own.level=$(LEVEL) -own.seed=$(SEED)

PLANTED ?= 100
planted: ## an operator with 15 known bugs, until faults show each; PLANTED (100) runs without (15 minutes)
	cd test/e2e/operator && go test -count=1 -timeout 8h -v ./planted -planted.all -planted.time=1m -planted.runs=$(PLANTED)

SEEDS    ?= 0
DURATION ?= 60s
sim: ## the simulator for DURATION (60s), or for SEEDS seeds
	go test ./internal/testing/simulation -count=1 -v -run TestSeeds -timeout 24h -sim.duration=$(DURATION) -sim.seeds=$(SEEDS)

RACES ?= 10000
races: ## RACES (10000) creations in a namespace, or of a kind, beside its deletion: one of both succeeds
	COPPICE_TEST_RACES=$(RACES) go test ./internal/apiserver -count=1 -v -timeout 24h -run '^TestR28_CreationRacesDeletionOfUnused$$'

confirmations: ## 73 ways to delete what needs confirmation: none succeeds; 220 deletions that need none (30 s)
	COPPICE_TEST_ORDINARY=20 go test ./internal/system -count=1 -v -run '^TestR32_'
	go test ./internal/rules/ownership -run '^$$' -bench '^BenchmarkClosure$$'

races-webhook: ## RACES (10000) creations beside deletions in mode unused, on a kube-apiserver (minutes)
	cd bench && COPPICE_TEST_RACES=$(RACES) go run ./onkubernetes -dir .. go test ./test/conformance -count=1 -v -timeout 24h -run '^TestRacesOfTheWebhook$$'

graphs: ## all graphs of up to 4 objects, with a crash at every step of each (two minutes)
	go test ./internal/testing/simulation -count=1 -v -run 'TestGraphs$$' -timeout 1h -sim.objects=4

exhaustive: ## all graphs of 4 objects, and many of 5, with 2 crashes each (an hour)
	go test ./internal/testing/simulation -count=1 -v -run 'TestGraphs$$' -timeout 48h -sim.exhaustive

mutants: ## the simulator with each planted bug, which it must find
	go test ./internal/testing/simulation -count=1 -v -run TestMutants -timeout 2h -sim.mutants=all

kubernetes: ## conformance, comparisons and previews on a kube-apiserver, which is built first (8 minutes)
	cd bench && go run ./onkubernetes -dir .. go test -count=1 -run 'TestFreshServers$$' ./test/differential
	cd bench && go run ./onkubernetes -dir .. go test -count=1 -p 1 ./test/conformance ./test/differential
	$(MAKE) previews-kubernetes KUBERNETES_PREVIEWS=15
	cd bench && go run ./onkubernetes -upstream -dir .. go test -count=1 -run 'TestWait|TestDeleteWaits$$' ./test/e2e
	$(MAKE) conformance

conformance: build ## coppice conformance on a kube-apiserver with upstream's collectors (two minutes)
	cd bench && go run ./onkubernetes -upstream -dir .. bin/coppice conformance

SEED ?= $(shell date -u +%Y%m%d)
differential: ## whole objects beside a kube-apiserver, every field of every kind (45 minutes): SEED of the pairs
	cd bench && COPPICE_TEST_OBJECTS=all COPPICE_TEST_SEED=$(SEED) go run ./onkubernetes -dir .. go test -count=1 -timeout 2h -v -run 'TestObjectsAreStoredAsUpstream$$' ./test/differential

upstream: ## whole objects beside upstream's registries, in one process (two minutes): SEED of the pairs
	cd test/upstream && go test -count=1 -timeout 30m -v . -seed=$(SEED)

replicas: ## two control planes on three members of etcd, each of the five killed in turn (a minute)
	go test ./test/e2e -count=1 -v -run 'TestKilledReplicasLoseNothing$$' -replicas.all

PREVIEWS ?= 1000
previews: ## PREVIEWS (1000) deletions predicted, made and compared; 60 stuck ones explained (half an hour)
	go test ./test/e2e -count=1 -v -timeout 2h -run 'TestPreviewIsWhatHappens$$|TestExplanationNamesTheRefuser$$|TestSlowDeletionIsNotCalledStuck$$' -preview.cases=$(PREVIEWS) -preview.blind=$$(($(PREVIEWS) / 25))

KUBERNETES_PREVIEWS ?= 200
previews-kubernetes: ## KUBERNETES_PREVIEWS (200) of these on a kube-apiserver with upstream's collectors (40 minutes)
	cd bench && go run ./onkubernetes -upstream -dir .. go test -count=1 -v -timeout 2h -run 'TestPreviewIsWhatHappens$$' ./test/e2e -preview.cases=$(KUBERNETES_PREVIEWS) -preview.blind=$$(($(KUBERNETES_PREVIEWS) / 25))

SOAK ?= 2h
# Goroutines and open files must end where they were after the first ten minutes, and memory where it was after an hour, for
# which Events are kept.
soak: ## SOAK (2h) of churn, cascades, faults and restarts: memory and files must end where they were
	go test ./test/e2e -count=1 -v -timeout 24h -run 'TestSoak$$' -soak=$(SOAK)

UNDOS ?= 1000
undos: ## UNDOS (1000) random cascades deleted and undone, and one of 10000 objects (ten minutes)
	go test ./test/e2e -count=1 -v -timeout 1h -run 'TestR29_RandomCascades$$|TestUndoScale$$' -undo.cases=$(UNDOS) -undo.objects=10000

KILLS ?= 100
kills: ## KILLS (100) test processes killed, each with a control plane: nothing may stay (ten minutes)
	cd test/envtest && go test -count=1 -v -timeout 1h -run '^TestKilled' -kills=$(KILLS)

STARTS    ?= 1000
ALONGSIDE ?= 32
# With COPPICE_UPSTREAM_ASSETS=dir, kube-apiserver and etcd from there are started as often.
starts: ## STARTS (1000) starts with envtest, and ALONGSIDE (32) at once: none may fail; prints percentiles
	cd test/envtest && go test -count=1 -v -timeout 3h -run '^(TestManyStartsWithoutAnError|TestControlPlanesCollectTheirOwnGarbage)$$' -starts=$(STARTS) -alongside=$(ALONGSIDE)

pictures: ## what docs/page.md shows, drawn by Chromium, into docs/page (half a minute)
	mkdir -p docs/page
	cd test/page && go test -count=1 -run '^TestPicturesAreWhatChromiumShows$$' . -pictures $(CURDIR)/docs/page

OBJECTS ?= 134000
page: ## the page in Chromium beside OBJECTS (134000) objects: delays, frames a second (five minutes)
	cd test/page && go test -count=1 -timeout 30m -v . -objects=$(OBJECTS)

SUITES ?=
CONTROLLERS ?=
LEVELS ?=
# CONTROLLERS="none gc,namespace" prints what passes with each COPPICE_CONTROLLERS; LEVELS="mild realistic", with the faults
# of each; SUITES="controller-runtime jobset" runs these only.
suites: build ## suites of others, into docs/performance (half an hour): SUITES, CONTROLLERS="none gc", LEVELS
	cd bench && go run ./suites -binary ../bin/coppice -o ../docs/performance -controllers "$(CONTROLLERS)" -faults "$(LEVELS)" $(SUITES)

SECTIONS ?=
bench: build ## every figure of README and docs, both sides, into docs/performance (an hour): SECTIONS
	cd bench && go run . -binary ../bin/coppice -o ../docs/performance $(SECTIONS)

first-build: ## what a first build compiles, and how long that takes, into docs/performance (five minutes)
	cd bench && go run ./firstbuild -dir .. -o ../docs/performance/first-build.md

FROM ?=
upgrade-report: ## what changes between FROM=v1.36.3 and KUBERNETES=v1.37.2, into bin/upgrade.md (seconds)
	mkdir -p bin
	cd bench && go run ./upgrade -from '$(FROM)' -to '$(KUBERNETES)' -findings ../test/differential/testdata/objects.txt -o ../bin/upgrade.md

# A library without such a version stays as it is: not all are published with an alpha. go mod tidy raises the go line
# where the libraries need a newer Go; in test/suites it would remove what the tests of the libraries need. The generator of
# the OpenAPI definitions has the version of k8s.io/kube-openapi that the libraries have. kwok keeps the libraries that
# it was released with: the benchmarks compare with it as it is.
MODULE_FILES = git ls-files '*go.mod' '*go.mod.txt' ':!bench/kwok'
libraries: ## the libraries of release KUBERNETES=v1.38.0, in all modules (two minutes)
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
clusters: ## the cost of CLUSTERS (100) idle clusters in one process, of KINDS (30) kinds (half a minute)
	go test ./collector -count=1 -v -run 'TestManyClustersSleepInOneProcess$$' -timeout 30m -clusters=$(CLUSTERS) -clusters.kinds=$(KINDS)

PODS  ?= 20000
NODES ?= 1000
nodes: ## the cost of PODS (20000) pods on NODES (1000) simulated nodes in one process (ten minutes)
	go test ./internal/system -count=1 -v -run 'TestCostOfManyNodesAndPods$$' -timeout 1h -scale.pods=$(PODS) -scale.nodes=$(NODES)
