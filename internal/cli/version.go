package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"runtime"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/coppice-dev/coppice/internal/tools/version"
)

// versions is the output of coppice version.
type versions struct {
	Version    string `json:"version"`
	Kubernetes string `json:"kubernetes"`
	Go         string `json:"go"`
	Platform   string `json:"platform"`
}

func newVersion(s Streams) *cobra.Command {
	var output string
	c := &cobra.Command{
		Use:     "version",
		Short:   "Print the version of this binary and of the Kubernetes API that it serves",
		Example: "  coppice version -o json",
		Args:    noArguments,
		RunE: func(*cobra.Command, []string) error {
			v := versions{
				Version: version.Version(), Kubernetes: version.Kubernetes(),
				Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
			}
			switch output {
			case "":
				_, err := io.WriteString(s.Out, fmt.Sprintf("coppice %s, Kubernetes %s, %s, %s\n", v.Version, v.Kubernetes, v.Go, v.Platform))
				return err
			case "json":
				encoder := json.NewEncoder(s.Out)
				encoder.SetIndent("", "  ")
				return encoder.Encode(v)
			case "yaml":
				data, err := yaml.Marshal(v)
				if err != nil {
					return err
				}
				_, err = s.Out.Write(data)
				return err
			}
			return usageError{fmt.Errorf("-o %q: choose json or yaml", output)}
		},
	}
	c.Flags().StringVarP(&output, "output", "o", "", "format: json or yaml (default: one line of text)")
	completeWith(c, "output", "json", "yaml")
	return c
}
