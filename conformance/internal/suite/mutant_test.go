package suite

import (
	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// mutant is a transport that breaks one rule.
type mutant struct {
	rule string
	name string // its mistake, completing "a transport that ..."
	// config is that of the transport that it breaks. The default can do everything.
	config inmemory.Config
	// onServer: the harness has a Broker and processes too.
	onServer bool
	// breaks returns its changes, anew for each harness.
	breaks func() changes
	// harness, where the changes are not enough, changes the harness.
	harness func(h *Harness)
}

// able is a transport's configuration with everything, changed.
func able(change func(*core.Capabilities)) inmemory.Config {
	caps := inmemory.Everything()
	change(&caps)
	return inmemory.Config{Capabilities: &caps}
}
