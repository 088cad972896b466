package inmemory

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/reprise-go/reprise/core"
)

// delayPrecision is a generous bound for how late a timer of a Go program fires on an
// idle machine.
const delayPrecision = 10 * time.Millisecond

// Config sets the broker and the capabilities of a transport. The zero value means a
// separate broker and all capabilities.
type Config struct {
	// Broker holds the messages. Default: a new one for this transport alone. Transports
	// that share a Broker exchange messages, like processes that are connected to the
	// same server.
	Broker *Broker

	// Capabilities is what the transport claims and supports; it refuses anything beyond.
	// Default: Everything(). It may claim less than that, never more. Limits and
	// expectations such as MaxReceiveBatch, MaxMessageBytes or CountsReleases are
	// honoured as well: CountsReleases makes Release raise the count, and a delivery that
	// was kept for MaxLockTime is lost, renewed or not. Without NativeDeliveryCount each
	// receiver counts alone in a transport.DeliveryLog and forgets when it is closed. A
	// DelayPrecision of 0 becomes the transport's own. MayDuplicate, AtomicLeases,
	// ConfirmsSettlement, Prefetch and MaxUnsettled are claims only: this transport never
	// duplicates and always confirms.
	Capabilities *core.Capabilities

	// LockDuration is how long a delivery stays locked unless it is renewed. Then the
	// message becomes available to other receivers, as after a crash of the receiver:
	// with NativeDeliveryCount, the count is one higher. Default: 0, locks end only with
	// the settlement or the receiver. LockDuration has no effect in TransactionNone,
	// which has no locks.
	LockDuration time.Duration
}

// Everything returns all capabilities that a transport of this package can have, as a
// starting point for Config.Capabilities:
//
//	able := inmemory.Everything()
//	able.DelayedDelivery = false
//	transport, err := inmemory.New(inmemory.Config{Capabilities: &able})
func Everything() core.Capabilities {
	return core.Capabilities{
		Transactions: []core.TransactionMode{
			core.TransactionNone,
			core.TransactionReceiveOnly,
			core.TransactionSendsAtomicWithReceive,
		},
		Abilities: core.Abilities{
			DelayedDelivery:  true,
			PublishSubscribe: true,
			BaseTopics:       true,
			TimeToBeReceived: true,
			DeadLetter:       true,
			GroupOrder:       true,
			Savepoints:       true,
			Browse:           true,
			Take:             true,
		},
		Limits:     core.Limits{DelayPrecision: delayPrecision},
		Guarantees: core.Guarantees{NativeDeliveryCount: true, ConfirmsSettlement: true},
	}
}

// capabilities returns the capabilities that the transport will claim, or an error with
// all problems of the configuration.
func (c Config) capabilities() (core.Capabilities, error) {
	var errs []error
	if c.LockDuration < 0 {
		errs = append(errs, fmt.Errorf("LockDuration is %v; use 0 for locks that do not expire", c.LockDuration))
	}
	if c.Capabilities == nil {
		return Everything(), errors.Join(errs...)
	}
	caps := *c.Capabilities
	caps.Transactions = slices.Clone(caps.Transactions)
	caps.BaseTopics = caps.BaseTopics && caps.PublishSubscribe
	if len(caps.Transactions) == 0 {
		errs = append(errs, errors.New("Capabilities.Transactions is empty; name at least one mode"))
	}
	for i, mode := range caps.Transactions {
		if !Everything().Supports(mode) {
			errs = append(errs, fmt.Errorf("Capabilities.Transactions lists %v, which is no mode of a transport", mode))
		}
		if slices.Contains(caps.Transactions[:i], mode) {
			errs = append(errs, fmt.Errorf("Capabilities.Transactions lists %v twice", mode))
		}
	}
	if caps.Durable {
		errs = append(errs, errors.New("Capabilities.Durable is claimed, but memory is not durable"))
	}
	if caps.CountsReleases && !caps.NativeDeliveryCount {
		errs = append(errs, errors.New("Capabilities.CountsReleases needs NativeDeliveryCount: a count in the transport's memory counts failures only"))
	}
	if caps.DelayedDelivery {
		if caps.DelayPrecision == 0 {
			caps.DelayPrecision = delayPrecision
		}
		if caps.DelayPrecision < delayPrecision {
			errs = append(errs, fmt.Errorf("Capabilities.DelayPrecision is %v, but at least %v", caps.DelayPrecision, delayPrecision))
		}
	}
	for _, limit := range []struct {
		name  string
		value int64
	}{
		{"MaxDelay", int64(caps.MaxDelay)},
		{"SubscriptionDelay", int64(caps.SubscriptionDelay)},
		{"DeliveryCountLag", int64(caps.DeliveryCountLag)},
		{"MaxLockTime", int64(caps.MaxLockTime)},
		{"MaxReceiveBatch", int64(caps.MaxReceiveBatch)},
		{"MaxUnsettled", int64(caps.MaxUnsettled)},
		{"MaxMessageBytes", int64(caps.MaxMessageBytes)},
		{"MaxHeaderBytes", int64(caps.MaxHeaderBytes)},
		{"MaxHeaderKeyBytes", int64(caps.MaxHeaderKeyBytes)},
	} {
		if limit.value < 0 {
			errs = append(errs, fmt.Errorf("Capabilities.%s is negative; use 0 for no limit", limit.name))
		}
	}
	return caps, errors.Join(errs...)
}
