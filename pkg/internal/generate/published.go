package main

// The schemas in the repository are the published ones: whoever reads or sends events relies on them. They change compatibly only.

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/stoker-k8s/stoker/pkg/api/event"
)

// compatibleSchemas returns the schemas by their path. Its error lists every change that breaks users of the schemas under root.
func compatibleSchemas(root string) (map[string][]byte, error) {
	current, err := schemas(root)
	if err != nil {
		return nil, err
	}
	published, err := readPublished(root)
	if err != nil {
		return nil, err
	}
	if problems := letDown(published, current); len(problems) > 0 {
		return nil, fmt.Errorf("incompatible with the schemas in %s; leave the type as it is and make a new one (….v2). If no release has carried it yet, "+
			"remove its file and run `make generate` again:\n%s", schemaDir, strings.Join(problems, "\n"))
	}
	return current, nil
}

// readPublished reads the schemas under root by their path, none where there is no directory.
func readPublished(root string) (map[string][]byte, error) {
	entries, err := os.ReadDir(filepath.Join(root, schemaDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	published := map[string][]byte{}
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(root, schemaDir, e.Name()))
		if err != nil {
			return nil, err
		}
		published[path.Join(schemaDir, e.Name())] = data
	}
	return published, nil
}

// letDown lists what those who rely on the published schemas could not rely on any more.
func letDown(published, current map[string][]byte) []string {
	var problems []string
	for _, file := range slices.Sorted(maps.Keys(published)) {
		short := strings.TrimSuffix(path.Base(file), ".json")
		if current[file] == nil {
			problems = append(problems, short+": was published and is gone")
			continue
		}
		var was, is any
		if err := errors.Join(json.Unmarshal(published[file], &was), json.Unmarshal(current[file], &is)); err != nil {
			problems = append(problems, fmt.Sprintf("%s: %v", short, err))
			continue
		}
		for _, p := range incompatible(directionOf(short), was, is) {
			problems = append(problems, short+": "+p)
		}
	}
	return problems
}

// directionOf a schema, by its name: that of a type that is gone doesn't matter.
func directionOf(short string) direction {
	for _, e := range event.Catalogue() {
		if e.Short() == short && e.Command {
			return taken
		}
	}
	for _, q := range event.Questions() {
		if requestOf(q) == short {
			return taken
		}
	}
	return written
}
