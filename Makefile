# make            what there is
# make check      what CI runs
.DEFAULT_GOAL := help

VERSION    ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
KUBERNETES := $(shell go list -m -f '{{.Version}}' k8s.io/apiserver | sed 's/^v0\./v1./')
STAMP      := -X github.com/coppice-dev/coppice/internal/version.stamped=$(VERSION) \
              -X k8s.io/component-base/version.gitVersion=$(KUBERNETES)+coppice-$(patsubst v%,%,$(VERSION)) \
              -X k8s.io/component-base/version.gitTreeState=clean

.PHONY: help build test check lint race bench sim exhaustive mutants kubernetes replicas nodes generate

help: ## list the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/'

build: ## one static binary, bin/coppice, with its version in it
	CGO_ENABLED=0 go build -trimpath -ldflags '-s -w $(STAMP)' -o bin/coppice ./cmd/coppice

test: ## the tests
	go test ./...

race: ## the tests under the race detector
	go test -race ./...

lint: ## golangci-lint, built from its module
	go tool -modfile=tools/go.mod golangci-lint run ./...

check: ## what CI runs: build, vet, tests, tests under the race detector
	go build ./...
	go vet ./...
	go mod verify
	go test ./...
	cd test/operator && go vet ./... && go test ./...
	go test -race $$(go list ./... | grep -v -e /test/e2e -e /test/containers -e /test/conformance -e /internal/testing/simulation)

SEEDS    ?= 0
DURATION ?= 60s
sim: ## the simulator for DURATION (60s), or for SEEDS seeds
	go test ./internal/testing/simulation -count=1 -v -run TestSeeds -timeout 24h -sim.duration=$(DURATION) -sim.seeds=$(SEEDS)

exhaustive: ## all graphs of 4 objects, and of 5 that have up to 6 references or only blocking ones, with 2 crashes each: an hour on two cores; tells each minute how far it is
	go test ./internal/testing/simulation -count=1 -v -run 'TestGraphs$$' -timeout 48h -sim.exhaustive

mutants: ## build the simulator with each planted bug; it must find them
	go test ./internal/testing/simulation -count=1 -v -run TestMutants -timeout 2h -sim.mutants=all

kubernetes: ## the conformance suite, and the comparison of deletions, against a real kube-apiserver, which is built first (4 minutes)
	cd bench && go run ./onkubernetes -dir .. go test -count=1 -p 1 ./test/conformance ./test/differential

replicas: ## two control planes on three etcd members, each of the five killed in turn under load (a minute)
	go test ./test/e2e -count=1 -v -run 'TestReplicas$$' -replicas.all

SECTIONS ?=
bench: build ## every figure of README and docs, both sides, into docs/performance: an hour, and kube-apiserver is built first; SECTIONS="start cascade" measures these only
	cd bench && go run . -binary ../bin/coppice -o ../docs/performance $(SECTIONS)

generate: ## the OpenAPI definitions
	go generate ./internal/apiserver/openapi

PODS  ?= 20000
NODES ?= 1000
nodes: ## what PODS (20000) pods on NODES (1000) simulated nodes in one process take: time, memory (ten minutes)
	go test ./internal/system -count=1 -v -run 'TestScale$$' -timeout 1h -scale.pods=$(PODS) -scale.nodes=$(NODES)
