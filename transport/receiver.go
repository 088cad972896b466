package transport

import (
	"errors"
	"fmt"

	"github.com/reprise-go/reprise/core"
)

// CheckReceiver returns an error for a receiver that a transport with these capabilities
// cannot open on any queue: its mode is not claimed (errors.ErrUnsupported), or its
// MaxInFlight is not positive. An adapter's OpenReceiver calls it first.
func CheckReceiver(cfg *core.ReceiverConfig, caps *core.Capabilities) error {
	if !caps.Supports(cfg.Mode) {
		return fmt.Errorf("transaction mode %v is not one of %v: %w", cfg.Mode, caps.Transactions, errors.ErrUnsupported)
	}
	if cfg.MaxInFlight < 1 {
		return fmt.Errorf("MaxInFlight is %d, but must be at least 1", cfg.MaxInFlight)
	}
	return nil
}
