package source

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"

	"sigs.k8s.io/kustomize/api/konfig"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// kustomizeRoot is where files lie in the file system in memory that kustomize sees.
const kustomizeRoot = "/source"

// kustomizing lets one build run at a time: kustomize keeps the OpenAPI schema of a build in a variable of its own.
var kustomizing sync.Mutex

// kustomize builds the directory dir of files, in memory.
//
// Kustomize itself fetches by HTTP and runs git for whatever looks like a URL, and no option turns that off. So all that it would follow is
// followed here first, and must be a file or a directory among files.
func kustomize(files []file, dir string) (out []byte, err error) {
	defer func() {
		// It has panicked on bad input before.
		if r := recover(); r != nil {
			out, err = nil, fmt.Errorf("kustomize has failed: %v", r)
		}
	}()
	fs := filesys.MakeFsInMemory()
	for _, f := range files {
		if f.link {
			continue
		}
		if err := fs.WriteFile(path.Join(kustomizeRoot, f.name), f.data); err != nil {
			return nil, fmt.Errorf("%q: %w", f.name, err)
		}
	}
	root := path.Join(kustomizeRoot, dir)
	if !fs.IsDir(root) {
		return nil, fmt.Errorf("there is no directory %q", dir)
	}
	c := &confined{fs: fs, left: newBudget(maxParsed), within: map[string]bool{}}
	if err := c.check(root); err != nil {
		return nil, err
	}
	kustomizing.Lock()
	defer kustomizing.Unlock()
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(fs, root)
	if err != nil {
		return nil, fmt.Errorf("kustomize: %s", strings.ReplaceAll(err.Error(), kustomizeRoot+"/", ""))
	}
	return built.AsYaml()
}

// confined follows kustomizations.
type confined struct {
	fs filesys.FileSystem
	// left is what may still be read. A base counts as often as it is referred to: few files may make very many objects.
	left *budget
	// within are the directories that are being looked at.
	within map[string]bool
}

// check looks at the kustomization of dir, and all that it refers to.
func (c *confined) check(dir string) error {
	if c.within[dir] {
		return fmt.Errorf("kustomization in %s: refers to itself", shown(dir))
	}
	c.within[dir] = true
	defer delete(c.within, dir)
	k, err := c.read(dir)
	if err != nil {
		return err
	}
	name := shown(dir)
	switch {
	case len(k.HelmCharts) > 0:
		return fmt.Errorf("kustomization in %s: helmCharts aren't rendered: use a TenantAddon with spec.chart", name)
	case len(k.Generators) > 0 || len(k.Transformers) > 0 || len(k.Validators) > 0:
		return fmt.Errorf("kustomization in %s: generators, transformers and validators are plugins, which aren't run: use kustomize's own "+
			"fields, as configMapGenerator or patches", name)
	}
	for _, r := range referencesOf(k) {
		to, err := c.resolve(dir, r.path)
		if err != nil {
			return fmt.Errorf("kustomization in %s: %s: %w", name, r.field, err)
		}
		if err := c.spend(to); err != nil {
			return fmt.Errorf("kustomization in %s: %s: %w", name, r.field, err)
		}
		if r.base && c.fs.IsDir(to) {
			if err := c.check(to); err != nil {
				return err
			}
		}
	}
	return nil
}

// spend takes what is at p from what may be read.
func (c *confined) spend(p string) error {
	c.left.files--
	if !c.fs.IsDir(p) {
		data, err := c.fs.ReadFile(p)
		if err != nil {
			return err
		}
		c.left.bytes -= int64(len(data))
	}
	if c.left.files < 0 || c.left.bytes < 0 {
		return fmt.Errorf("with all that it refers to, it is more than %d files or %d MiB", maxFiles, c.left.limit>>20)
	}
	return nil
}

// read reads the kustomization of dir just as kustomize does.
func (c *confined) read(dir string) (*types.Kustomization, error) {
	var found []string
	for _, name := range konfig.RecognizedKustomizationFileNames() {
		if p := path.Join(dir, name); c.fs.Exists(p) && !c.fs.IsDir(p) {
			found = append(found, p)
		}
	}
	if len(found) != 1 {
		return nil, fmt.Errorf("%s must hold one of the files %s; holds %d", shown(dir),
			strings.Join(konfig.RecognizedKustomizationFileNames(), ", "), len(found))
	}
	data, err := c.fs.ReadFile(found[0])
	if err != nil {
		return nil, err
	}
	k := &types.Kustomization{}
	if err := k.Unmarshal(data); err != nil {
		return nil, fmt.Errorf("%s: %w", shown(found[0]), err)
	}
	k.FixKustomization()
	return k, nil
}

// reference is what a kustomization refers to. A base may be a directory with another kustomization.
type reference struct {
	field, path string
	base        bool
}

// referencesOf are all files and directories that kustomize reads for a kustomization.
func referencesOf(k *types.Kustomization) []reference {
	var all []reference
	add := func(field string, base bool, paths ...string) {
		for _, p := range paths {
			all = append(all, reference{field: field, path: p, base: base})
		}
	}
	add("resources", true, k.Resources...)
	add("components", true, k.Components...)
	add("crds", false, k.Crds...)
	add("configurations", false, k.Configurations...)
	if p, ok := k.OpenAPI["path"]; ok {
		add("openapi", false, p)
	}
	//nolint:staticcheck // Deprecated, but kustomize reads it.
	for _, p := range k.PatchesStrategicMerge {
		if !isInline(string(p)) {
			add("patchesStrategicMerge", false, string(p))
		}
	}
	//nolint:staticcheck // Deprecated, but kustomize reads them.
	for _, p := range slices.Concat(k.Patches, k.PatchesJson6902) {
		if p.Path != "" {
			add("patches", false, p.Path)
		}
	}
	for _, r := range k.Replacements {
		if r.Path != "" {
			add("replacements", false, r.Path)
		}
	}
	for _, g := range k.ConfigMapGenerator {
		add("configMapGenerator", false, sourcesOf(g.KvPairSources)...)
	}
	for _, g := range k.SecretGenerator {
		add("secretGenerator", false, sourcesOf(g.KvPairSources)...)
	}
	return all
}

// isInline says whether a patch is one, instead of the name of a file: kustomize takes neither for a URL.
func isInline(patch string) bool {
	return strings.Contains(patch, "\n") || strings.HasPrefix(patch, "{")
}

// sourcesOf are the files of a generator, of which some are written as key=file.
func sourcesOf(s types.KvPairSources) []string {
	var files []string
	for _, f := range s.FileSources {
		if _, after, ok := strings.Cut(f, "="); ok {
			f = after
		}
		files = append(files, f)
	}
	files = append(files, s.EnvSources...)
	if s.EnvSource != "" {
		files = append(files, s.EnvSource)
	}
	return files
}

// resolve returns the path in the file system of what a kustomization in dir refers to, which must be there.
func (c *confined) resolve(dir, reference string) (string, error) {
	if strings.ContainsAny(reference, ":@?\n") || strings.HasPrefix(strings.ToLower(reference), "github.com") {
		return "", fmt.Errorf("%q is at another place, and nothing is fetched: put it in the archive", reference)
	}
	if reference == "" || path.IsAbs(reference) {
		return "", fmt.Errorf("%q must be a path relative to the kustomization", reference)
	}
	to := path.Join(dir, reference)
	if to != kustomizeRoot && !strings.HasPrefix(to, kustomizeRoot+"/") {
		return "", fmt.Errorf("%q leads out of the source", reference)
	}
	if !c.fs.Exists(to) {
		return "", fmt.Errorf("there is no %q", reference)
	}
	return to, nil
}

// shown is a path in messages.
func shown(p string) string {
	if p == kustomizeRoot {
		return "the source's root"
	}
	return fmt.Sprintf("%q", strings.TrimPrefix(p, kustomizeRoot+"/"))
}
