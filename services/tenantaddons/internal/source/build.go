package source

import (
	"bytes"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"helm.sh/helm/v4/pkg/chart/common"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	chartutil "helm.sh/helm/v4/pkg/chart/v2/util"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/stoker-k8s/stoker/pkg/api/tenantaddon"
)

// Content is what a spec's source holds, fetched, checked and built. It is never changed, and safe for concurrent use.
type Content struct {
	// Digest is sha256:…: of the archive or file, of the manifest of an OCI artifact, or of all files of a ConfigMap.
	Digest string
	// Version is the chart's, of other sources the first 12 hex digits of the digest.
	Version string

	size int64
	// archive is a chart's; unchecked are the full names of those in it whose schema can't be used.
	archive   []byte
	unchecked []string
	// manifests are objects without CRDs; templates are those of manifests that are templates.
	manifests []byte
	templates []file
	crds      []*unstructured.Unstructured
}

// Built is a chart for one use: Helm changes it.
type Built struct {
	// Chart is the caller's own.
	Chart *chart.Chart
	// CRDs are to be applied before the chart is installed or upgraded: of a chart those in crds/, also of its dependencies that the values
	// enable, else those among the manifests. They are the caller's own. A chart still has its own ones, too: have Helm skip them.
	CRDs []*unstructured.Unstructured
	// RemoveCRDs is whether CRDs go at removal: those among manifests do, those of a chart stay, as with Helm.
	RemoveCRDs bool
	// Unchecked are the charts, by their full names, whose values aren't checked: their schema refers to other places, and these aren't fetched.
	Unchecked []string
}

// Chart makes the chart, anew at each call. releaseName is its name unless it has one; values decide which of its dependencies are enabled.
func (c *Content) Chart(releaseName string, values map[string]any) (*Built, error) {
	if c.archive == nil {
		return c.made(releaseName), nil
	}
	ch, err := loader.LoadArchive(bytes.NewReader(c.archive))
	if err != nil {
		return nil, sourceInvalid("spec.chart", "%w", err)
	}
	dropSchemas(ch, c.unchecked)
	enabled := ch
	if len(ch.Dependencies()) > 0 {
		// Helm does this to the chart itself once more, so that it must be done to another one here.
		if enabled, err = loader.LoadArchive(bytes.NewReader(c.archive)); err != nil {
			return nil, sourceInvalid("spec.chart", "%w", err)
		}
		if err := chartutil.ProcessDependencies(enabled, values); err != nil {
			return nil, fail(tenantaddon.ReasonRenderFailed, "spec.chart", "its dependencies: %w", err)
		}
	}
	built := &Built{Chart: ch, Unchecked: slices.Clone(c.unchecked)}
	for _, crd := range enabled.CRDObjects() {
		objects, err := parseObjects(file{name: crd.Filename, data: crd.File.Data})
		if err != nil {
			return nil, sourceInvalid("spec.chart", "%w", err)
		}
		built.CRDs = append(built.CRDs, objects...)
	}
	return built, nil
}

// manifestsFile is the file of a made chart with its objects; the template prints it.
const manifestsFile = "manifests.yaml"

// made is a chart of manifests.
func (c *Content) made(name string) *Built {
	ch := &chart.Chart{
		Metadata: &chart.Metadata{APIVersion: chart.APIVersionV2, Name: name, Version: "0.0.0+" + c.Version, Type: "application"},
		Values:   map[string]any{},
	}
	if c.manifests != nil {
		ch.Files = []*common.File{{Name: manifestsFile, Data: bytes.Clone(c.manifests)}}
		ch.Templates = []*common.File{{Name: "templates/" + manifestsFile, Data: []byte(`{{ .Files.Get "` + manifestsFile + `" }}`)}}
	}
	for _, f := range c.templates {
		ch.Templates = append(ch.Templates, &common.File{Name: "templates/" + f.name, Data: bytes.Clone(f.data)})
	}
	built := &Built{Chart: ch, RemoveCRDs: true}
	for _, crd := range c.crds {
		built.CRDs = append(built.CRDs, crd.DeepCopy())
	}
	return built
}

// build checks data, or the files of s, and makes content of it.
func (s *source) build(data []byte, digest string) (*Content, error) {
	if s.kind == kindChart {
		return s.buildChart(data, digest)
	}
	c := &Content{Digest: digest, Version: strings.TrimPrefix(digest, "sha256:")[:12]}
	files, err := s.unpack(data)
	if err != nil {
		return nil, err
	}
	if s.kind == kindKustomization {
		built, err := kustomize(files, s.path)
		if err != nil {
			return nil, sourceInvalid(s.urlField, "%s%w", s.place(), err)
		}
		files = []file{{data: built}}
	} else if files, err = s.selectManifests(files); err != nil {
		return nil, err
	}
	for _, f := range files {
		c.size += int64(len(f.data))
	}
	if c.size > maxParsed {
		return nil, sourceInvalid(s.urlField, "%sholds more than %d MiB of manifests", s.place(), maxParsed>>20)
	}
	if s.template {
		c.templates = files
		return c, nil
	}
	objects, err := allObjects(files, s.targetNamespace)
	if err != nil {
		return nil, sourceInvalid(s.urlField, "%s%w", s.place(), err)
	}
	if c.manifests, c.crds, err = toYAML(objects); err != nil {
		return nil, sourceInvalid(s.urlField, "%s%w", s.place(), err)
	}
	return c, nil
}

// place begins messages about content.
func (s *source) place() string {
	if s.shown == "" {
		return ""
	}
	return s.shown + ": "
}

// unpack returns the files of s.
func (s *source) unpack(data []byte) ([]file, error) {
	if s.files != nil {
		return s.files, nil
	}
	if s.kind == kindManifests && !s.isOCI() && !isGzip(data) {
		if s.path != "." {
			return nil, invalid(s.field+".path", "is for archives and artifacts, and %s is a file: leave it out", s.shown)
		}
		return []file{{name: fileName(path.Base(s.url.Path)), data: data}}, nil
	}
	files, err := untar(data, newBudget(maxUnpacked))
	if err != nil {
		return nil, sourceInvalid(s.urlField, "%s: %w", s.shown, err)
	}
	return files, nil
}

// fileName is the name of a file of a URL, which a template may have as its own.
func fileName(base string) string {
	if isManifest(base) {
		return base
	}
	return "manifests.yaml"
}

// buildChart checks the archive of a chart.
func (s *source) buildChart(data []byte, digest string) (*Content, error) {
	if err := checkChartSize(data, newBudget(maxChart), 0); err != nil {
		return nil, sourceInvalid(s.urlField, "%s: %w", s.shown, err)
	}
	ch, err := loader.LoadArchive(bytes.NewReader(data))
	if err != nil {
		return nil, sourceInvalid(s.urlField, "%s: no Helm chart: %w", s.shown, err)
	}
	if err := s.checkChart(ch); err != nil {
		return nil, err
	}
	c := &Content{Digest: digest, Version: ch.Metadata.Version, archive: data, size: int64(len(data))}
	if c.unchecked, err = checkSchemas(ch); err != nil {
		return nil, sourceInvalid(s.urlField, "%s: %w", s.shown, err)
	}
	for _, crd := range ch.CRDObjects() {
		if _, err := parseObjects(file{name: crd.Filename, data: crd.File.Data}); err != nil {
			return nil, sourceInvalid(s.urlField, "%s: %w", s.shown, err)
		}
	}
	return c, nil
}

func (s *source) checkChart(ch *chart.Chart) error {
	switch {
	case ch.Metadata.Name != s.name:
		return sourceInvalid(s.urlField, "%s: the chart is %q, not %q", s.shown, ch.Metadata.Name, s.name)
	case !sameVersion(ch.Metadata.Version, s.version):
		return sourceInvalid("spec.chart.version", "%s: the chart has the version %q, not %q", s.shown, ch.Metadata.Version, s.version)
	case ch.Metadata.Type == "library":
		return sourceInvalid(s.urlField, "%s: the chart is a library, which other charts use: it can't be installed", s.shown)
	}
	var missing []string
	for _, dependency := range ch.Metadata.Dependencies {
		if !slices.ContainsFunc(ch.Dependencies(), func(c *chart.Chart) bool { return c.Name() == dependency.Name }) {
			missing = append(missing, dependency.Name)
		}
	}
	if len(missing) > 0 {
		return sourceInvalid(s.urlField, "%s: the chart doesn't hold its dependencies %s: run `helm dependency build` before `helm package`",
			s.shown, strings.Join(missing, ", "))
	}
	return nil
}

// nowhere loads no schema: Helm would read them by HTTP and from our own files.
type nowhere struct{}

func (nowhere) Load(string) (any, error) { return nil, errors.New("refers to another place") }

// anything is what Helm takes for a schema that is named by a URN.
type anything struct{}

func (anything) Load(string) (any, error) { return true, nil }

// checkSchemas returns the charts whose schema refers to other places.
func checkSchemas(ch *chart.Chart) ([]string, error) {
	var unchecked []string
	if ch.Schema != nil {
		var elsewhere *jsonschema.LoadURLError
		err := checkSchema(ch.Schema)
		switch {
		case errors.As(err, &elsewhere):
			unchecked = append(unchecked, ch.ChartFullPath())
		case err != nil:
			return nil, fmt.Errorf("%s/values.schema.json: %w", ch.ChartFullPath(), err)
		}
	}
	for _, dependency := range ch.Dependencies() {
		more, err := checkSchemas(dependency)
		if err != nil {
			return nil, err
		}
		unchecked = append(unchecked, more...)
	}
	return unchecked, nil
}

func checkSchema(data []byte) error {
	schema, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		return err
	}
	const name = "file:///values.schema.json"
	compiler := jsonschema.NewCompiler()
	compiler.UseLoader(jsonschema.SchemeURLLoader{"file": nowhere{}, "http": nowhere{}, "https": nowhere{}, "urn": anything{}})
	if err := compiler.AddResource(name, schema); err != nil {
		return err
	}
	_, err = compiler.Compile(name)
	return err
}

// dropSchemas takes the schema from the charts of names.
func dropSchemas(ch *chart.Chart, names []string) {
	if slices.Contains(names, ch.ChartFullPath()) {
		ch.Schema = nil
	}
	for _, dependency := range ch.Dependencies() {
		dropSchemas(dependency, names)
	}
}
