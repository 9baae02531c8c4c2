package coppicetest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// definitionsPath is the path of CustomResourceDefinitions.
const definitionsPath = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

// fieldManager is the manager of the fields that this package writes.
const fieldManager = "coppicetest"

// apply applies definitions and waits until their resources are served.
func (p *Plane) apply(ctx context.Context, sources []source) error {
	for _, from := range sources {
		files, err := from.read()
		if err != nil {
			return err
		}
		found := 0
		for _, file := range files {
			for _, document := range documents(file.data) {
				if !isDefinition(document) {
					continue
				}
				found++
				if err := p.define(ctx, document); err != nil {
					return fmt.Errorf("definition in %s: %w", file.path, err)
				}
			}
		}
		if found == 0 {
			return fmt.Errorf("no CustomResourceDefinition in %s", files[0].path)
		}
	}
	return nil
}

// read returns the files of a source; at least one.
func (s source) read() ([]source, error) {
	if s.path == "" {
		return []source{{path: "WithCRDBytes", data: s.data}}, nil
	}
	info, err := os.Stat(s.path)
	if err != nil {
		return nil, fmt.Errorf("definitions: %w", err)
	}
	paths := []string{s.path}
	if info.IsDir() {
		entries, err := os.ReadDir(s.path)
		if err != nil {
			return nil, fmt.Errorf("definitions: %w", err)
		}
		paths = nil
		for _, entry := range entries {
			if !entry.IsDir() && slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(entry.Name())) {
				paths = append(paths, filepath.Join(s.path, entry.Name()))
			}
		}
		if len(paths) == 0 {
			return nil, fmt.Errorf("no .yaml, .yml or .json file in %s", s.path)
		}
	}
	var files []source
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("definitions: %w", err)
		}
		files = append(files, source{path, data})
	}
	return files, nil
}

// separator matches the lines that separate the documents of a YAML file.
var separator = regexp.MustCompile(`(?m)^---([ \t].*)?$`)

// documents splits YAML. JSON is one document.
func documents(text []byte) [][]byte {
	var all [][]byte
	for _, document := range separator.Split(string(bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n"))), -1) {
		if strings.TrimSpace(document) != "" {
			all = append(all, []byte(document))
		}
	}
	return all
}

// definitionKind matches the kind line of a CustomResourceDefinition in YAML.
var definitionKind = regexp.MustCompile(`(?m)^kind:[ \t]*["']?CustomResourceDefinition["']?[ \t]*(#.*)?$`)

func isDefinition(document []byte) bool {
	var object struct{ Kind string }
	if json.Unmarshal(document, &object) == nil {
		return object.Kind == "CustomResourceDefinition"
	}
	return definitionKind.Match(document)
}

// define writes a definition and waits until its resources are served.
func (p *Plane) define(ctx context.Context, document []byte) error {
	var written struct{ Metadata struct{ Name string } }
	err := p.api.do(ctx, request{
		method: http.MethodPost, path: definitionsPath + "?fieldManager=" + fieldManager, contentType: "application/yaml", body: document,
	}, &written)
	var status statusError
	if errors.As(err, &status) && status.code == http.StatusConflict && status.name != "" {
		err = p.api.do(ctx, request{
			method: http.MethodPatch, path: definitionsPath + "/" + url.PathEscape(status.name) + "?force=true&fieldManager=" + fieldManager,
			contentType: "application/apply-patch+yaml", body: document,
		}, &written)
	}
	if err != nil {
		return err
	}
	return p.awaitDefinition(ctx, written.Metadata.Name)
}

// definition is the part of a CustomResourceDefinition that says whether it is served.
type definition struct {
	Spec struct {
		Group    string
		Names    struct{ Plural string }
		Versions []struct {
			Name   string
			Served bool
		}
	}
	Status struct {
		Conditions []struct{ Type, Status, Message string }
	}
}

// state reports whether the definition is established; the error says why it never will be.
func (d definition) state() (established bool, err error) {
	for _, c := range d.Status.Conditions {
		switch {
		case c.Type == "Established" && c.Status == "True":
			return true, nil
		case c.Type == "NamesAccepted" && c.Status == "False":
			return false, fmt.Errorf("its names are not accepted: %s", c.Message)
		}
	}
	return false, nil
}

// awaitServed asks for the objects of a definition until all its versions are served: a server that answers next may not
// know an established definition yet.
func (p *Plane) awaitServed(ctx context.Context, d definition) error {
	tick := time.NewTicker(servedInterval)
	defer tick.Stop()
	for _, version := range d.Spec.Versions {
		path := "/apis/" + d.Spec.Group + "/" + version.Name + "/" + d.Spec.Names.Plural + "?limit=1"
		for version.Served {
			err := p.api.do(ctx, request{method: http.MethodGet, path: path}, nil)
			if !isCode(err, http.StatusNotFound) {
				break // whatever else is wrong, the version is served
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return fmt.Errorf("it is established, and not served: %w", err)
			}
		}
	}
	return nil
}

// servedInterval is the time between two such requests.
const servedInterval = 10 * time.Millisecond

// awaitDefinition watches a definition until it is established, and waits until it is served.
func (p *Plane) awaitDefinition(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	query := url.Values{"watch": {"1"}, "fieldSelector": {"metadata.name=" + name}}
	answer, err := p.api.send(ctx, request{method: http.MethodGet, path: definitionsPath + "?" + query.Encode()})
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	for events := json.NewDecoder(answer.Body); ; {
		var event struct{ Object definition }
		if err := events.Decode(&event); err != nil {
			return fmt.Errorf("%s is not established: %w", name, err)
		}
		established, err := event.Object.state()
		if err != nil {
			return err
		}
		if established {
			return p.awaitServed(ctx, event.Object)
		}
	}
}
