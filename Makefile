# The index of what can be done here; `make help` lists it.
SHELL := /bin/bash
.DEFAULT_GOAL := help

MODULES := pkg services/intake services/certs services/datastore services/workload services/addons services/status \
	deployments/local cmd/stoker examples/portal test
BENCH ?= ./bench/...
GO_FILES = $(shell git ls-files -co --exclude-standard '*.go' '**/go.mod' go.work)

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

bin/stoker: $(GO_FILES)
	@mkdir -p bin
	@echo "building stoker (the first time takes some minutes)"
	CGO_ENABLED=0 go build -trimpath -o bin/stoker ./cmd/stoker

.PHONY: build
build: bin/stoker ## build the stoker command and the six services into bin/
	CGO_ENABLED=0 go build -trimpath -o bin/ $(foreach s,intake certs datastore workload addons status,./services/$(s)/cmd/stoker-$(s))

.PHONY: up
up: bin/stoker ## start everything on this machine and create the example tenant; Ctrl-C ends it
	bin/stoker up --apply examples/tenant.yaml

.PHONY: down
down: bin/stoker ## end what `make up` started; its data stays in .stoker/
	bin/stoker down

.PHONY: test
test: ## run every test, with real servers (NATS, Kubernetes, etcd), under the race detector
	@set -e; for m in $(filter-out test,$(MODULES)); do echo "== $$m"; (cd $$m && go test -race -timeout 20m $(TEST_FLAGS) ./...); done
	@echo "== images"; go run ./deployments/local/cmd/images >/dev/null # a Kubernetes takes minutes, which no test should wait for
	@echo "== test"; cd test && go test -race -p 1 -timeout 45m $(TEST_FLAGS) ./...

.PHONY: bench
bench: ## measure tenants (seconds, CPU, memory), intake, the drivers of DataStores; BENCH=./bench/datastore for one
	cd test && STOKER_TEST_RACE=0 go test -p 1 -run '^$$' -bench '$(or $(ONLY),.)' -benchtime 1x -timeout 60m $(BENCH)

.PHONY: lint
lint: ## check the code with golangci-lint
	@bad=0; for m in $(MODULES); do echo "== $$m"; (cd $$m && GOWORK=off go tool -modfile=$(CURDIR)/tools/lint/go.mod golangci-lint run ./...) || bad=1; done; exit $$bad

.PHONY: generate
generate: ## generate deepcopy code, CRDs, JSON Schemas, the catalogue of events, the table of reasons and the NATS users' rights
	cd pkg && GOWORK=off go tool -modfile=$(CURDIR)/tools/go.mod controller-gen object \
		crd:generateEmbeddedObjectMeta=false paths=./api/v1alpha1/... output:crd:artifacts:config=../deployments/crds
	cd pkg && go generate ./...

.PHONY: publish
publish: ## publish the JSON Schemas of events: take note of compatible changes, refuse others
	cd pkg && go run ./internal/generate publish ..

.PHONY: images
images: ## build the programs that the local stack's pods run (Kubernetes v1.36.3 and v1.35.4, etcd)
	go run ./deployments/local/cmd/images

.PHONY: tidy
tidy: ## tidy every module's go.mod
	@set -e; for m in $(MODULES); do (cd $$m && GOWORK=off go mod tidy); done
