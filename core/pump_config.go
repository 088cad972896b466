package core

import (
	"github.com/reprise-go/reprise/core/internal/locks"
	"github.com/reprise-go/reprise/core/internal/pump"
)

// The pump's parts, with the engine's types.
type (
	worker          = pump.Worker[Delivery, attempt]
	fetchedDelivery = pump.Item[Delivery]
)

// pumpRules returns how a pump works with this transport in this mode.
func (ep *Endpoint) pumpRules() pump.Rules {
	receiveAndDelete := ep.mode == TransactionNone
	return pump.Rules{
		FetchPerWorker:   ep.connectionPerMessage(),
		ReceiveAndDelete: receiveAndDelete,
		CountsReleases:   ep.caps.CountsReleases && !receiveAndDelete,
		Prefetches:       ep.caps.Prefetch && !ep.connectionPerMessage() && !receiveAndDelete,
		ExactLimit:       ep.instanceAddress == "", // two queues have a delivery each
		MaxBatch:         ep.caps.MaxReceiveBatch,
		MaxPrefetchBytes: ep.maxPrefetchBytes(),
		Isolates:         ep.isolation.threshold > 0,
		SlowAfter:        max(ep.config.SlowHandler, 0),
	}
}

// newPump returns the pump of a Run, which has its receiver and its renewer.
func (r *runner) newPump() *pump.Pump[Delivery, attempt] {
	return pump.New(r.fetchCtx, r.receiver, r.ep.pumpRules(), pump.Calls[Delivery, attempt]{
		Fetched:         r.fetched(),
		Handle:          r.handle,
		Release:         r.releaseUnstarted,
		OnError:         r.receiveFailed,
		OnSlow:          r.reportSlowHandler,
		Bytes:           messageBytes,
		IsSuspect:       r.ep.isSuspectDelivery,
		TotalDeliveries: totalDeliveries,
		OnIsolate:       r.isolationChanged,
	})
}

// fetched returns the function that begins the renewal of a delivery's lock, and wraps the
// delivery for the engine.
func (r *runner) fetched() func(Delivery) fetchedDelivery {
	if r.connectCombinedReceiver() {
		return func(d Delivery) fetchedDelivery {
			return fetchedDelivery{Delivery: r.ep.withRoundCount(d), Lock: d.(*queueDelivery).lock}
		}
	}
	return func(d Delivery) fetchedDelivery {
		return fetchedDelivery{Delivery: r.ep.withRoundCount(d), Lock: r.watch(d)}
	}
}

// watch has the lock of a delivery renewed, if it has one that ends.
func (r *runner) watch(d Delivery) *locks.Context { return r.renewer.Watch(d) }

// messageBytes returns the memory that a delivery's message takes.
func messageBytes(d Delivery) int {
	in := d.Incoming()
	n := len(in.Body)
	for _, pair := range in.Headers.pairs {
		n += len(pair.key) + len(pair.value)
	}
	return n
}

// maxPrefetchBytes returns the limit for unstarted deliveries; 0 = no limit, as without
// prefetching.
func (ep *Endpoint) maxPrefetchBytes() int {
	if !ep.caps.Prefetch || ep.mode == TransactionNone || ep.connectionPerMessage() {
		return 0
	}
	return ep.config.MaxPrefetchBytes
}

// maxReceiveBytes returns the part of it that one Receive of a queue may fetch.
func (ep *Endpoint) maxReceiveBytes() int {
	half := (ep.maxPrefetchBytes() + 1) / 2
	if ep.instanceAddress != "" { // there are two queues
		return (half + 1) / 2
	}
	return half
}

// connectionPerMessage reports whether each message takes a connection of the transport
// from its receipt on.
func (ep *Endpoint) connectionPerMessage() bool {
	return ep.mode == TransactionSendsAtomicWithReceive && !ep.caps.AtomicLeases
}
