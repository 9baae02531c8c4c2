package cli

import (
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/coppice-dev/coppice/internal/collect/namespaces"
)

const logLevelUsage = "level of the log, on stderr: debug, info, warn or error"

func logLevels() []string { return []string{"debug", "info", "warn", "error"} }

// completeWith sets the values that shell completion offers for a flag.
func completeWith(c *cobra.Command, flag string, values ...string) {
	// The only error is that there is no such flag, which TestCompletion would detect.
	_ = c.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}

// deletionOrder is the flag --namespace-deletion-order. It implements pflag.Value.
type deletionOrder struct{ value [][]schema.GroupResource }

func (o *deletionOrder) add(c *cobra.Command) {
	const usage = "order in which the contents of a terminating namespace are deleted: stages separated by ;, " +
		"each of them resources separated by commas, or * for everything else"
	o.value = namespaces.DefaultStages()
	flags := c.Flags()
	flags.Var(o, "namespace-deletion-order", usage)
	flags.Var(o, "namespace-waves", usage)
	// The only error is that there is no such flag.
	_ = flags.MarkDeprecated("namespace-waves", "use --namespace-deletion-order")
}

// Set implements pflag.Value.
func (o *deletionOrder) Set(text string) (err error) {
	o.value, err = namespaces.ParseDeletionOrder(text)
	return err
}

// String implements pflag.Value.
func (o *deletionOrder) String() string { return namespaces.FormatStages(o.value) }

// Type implements pflag.Value.
func (o *deletionOrder) Type() string { return "stages" }
