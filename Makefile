# The index of what can be done here; `make help` lists it.
SHELL := /bin/bash
.DEFAULT_GOAL := help

# The modules of go.work: the library, the root with everything that is built on it, and an example that requires the library alone.
MODULES := ./pkg . ./examples/portal
# Outside go.work: they need other versions of shared dependencies than the modules above.
APART := ./test/containers ./test/kamaji
SERVICES = $(notdir $(wildcard services/*))
BENCH ?= ./bench/...
# golangci-lint keeps the paths of files beside what it found in them, so each checkout has a cache of its own: with one for all,
# another checkout's findings would be reported, by paths that this one's rules don't match.
export GOLANGCI_LINT_CACHE ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/stoker/lint$(CURDIR)
GO_FILES = $(shell git ls-files -co --exclude-standard '*.go' go.mod '*/go.mod' go.work)
# All that make compiles has the flags of local/gobuild, so that nothing is compiled twice. Only the race detector needs cgo.
export GOFLAGS := $(GOFLAGS) -buildvcs=false -trimpath -gcflags=all=-dwarf=false
export CGO_ENABLED := 0
# What `stoker version` says; a tree without git says what Go knows of it.
VERSION = $(shell git describe --tags --always --dirty 2>/dev/null)
REVISION = $(shell git describe --always --dirty --abbrev=40 --exclude '*' 2>/dev/null)
LDFLAGS = -X github.com/stoker-k8s/stoker/pkg/version.version=$(VERSION) -X github.com/stoker-k8s/stoker/pkg/version.revision=$(REVISION)
# go build that says how far it is.
GO_BUILD = go run ./local/cmd/gobuild -ldflags "$(LDFLAGS)"
# test/run builds all tests first, runs them side by side, and reports what each package cost. TEST_FLAGS are flags of go test.
TEST = go run ./test/run
TEST_ARGS = $(DIRS) -- $(TEST_FLAGS)

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-21s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

bin/stoker: $(GO_FILES)
	@$(GO_BUILD) -o bin/stoker ./cmd/stoker

.PHONY: build
build: ## build the command line and the services into bin/
	@$(GO_BUILD) -o bin/ ./cmd/stoker $(foreach s,$(SERVICES),./services/$(s)/cmd/stoker-$(s))

# What `make container-images` does with the images, in this order: pushes them (REGISTRY), loads them into a container engine (LOAD=1), or
# writes them to a directory.
IMAGES_TO = $(if $(LOAD),-load) $(if $(REGISTRY),-registry $(REGISTRY)) $(if $(or $(LOAD),$(REGISTRY)),,-output $(or $(OUTPUT),bin/images))
# IMAGES='stoker-certs nats' builds some, TAG and PLATFORMS=linux/arm64 say which; without REGISTRY and LOAD they are written to OUTPUT (bin/images).
.PHONY: container-images
container-images: ## build the container images: REGISTRY=host/path pushes them, LOAD=1 loads them
	@go run ./tools/imagebuilder/cmd/containerimages $(IMAGES_TO) -version $(VERSION) -revision $(REVISION) \
		-tag $(or $(TAG),$(VERSION)) $(if $(or $(PLATFORMS),$(LOAD)),-platforms $(or $(PLATFORMS),linux/$(shell go env GOARCH))) $(IMAGES)

# What clusterctl's repository has, and what the components in it are made of.
PROVIDER = deployments/cluster-api/provider
COMPONENTS = deployments/rbac/00-namespace.yaml deployments/rbac/capi.yaml deployments/cluster-api/crds/*.yaml $(PROVIDER)/manager.yaml
BOOTSTRAP = capi-kubeadm-bootstrap-system:capi-kubeadm-bootstrap-manager
.PHONY: clusterctl-repository
clusterctl-repository: ## write a clusterctl repository: DIR=/path TAG=v0.1.0 REGISTRY=host/path
	@[[ '$(DIR)' == /* && '$(TAG)' =~ ^v[0-9]+\.[0-9]+\.[0-9]+ ]] || { \
		echo "DIR='$(DIR)' TAG='$(TAG)': clusterctl needs an absolute path and a version such as v0.1.0, which is the images' tag, too"; exit 2; }
	@to='$(DIR)/control-plane-stoker/$(TAG)' && mkdir -p "$$to" && \
		cp $(PROVIDER)/{metadata,cluster-template,cluster-template-class,clusterclass-hosted}.yaml "$$to" && \
		for file in $(COMPONENTS); do echo ---; cat $$file; done | \
		sed -e 's|image: .*/stoker-capi:.*|image: $(or $(REGISTRY),ghcr.io/stoker-k8s)/stoker-capi:$(TAG)|' \
			-e 's|$(BOOTSTRAP)|$${STOKER_CAPI_BOOTSTRAP:=$(BOOTSTRAP)}|' >"$$to/control-plane-components.yaml" && echo "$$to"

.PHONY: up
up: bin/stoker ## start everything on this machine with an example tenant; Ctrl-C ends it
	bin/stoker up --apply examples/tenant.yaml

.PHONY: down
down: bin/stoker ## end what make up started; its data stays in .stoker/
	bin/stoker down

.PHONY: test
test: images ## run the tests, without the long ones: DIRS=pkg/loop TEST_FLAGS="-run TestX"
	@$(TEST) $(TEST_ARGS)

.PHONY: test-all
test-all: images ## run every test, and the concurrent packages with the race detector
	@STOKER_TEST_RACE=1 $(TEST) -long $(TEST_ARGS)
	@$(TEST) -race $(TEST_ARGS)

.PHONY: test-race
test-race: images ## run concurrent packages with the race detector: SINCE=commit for affected ones
	@$(TEST) -race $(if $(SINCE),-since $(SINCE)) $(if $(SLICE),-slice $(SLICE)) $(if $(BUDGET),-budget $(BUDGET)) $(TEST_ARGS)

.PHONY: test-long
test-long: images ## run the long tests of one slice: SLICE=2/6
	@STOKER_TEST_RACE=1 $(TEST) -slice $(or $(SLICE),1/6) $(if $(BUDGET),-budget $(BUDGET)) $(TEST_ARGS)

.PHONY: landing
landing: ## raise the number by which .ci/run chooses the long tests to run
	@awk '/^[0-9]+$$/ { $$0 = $$0 + 1 } 1' .ci/landing >.ci/landing.new && mv .ci/landing.new .ci/landing
	git commit -q -m "ci: raise the landing number" .ci/landing

.PHONY: test-containers
test-containers: images ## run the tests that need a container engine
	go test -v -count=1 -timeout 20m $(TEST_FLAGS) -run '^TestImageRunsReadOnly$$' ./tools/imagebuilder
	cd test/containers && GOWORK=off go test -v -count=1 -timeout 40m $(TEST_FLAGS) ./...

# ONLY='ten|drift' runs a part; NODE=program takes a node away; JOIN=program has a machine join a tenant; E2E=e2e.test CONFORMANCE=all runs Kubernetes'
# conformance suite.
.PHONY: test-cluster
test-cluster: ## install on your cluster by Helm and test it: KUBECONFIG=file REGISTRY=host/path
	@test -n '$(KUBECONFIG)' -a -n '$(REGISTRY)' || { echo "KUBECONFIG and REGISTRY say which cluster, and where its images go"; exit 2; }
	@go run ./tools/imagebuilder/cmd/containerimages -registry $(REGISTRY) -version $(VERSION) -revision $(REVISION) -tag $(VERSION) \
		-platforms linux/$(shell go env GOARCH)
	@go run ./tools/imagebuilder/cmd/containerimages -registry $(REGISTRY) -version $(VERSION) -tag $(VERSION) \
		-platforms linux/$(shell go env GOARCH) stoker-test-inside
	@go run ./tools/imagebuilder/cmd/containerimages -registry $(REGISTRY) nats etcd kube-apiserver kube-controller-manager kube-scheduler \
		proxy-server proxy-agent
	cd test && STOKER_TEST_CLUSTER='$(abspath $(KUBECONFIG))' STOKER_TEST_REGISTRY='$(REGISTRY)' STOKER_TEST_TAG='$(VERSION)' STOKER_TEST_NODE='$(abspath $(NODE))' \
		STOKER_TEST_JOIN='$(abspath $(JOIN))' STOKER_TEST_E2E='$(abspath $(E2E))' STOKER_TEST_CONFORMANCE='$(CONFORMANCE)' \
		go test -v -count=1 -timeout $(if $(CONFORMANCE),8h,90m) -run 'TestCluster/^(install|$(ONLY))' $(TEST_FLAGS) ./cluster

.PHONY: bench
bench: ## measure seconds, CPU and memory: BENCH=./bench/datastore ONLY=Churn
	cd test && STOKER_TEST_LOG_LEVEL=info go test -p 1 -run '^$$' -bench '$(or $(ONLY),.)' -benchtime 1x -timeout 60m $(BENCH)

# FAULTS='API server' limits the faults; SCHEDULE=APIServer500 runs a directed schedule.
.PHONY: robustness
robustness: images ## run an installation under random faults: FOR=8h SEED=7 TENANTS=200
	cd test && STOKER_ROBUSTNESS_FOR=$(or $(FOR),1h) STOKER_ROBUSTNESS_SEED=$(or $(SEED),$(shell date +%s)) STOKER_ROBUSTNESS_FAULTS='$(FAULTS)' \
		STOKER_ROBUSTNESS_TENANTS=$(TENANTS) \
		go test ./robustness -run '^$(if $(SCHEDULE),TestDirected$(SCHEDULE),$(if $(TENANTS),TestManyTenants,TestRobustness))$$' -count=1 -v -timeout 0

# IN=claim mutates some functions.
.PHONY: mutation
mutation: images ## change deciding code in small ways that tests must notice: FILES=pkg/loop/lease.go
	cd test && go run ./mutation -in '$(IN)' $(FILES)

# golangci-lint collects less garbage, as compilers do (local/gobuild).
lint: export GOGC ?= 400
.PHONY: lint
lint: ## check the code with golangci-lint
	@cd tools/lint && GOWORK=off go build -o $(CURDIR)/bin/golangci-lint github.com/golangci/golangci-lint/v2/cmd/golangci-lint
	@bad=0; echo "== the workspace"; bin/golangci-lint run $(MODULES:%=%/...) || bad=1; \
		for m in $(APART); do echo "== $$m"; (cd $$m && GOWORK=off $(CURDIR)/bin/golangci-lint run ./...) || bad=1; done; exit $$bad

.PHONY: generate
generate: api ## generate CRDs, schemas, tables, dashboards and rights from the code
	cd pkg && go generate ./...
	go generate ./tools/...

# Deepcopy code and CRDs from the Go types of the API. One run of controller-gen reads the types of all three groups once, but writes all CRDs
# into one directory.
.PHONY: api
api:
	cd pkg && GOWORK=off go tool -modfile=$(CURDIR)/tools/controller-gen/go.mod controller-gen object crd:generateEmbeddedObjectMeta=false \
		paths=./api/v1alpha1/... paths=./api/controlplane/... paths=./api/tenantaddon/... output:crd:artifacts:config=../deployments/crds
	mv deployments/crds/controlplane.cluster.x-k8s.io_*.yaml deployments/cluster-api/crds
	cd pkg && go generate ./api/...

# Tests compare the other files that `make generate` writes: pkg/internal/generate, and kamajitypes, metrics and monitoring below tools.
.PHONY: verify
verify: ## check that generated files and every go.mod are up to date
	@test -z "$$(git status --porcelain)" || { echo "verify compares with what is committed, and there are changes:"; git status --short; exit 1; }
	@$(MAKE) --no-print-directory api tidy
	@test -z "$$(git status --porcelain)" || { git diff; git status --short; echo "run make generate tidy, and commit"; exit 1; }

.PHONY: images
images: ## build what the local stack runs: Kubernetes, etcd, databases, kine
	@go run ./local/cmd/images >/dev/null

.PHONY: tidy
tidy: ## tidy every go.mod
	@set -e; for m in $(MODULES) $(APART); do (cd $$m && GOWORK=off go mod tidy); done
