package prefetch

import "math"

// Bytes counts the bytes of unstarted deliveries.
//
// Half of the limit is for one Receive (ReceiverConfig.MaxReceiveBytes), and while the
// deliveries take the other half, no more are prefetched. So the total never exceeds the
// limit by more than one message.
type Bytes struct {
	Limit       int // 0 = no limit
	bytes       int
	typicalSize int // of the largest recent delivery
}

// sizeDecay is the share of its difference to a smaller delivery that typicalSize loses:
// after a hundred small messages it has almost their size.
const sizeDecay = 16

// Add counts a delivery of n bytes. It is called only if there is a limit.
func (b *Bytes) Add(n int) {
	b.bytes += n
	b.typicalSize = max(n, b.typicalSize-(b.typicalSize-n)/sizeDecay)
}

// Remove undoes Add.
func (b *Bytes) Remove(n int) { b.bytes -= n }

// IsFull reports whether prefetching has to stop for now.
func (b *Bytes) IsFull() bool { return b.Limit > 0 && b.bytes >= (b.Limit+1)/2 }

// Room returns how many deliveries of the recent size may be prefetched: a broker that
// pushes messages needs a number.
func (b *Bytes) Room() int {
	if b.Limit == 0 {
		return math.MaxInt
	}
	return max(b.Limit/max(b.typicalSize, 1), 1)
}
