package core

import "math"

// prefetched are the bytes of a pump's unstarted deliveries, guarded by the pump's mu.
//
// Half of what they may take is for one Receive (ReceiverConfig.MaxReceiveBytes), and
// while they take the other half, nothing is fetched ahead. So there is never more than
// the bound and one message.
type prefetched struct {
	most  int // that they may take; 0 = without bound
	bytes int
	size  int // of the largest delivery of late
}

// forgetSize is the share of its difference to a smaller delivery that size loses: a
// hundred small messages after a large one, and it is almost theirs.
const forgetSize = 16

// messageBytes is what a message takes.
func messageBytes(in *Incoming) int {
	n := len(in.Body)
	for _, pair := range in.Headers.pairs {
		n += len(pair.key) + len(pair.value)
	}
	return n
}

func (p *prefetched) add(items []held) {
	if p.most == 0 {
		return
	}
	for _, item := range items {
		n := messageBytes(item.delivery.Incoming())
		p.bytes += n
		p.size = max(n, p.size-(p.size-n)/forgetSize)
	}
}

func (p *prefetched) remove(items ...held) {
	if p.most == 0 {
		return
	}
	for _, item := range items {
		p.bytes -= messageBytes(item.delivery.Incoming())
	}
}

// full reports whether nothing is to be fetched ahead now.
func (p *prefetched) full() bool { return p.most > 0 && p.bytes >= (p.most+1)/2 }

// room is how many deliveries like those of late may be prefetched: a broker that sends
// by itself is told a number.
func (p *prefetched) room() int {
	if p.most == 0 {
		return math.MaxInt
	}
	return max(p.most/max(p.size, 1), 1)
}

// maxPrefetchBytes is what unstarted deliveries may take; 0 = without bound, as where none
// are fetched ahead.
func (ep *Endpoint) maxPrefetchBytes() int {
	if !ep.caps.Prefetch || ep.mode == TransactionNone || ep.holdsConnections() {
		return 0
	}
	return ep.config.MaxPrefetchBytes
}

// maxReceiveBytes is what one Receive of a queue may fetch of it.
func (ep *Endpoint) maxReceiveBytes() int {
	half := (ep.maxPrefetchBytes() + 1) / 2
	if ep.instanceAddress != "" { // two queues are received from
		return (half + 1) / 2
	}
	return half
}
