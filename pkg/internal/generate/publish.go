package main

// What was published: a copy of each schema that only `make publish` changes, and only compatibly.

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/stoker-k8s/stoker/pkg/api/event"
)

const publishedDir = schemaDir + "/published"

// publish returns the published schemas as they are to be, by their path. Its error lists every incompatible change.
func publish(root string) (map[string][]byte, error) {
	current, err := schemas(root)
	if err != nil {
		return nil, err
	}
	published, err := readPublished(root)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	if problems := letDown(published, current); len(problems) > 0 {
		return nil, errors.New(strings.Join(problems, "\n"))
	}
	files := map[string][]byte{}
	for file, data := range current {
		files[path.Join(publishedDir, path.Base(file))] = data
	}
	return files, nil
}

// readPublished reads the published schemas by the path of the schema as it is now.
func readPublished(root string) (map[string][]byte, error) {
	entries, err := os.ReadDir(filepath.Join(root, publishedDir))
	if err != nil {
		return nil, err
	}
	published := map[string][]byte{}
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(root, publishedDir, e.Name()))
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

// unpublished lists schemas that are not as they were published.
func unpublished(published, current map[string][]byte) []string {
	var differ []string
	for _, file := range slices.Sorted(maps.Keys(current)) {
		if !bytes.Equal(published[file], current[file]) {
			differ = append(differ, strings.TrimSuffix(path.Base(file), ".json"))
		}
	}
	return differ
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
