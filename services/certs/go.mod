module github.com/stoker-k8s/stoker/services/certs

go 1.26.0

require github.com/stoker-k8s/stoker/pkg v0.0.0

// 2026-11: the modules of this repository are released together; until the first tag they find each other by path.
replace github.com/stoker-k8s/stoker/pkg => ../../pkg
