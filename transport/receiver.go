package transport

import (
	"errors"
	"fmt"

	"github.com/reprise-go/reprise/core"
)

// CheckReceiver returns what is wrong with a receiver's configuration whatever its queue,
// for a transport with these capabilities: a mode that is not claimed
// (errors.ErrUnsupported, C1), a MaxInFlight that is none. An adapter's OpenReceiver calls it
// first.
func CheckReceiver(cfg *core.ReceiverConfig, caps *core.Capabilities) error {
	if !caps.Supports(cfg.Mode) {
		return fmt.Errorf("transaction mode %v is not one of %v: %w", cfg.Mode, caps.Transactions, errors.ErrUnsupported)
	}
	if cfg.MaxInFlight < 1 {
		return fmt.Errorf("MaxInFlight is %d, but must be at least 1", cfg.MaxInFlight)
	}
	return nil
}
