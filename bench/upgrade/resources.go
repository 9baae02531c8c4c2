package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	apidiscovery "k8s.io/api/apidiscovery/v2"
)

// endpoints are resources and subresources, "apps/v1 deployments/scale", with their verbs.
type endpoints map[string][]string

// resourcesChanged lists the resources and verbs that came and went.
func resourcesChanged(page *strings.Builder, before, after release) error {
	rows, err := compare(before, after, readEndpoints, compareEndpoints)
	section(page, "Resources and verbs that came and went", "Alpha and beta versions are not served unless somebody asks for them, here as upstream.", rows)
	return err
}

// readEndpoints reads the discovery document of a release.
func readEndpoints(r release) (endpoints, error) {
	file := r.file(kubernetes, "api", "discovery", "aggregated_v2.json")
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var groups apidiscovery.APIGroupDiscoveryList
	if err := json.Unmarshal(data, &groups); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	all := endpoints{}
	for _, group := range groups.Items {
		for _, version := range group.Versions {
			prefix := strings.TrimPrefix(group.Name+"/"+version.Version, "/") + " "
			for _, resource := range version.Resources {
				all[prefix+resource.Resource] = resource.Verbs
				for _, sub := range resource.Subresources {
					all[prefix+resource.Resource+"/"+sub.Subresource] = sub.Verbs
				}
			}
		}
	}
	return all, addCore(r, all)
}

// addCore adds the resources of the core group, which the aggregated document does not have.
func addCore(r release, all endpoints) error {
	file := r.file(kubernetes, "api", "discovery", "api__v1.json")
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var core struct {
		Resources []struct {
			Name  string
			Verbs []string
		}
	}
	if err := json.Unmarshal(data, &core); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	for _, resource := range core.Resources {
		all["v1 "+resource.Name] = resource.Verbs
	}
	return nil
}

// compareEndpoints describes each endpoint that only one release has, or that has other verbs.
func compareEndpoints(old, young endpoints) []string {
	var rows []string
	names := maps.Clone(old)
	maps.Copy(names, young)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		was, hadIt := old[name]
		is, hasIt := young[name]
		came, went := without(is, was), without(was, is)
		switch {
		case !hadIt:
			rows = append(rows, fmt.Sprintf("came: `%s` (%s)", name, strings.Join(is, " ")))
		case !hasIt:
			rows = append(rows, fmt.Sprintf("went: `%s`", name))
		case len(came)+len(went) > 0:
			rows = append(rows, fmt.Sprintf("verbs of `%s`: came %v, went %v", name, came, went))
		}
	}
	return rows
}

// without returns the elements of a that b does not have.
func without(a, b []string) []string {
	return slices.DeleteFunc(slices.Clone(a), func(s string) bool { return slices.Contains(b, s) })
}
