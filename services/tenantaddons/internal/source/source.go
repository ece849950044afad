// Package source makes a Helm chart and values of what a TenantAddon says: it fetches, checks and builds.
package source

import (
	"github.com/Masterminds/sprig/v3"
	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/registry"
	"sigs.k8s.io/kustomize/api/krusty"
)

var _ = loader.LoadArchive
var _ = registry.NewClient
var _ = krusty.MakeKustomizer
var _ = action.NewInstall
var _ = sprig.HermeticTxtFuncMap
