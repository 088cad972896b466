package core

import "github.com/reprise-go/reprise/core/internal/prefetch"

// configurePump sets how a pump works with this transport in this mode.
func (ep *Endpoint) configurePump(p *pump) *pump {
	p.fetchPerWorker = ep.connectionPerMessage()
	p.receiveAndDelete = ep.mode == TransactionNone
	p.countsReleases = ep.caps.CountsReleases && !p.receiveAndDelete
	p.prefetches = ep.caps.Prefetch && !p.fetchPerWorker && !p.receiveAndDelete
	p.settlesOffSlot = p.prefetches
	p.maxBatch = ep.caps.MaxReceiveBatch
	p.estimate.Max = prefetch.Max
	if p.countsReleases {
		p.estimate.Max = prefetch.MaxCounted
	}
	p.buffer.Limit = ep.maxPrefetchBytes()
	if ep.isolation.threshold > 0 {
		p.isolation.isSuspect, p.isolation.probing = ep.isSuspect, true
		p.isolation.single = ep.instanceAddress == ""
	}
	return p
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
