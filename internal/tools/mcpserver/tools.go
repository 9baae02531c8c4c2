package mcpserver

import (
	"context"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// waitTool is the name of the tool whose calls take long.
const waitTool = "wait"

// session is one session, and has the handlers of its tools.
type session struct {
	*Server

	shown *shown
}

// answer is an answer of a tool.
type answer interface {
	// text returns the answer for people and models, in a few lines.
	text() string
}

// add adds a tool, whose answers are a text and a structure.
func add[In any, Out answer](to *mcp.Server, tool *mcp.Tool, handle func(context.Context, In) (Out, error)) {
	mcp.AddTool(to, tool, func(ctx context.Context, _ *mcp.CallToolRequest, in In) (*mcp.CallToolResult, Out, error) {
		out, err := handle(ctx, in)
		if err != nil {
			return nil, out, err // which becomes the result, for the model to read
		}
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: out.text()}}}, out, nil
	})
}

// addTools adds the tools of a session. Without Deleting, the tools that change the cluster do not exist.
func (s *session) addTools(to *mcp.Server) {
	reading := &mcp.ToolAnnotations{ReadOnlyHint: true, IdempotentHint: true}
	add(to, &mcp.Tool{
		Name: "preview", Annotations: reading,
		Description: "Predict a deletion, and change nothing: which objects go, stay, hang or are refused, and why. " +
			"The answer has counts, the objects that need attention, and a digest. With cursor \"all\", it lists all objects.",
	}, s.preview)
	add(to, &mcp.Tool{
		Name: "explain", Annotations: reading,
		Description: "Explain why objects still exist or why they are gone, down to the last cause, with the safest next step. " +
			"Without objects, it explains everything that is being deleted, grouped by cause.",
	}, s.explain)
	add(to, &mcp.Tool{
		Name: "audit", Annotations: reading,
		Description: "Find owner references and deletions that are wrong, in a namespace or in the whole cluster.",
	}, s.audit)
	add(to, &mcp.Tool{
		Name: "graph", Annotations: reading,
		Description: "List the owners and the dependents of objects.",
	}, s.graph)
	add(to, &mcp.Tool{
		Name: "stories", Annotations: reading,
		Description: "List the deletions that a running collector has observed, the latest first; or, with an id, the objects of one deletion.",
	}, s.stories)
	add(to, &mcp.Tool{
		Name: waitTool, Annotations: reading,
		Description: "Wait until a deletion is over, with all its dependents. It ends early if the deletion is proved to be stuck.",
	}, s.wait)
	if s.Mode != Deleting {
		return
	}
	isDestructive := true
	add(to, &mcp.Tool{
		Name: "delete", Annotations: &mcp.ToolAnnotations{DestructiveHint: &isDestructive},
		Description: "Make a deletion that the user has agreed to, exactly as a preview of this session has shown it. " +
			"It takes the digest of that preview and the same arguments, works once, and deletes nothing if the cluster has changed.",
	}, s.delete)
	additive := false
	add(to, &mcp.Tool{
		Name: "undo", Annotations: &mcp.ToolAnnotations{DestructiveHint: &additive},
		Description: "Create the objects of a deletion again, from a backup that the tool delete has made, or from the recycle bin of the server.",
	}, s.undo)
}

// failed returns the result of a call that has failed.
func failed(err error) *mcp.CallToolResult {
	return &mcp.CallToolResult{IsError: true, Content: []mcp.Content{&mcp.TextContent{Text: clip(err.Error(), mostError)}}}
}
