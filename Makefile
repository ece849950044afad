# The index of what can be done here; `make help` lists it.
SHELL := /bin/bash
.DEFAULT_GOAL := help

MODULES := pkg services/intake services/certs services/datastore services/workload services/addons services/status services/capi services/tenantaddons \
	deployments/natsserver deployments/local deployments/compose deployments/docker deployments/stack deployments/monitoring cmd/stoker examples/portal test
# Outside go.work, for what these take would have all others take other versions of what they share.
APART := test/containers test/kamaji
SERVICES = $(patsubst services/%,%,$(filter services/%,$(MODULES)))
BENCH ?= ./bench/...
# golangci-lint keeps the paths of files beside what it found in them, so each checkout has a cache of its own: with one for all,
# another checkout's findings would be reported, by paths that this one's rules don't match.
export GOLANGCI_LINT_CACHE ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/stoker/lint$(CURDIR)
GO_FILES = $(shell git ls-files -co --exclude-standard '*.go' '**/go.mod' go.work)
# What `stoker version` says; a tree without git says what Go knows of it.
VERSION = $(shell git describe --tags --always --dirty 2>/dev/null)
REVISION = $(shell git describe --always --dirty --abbrev=40 --exclude '*' 2>/dev/null)
LDFLAGS = -X github.com/stoker-k8s/stoker/pkg/version.version=$(VERSION) -X github.com/stoker-k8s/stoker/pkg/version.revision=$(REVISION)
# go build that says how far it is.
GO_BUILD = go run -trimpath ./deployments/local/cmd/gobuild -ldflags "$(LDFLAGS)"
# kine v0.16.4 reads when a lease ends while it notes that it was renewed (pkg/ttl: handle, save). It deletes by revision, so that at worst a
# lease that ends is kept for a moment longer; the detector would end whoever reads a tenant's data for longer than its API server's lease
# of 15 s. test/env builds the services in the same way.
RACE = -race -gcflags=github.com/k3s-io/kine/pkg/ttl=-race=false
# The race detector makes programs three times slower. Tests of whole installations run without it: the services that they start are built with it.
# Tests of the databases' drivers have it in `make test-all` alone: services/datastore, which has it always, works on all databases.
# Without go vet, which is a part of `make lint`.
# Always run: Go takes a result from its cache although a file of another module that the test read (a CRD, a page) is another.
# Three packages at once, on two cores, too: tests often wait, and one is linked meanwhile.
# Much of what programs in Go do while they start is collect garbage, and tests start hundreds of API servers: with GOGC as here they take an
# eighth less of the processor, and more memory, of which three packages at a time take up to 12 GB.
# The last group is what the race detector keeps from being tested: bounds of memory. test/run/norace_test.go holds it to the files that are
# built without the detector.
DRIVERS = services/datastore/driver
GO_TEST = -p 3 -vet=off -count=1 -timeout 60m $(SHORT) $(TEST_FLAGS)
TEST = GOGC=$(or $(GOGC),400) go run ./test/run $(filter-out test,$(MODULES)) '!$(DRIVERS)' -- $(RACE) $(GO_TEST) \
	-- $(DRIVERS) -- $(DRIVERS_RACE) $(GO_TEST) -- test -- $(GO_TEST) -- services/addons -- $(GO_TEST) -run '^TestWatchMemory$$'

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

bin/stoker: $(GO_FILES)
	@$(GO_BUILD) -o bin/stoker ./cmd/stoker

.PHONY: build
build: ## build the stoker command and the eight services into bin/
	@$(GO_BUILD) -o bin/ ./cmd/stoker $(foreach s,$(SERVICES),./services/$(s)/cmd/stoker-$(s))

# What `make container-images` does with the images, in this order: pushes them (REGISTRY), loads them into a container engine (LOAD=1), or
# writes them to a directory.
IMAGES_TO = $(if $(LOAD),-load) $(if $(REGISTRY),-registry $(REGISTRY)) $(if $(or $(LOAD),$(REGISTRY)),,-output $(or $(OUTPUT),bin/images))
.PHONY: container-images
container-images: ## build the container images, without any engine: REGISTRY=host/path to push, LOAD=1 for `docker load`, else into bin/images; IMAGES='stoker-certs nats', TAG, PLATFORMS=linux/arm64
	@go run -trimpath ./deployments/docker/cmd/containerimages $(IMAGES_TO) -version $(VERSION) -revision $(REVISION) \
		-tag $(or $(TAG),$(VERSION)) $(if $(or $(PLATFORMS),$(LOAD)),-platforms $(or $(PLATFORMS),linux/$(shell go env GOARCH))) $(IMAGES)

# What clusterctl's repository has, and what the components in it are made of.
PROVIDER = deployments/cluster-api/provider
COMPONENTS = deployments/rbac/00-namespace.yaml deployments/rbac/capi.yaml deployments/cluster-api/crds/*.yaml $(PROVIDER)/manager.yaml
BOOTSTRAP = capi-kubeadm-bootstrap-system:capi-kubeadm-bootstrap-manager
.PHONY: clusterctl-repository
clusterctl-repository: ## lay out Stoker's provider for Cluster API as a local repository of clusterctl: DIR=/absolute/path TAG=v0.1.0 REGISTRY=host/path
	@[[ '$(DIR)' == /* && '$(TAG)' =~ ^v[0-9]+\.[0-9]+\.[0-9]+ ]] || { \
		echo "DIR='$(DIR)' TAG='$(TAG)': clusterctl needs an absolute path and a version such as v0.1.0, which is the images' tag, too"; exit 2; }
	@to='$(DIR)/control-plane-stoker/$(TAG)' && mkdir -p "$$to" && \
		cp $(PROVIDER)/{metadata,cluster-template,cluster-template-class,clusterclass-hosted}.yaml "$$to" && \
		for file in $(COMPONENTS); do echo ---; cat $$file; done | \
		sed -e 's|image: .*/stoker-capi:.*|image: $(or $(REGISTRY),ghcr.io/stoker-k8s)/stoker-capi:$(TAG)|' \
			-e 's|$(BOOTSTRAP)|$${STOKER_CAPI_BOOTSTRAP:=$(BOOTSTRAP)}|' >"$$to/control-plane-components.yaml" && echo "$$to"

.PHONY: up
up: bin/stoker ## start everything on this machine and create the example tenant; Ctrl-C ends it
	bin/stoker up --apply examples/tenant.yaml

.PHONY: down
down: bin/stoker ## end what `make up` started; its data stays in .stoker/
	bin/stoker down

.PHONY: test
test: SHORT = -short
test: images ## run the tests with real servers (NATS, Kubernetes, databases), without the long ones
	@$(TEST)

.PHONY: test-all
test-all: DRIVERS_RACE = $(RACE)
test-all: images ## run every test, the long ones too
	@$(TEST)

.PHONY: test-containers
test-containers: images ## run the tests that need a container engine, by testcontainers-go: docker-compose.yaml, the drivers of DataStores on official images
	cd test/containers && GOWORK=off go test -v -count=1 -timeout 40m $(TEST_FLAGS) ./...

.PHONY: test-cluster
test-cluster: ## install on a cluster of yours by Helm, and try everything there: KUBECONFIG=… REGISTRY=host/path, which its nodes pull from; ONLY='ten|drift' for some of it; NODE=program, which takes a node away; JOIN=program, which has a machine join a tenant; E2E=e2e.test, CONFORMANCE=all or some for Kubernetes' conformance suite
	@test -n '$(KUBECONFIG)' -a -n '$(REGISTRY)' || { echo "KUBECONFIG and REGISTRY say which cluster, and where its images go"; exit 2; }
	@go run -trimpath ./deployments/docker/cmd/containerimages -registry $(REGISTRY) -version $(VERSION) -revision $(REVISION) -tag $(VERSION) \
		-platforms linux/$(shell go env GOARCH)
	@go run -trimpath ./deployments/docker/cmd/containerimages -registry $(REGISTRY) -version $(VERSION) -tag $(VERSION) \
		-platforms linux/$(shell go env GOARCH) stoker-test-inside
	@go run -trimpath ./deployments/docker/cmd/containerimages -registry $(REGISTRY) nats etcd kube-apiserver kube-controller-manager kube-scheduler \
		proxy-server proxy-agent
	cd test && STOKER_TEST_CLUSTER='$(abspath $(KUBECONFIG))' STOKER_TEST_REGISTRY='$(REGISTRY)' STOKER_TEST_TAG='$(VERSION)' STOKER_TEST_NODE='$(abspath $(NODE))' \
		STOKER_TEST_JOIN='$(abspath $(JOIN))' STOKER_TEST_E2E='$(abspath $(E2E))' STOKER_TEST_CONFORMANCE='$(CONFORMANCE)' \
		go test -v -count=1 -timeout $(if $(CONFORMANCE),8h,90m) -run 'TestCluster/^(install|$(ONLY))' $(TEST_FLAGS) ./cluster

.PHONY: bench
bench: ## measure tenants (seconds, CPU, memory), intake, the drivers of DataStores, imports and exports; BENCH=./bench/datastore for one
	cd test && STOKER_TEST_RACE=0 go test -p 1 -run '^$$' -bench '$(or $(ONLY),.)' -benchtime 1x -timeout 60m $(BENCH)

.PHONY: robustness
robustness: images ## an installation under random faults, and the proof that its invariants held: FOR=8h, SEED=7, TENANTS=200, FAULTS='API server', SCHEDULE=api-server-500
	cd test && STOKER_ROBUSTNESS_FOR=$(or $(FOR),1h) STOKER_ROBUSTNESS_SEED=$(or $(SEED),$(shell date +%s)) STOKER_ROBUSTNESS_FAULTS='$(FAULTS)' \
		STOKER_ROBUSTNESS_TENANTS=$(TENANTS) STOKER_ROBUSTNESS_SCHEDULE=$(SCHEDULE) \
		go test ./robustness -run '$(if $(SCHEDULE),TestDirected,$(if $(TENANTS),TestManyTenants,TestRobustness))$$' -count=1 -v -timeout 0

.PHONY: mutation
mutation: images ## change the deciding code in small ways; tests must notice; FILES='pkg/loop/lease.go' for some, IN=claim for functions
	cd test && go run ./mutation -in '$(IN)' $(FILES)

.PHONY: lint
lint: ## check the code with golangci-lint
	@cd tools/lint && GOWORK=off go build -o $(CURDIR)/bin/golangci-lint github.com/golangci/golangci-lint/v2/cmd/golangci-lint
	@bad=0; echo "== the workspace"; bin/golangci-lint run $(MODULES:%=./%/...) || bad=1; \
		for m in $(APART); do echo "== $$m"; (cd $$m && GOWORK=off $(CURDIR)/bin/golangci-lint run ./...) || bad=1; done; exit $$bad

.PHONY: generate
generate: ## generate deepcopy code, CRDs, JSON Schemas, the catalogue of events, the tables of reasons and metrics, the dashboards, and the NATS users' rights
	cd pkg && GOWORK=off go tool -modfile=$(CURDIR)/tools/go.mod controller-gen object \
		crd:generateEmbeddedObjectMeta=false paths=./api/v1alpha1/... output:crd:artifacts:config=../deployments/crds
	cd pkg && GOWORK=off go tool -modfile=$(CURDIR)/tools/go.mod controller-gen object \
		crd:generateEmbeddedObjectMeta=false paths=./api/controlplane/... output:crd:artifacts:config=../deployments/cluster-api/crds
	cd pkg && GOWORK=off go tool -modfile=$(CURDIR)/tools/go.mod controller-gen object \
		crd:generateEmbeddedObjectMeta=false paths=./api/tenantaddon/... output:crd:artifacts:config=../deployments/crds
	cd pkg && go generate ./...
	cd deployments/stack && go generate ./...
	cd deployments/monitoring && go generate ./...

.PHONY: verify
verify: ## check that what is generated (deepcopy code, CRDs, schemas, docs, rights) and every go.mod is up to date
	@test -z "$$(git status --porcelain)" || { echo "verify compares with what is committed, and there are changes:"; git status --short; exit 1; }
	@$(MAKE) --no-print-directory generate tidy
	@test -z "$$(git status --porcelain)" || { git diff; git status --short; echo "run make generate tidy, and commit"; exit 1; }

.PHONY: publish
publish: ## publish the JSON Schemas of events: take note of compatible changes, refuse others
	cd pkg && go run ./internal/generate publish ..

.PHONY: images
images: ## build the programs that the local stack's pods run: Kubernetes v1.36.3 and v1.35.4, databases, kine
	@go run -trimpath ./deployments/local/cmd/images >/dev/null

.PHONY: tidy
tidy: ## tidy every module's go.mod
	@set -e; for m in $(MODULES) $(APART); do (cd $$m && GOWORK=off go mod tidy); done
