package core

import "math"

// prefetchedBytes are the bytes of a pump's unstarted deliveries, guarded by the pump's
// mu.
//
// Half of the limit is for one Receive (ReceiverConfig.MaxReceiveBytes), and while the
// deliveries take the other half, no more are prefetched. So the total never exceeds the
// limit by more than one message.
type prefetchedBytes struct {
	limit       int // 0 = no limit
	bytes       int
	typicalSize int // of the largest recent delivery
}

// sizeDecay is the share of its difference to a smaller delivery that typicalSize loses:
// after a hundred small messages it has almost their size.
const sizeDecay = 16

// messageBytes returns the memory that a message takes.
func messageBytes(in *Incoming) int {
	n := len(in.Body)
	for _, pair := range in.Headers.pairs {
		n += len(pair.key) + len(pair.value)
	}
	return n
}

func (p *prefetchedBytes) add(items []fetchedDelivery) {
	if p.limit == 0 {
		return
	}
	for _, item := range items {
		n := messageBytes(item.delivery.Incoming())
		p.bytes += n
		p.typicalSize = max(n, p.typicalSize-(p.typicalSize-n)/sizeDecay)
	}
}

func (p *prefetchedBytes) remove(items ...fetchedDelivery) {
	if p.limit == 0 {
		return
	}
	for _, item := range items {
		p.bytes -= messageBytes(item.delivery.Incoming())
	}
}

// isFull reports whether prefetching has to stop for now.
func (p *prefetchedBytes) isFull() bool { return p.limit > 0 && p.bytes >= (p.limit+1)/2 }

// room returns how many deliveries of the recent size may be prefetched: a broker that
// pushes messages needs a number.
func (p *prefetchedBytes) room() int {
	if p.limit == 0 {
		return math.MaxInt
	}
	return max(p.limit/max(p.typicalSize, 1), 1)
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
