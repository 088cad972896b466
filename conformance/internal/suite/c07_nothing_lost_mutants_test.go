package suite

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// settlingAt does something else with every n-th settlement of a kind.
func settlingAt(n int64, asked string, replacement func(d *brokenDelivery) error) changes {
	var count atomic.Int64
	return changes{settle: func(d *brokenDelivery, operation string, next func() error) error {
		if operation == asked && count.Add(1)%n == 0 {
			return replacement(d)
		}
		return next()
	}}
}

// onEnded does something when a settlement was refused because its context had
// ended.
func onEnded(do func(d *brokenDelivery)) changes {
	var mu sync.Mutex
	settled := map[*brokenDelivery]bool{}
	return changes{settle: func(d *brokenDelivery, operation string, next func() error) error {
		mu.Lock()
		defer mu.Unlock()
		if settled[d] {
			return core.ErrSettled
		}
		err := next()
		if errors.Is(err, context.Canceled) && operation == "Complete" {
			settled[d] = true
			do(d)
		}
		return err
	}}
}

var nothingLostMutants = []mutant{
	{rule: "C7", name: "releases completed messages", breaks: func() changes {
		return settling("Complete", func(d *brokenDelivery) error { return d.Delivery.Release(ctxBackground) })
	}},
	{rule: "C7", name: "acknowledges later, and forgets it when its receiver is closed", breaks: func() changes { return lazily("Complete") }},
	{rule: "C7", name: "forgets to acknowledge", config: withLocks, breaks: forgetsToAcknowledge},
	{rule: "C7", name: "acknowledges every delivery up to the one that is completed, without knowing it", breaks: func() changes { return acknowledgesUpTo(notSettled) }},
	{rule: "C7", name: "acknowledges an Abandon now and then", breaks: func() changes { return settlingAt(7, "Abandon", completeDelivery) }},
	{rule: "C7", name: "acknowledges a Release now and then", breaks: func() changes { return settlingAt(7, "Release", completeDelivery) }},
	{rule: "C7", name: "completes the unsettled messages of a closed receiver", breaks: losesWhenClosed},
	{rule: "C7", name: "settles a delivery and says that the context ended", breaks: func() changes {
		return onEnded(func(d *brokenDelivery) { _ = completeDelivery(d) })
	}},
	{rule: "C7", name: "takes a settlement whose context ended for done", breaks: func() changes { return onEnded(func(*brokenDelivery) {}) }},
	{rule: "C7", name: "says that it settled though the context ended", breaks: func() changes {
		return answering(func(_ *brokenDelivery, _ string, err error) error {
			if errors.Is(err, context.Canceled) {
				return nil
			}
			return err
		})
	}},
	{rule: "C7", name: "consumes after handing out in mode None", breaks: consumesLate},
	{rule: "C7", name: "lets locks end in mode None", config: withLocks, breaks: consumesLate},
	{rule: "C7", name: "consumes messages before it hands them out, in every mode", onServer: true, breaks: consumesEarly},
	{rule: "C7", name: "consumes messages in None when they are completed", onServer: true, breaks: func() changes {
		return changes{open: func(_ *brokenTransport, _ context.Context, cfg core.ReceiverConfig, next func(core.ReceiverConfig) (core.Receiver, error)) (core.Receiver, error) {
			if cfg.Mode == core.TransactionNone {
				cfg.Mode = core.TransactionReceiveOnly
			}
			return next(cfg)
		}}
	}},
	{rule: "C7", name: "keeps waiting messages in memory, and claims to be durable", onServer: true, harness: atDeath(func(s *server, t *inmemory.Transport) {
		s.takeAll(t)
	})},
	{rule: "C7", name: "completes a moment after Complete has returned nil", onServer: true, breaks: func() changes {
		var completed sync.Map // no lock is held while a message travels: the clock of the case would stand still
		return changes{settle: func(d *brokenDelivery, operation string, next func() error) error {
			if _, ok := completed.Load(d); ok {
				return core.ErrSettled
			}
			if operation != "Complete" {
				return next()
			}
			completed.Store(d, true)
			time.AfterFunc(time.Millisecond, func() { _ = next() })
			return nil
		}}
	}},
	{rule: "C7", name: "loses the messages in flight when the broker is killed", onServer: true, breaks: consumesEarly},
}

// consumesLate opens receivers in mode None as in ReceiveOnly.
func consumesLate() changes {
	return changes{open: func(_ *brokenTransport, _ context.Context, cfg core.ReceiverConfig, next func(core.ReceiverConfig) (core.Receiver, error)) (core.Receiver, error) {
		if cfg.Mode == core.TransactionNone {
			cfg.Mode = core.TransactionReceiveOnly
		}
		return next(cfg)
	}}
}

func notSettled(err error) error {
	if errors.Is(err, core.ErrSettled) {
		return nil
	}
	return err
}
