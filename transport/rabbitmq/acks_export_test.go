package rabbitmq

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprise-go/reprise/core"
)

// modelBroker is what a broker does with acknowledgements of one channel.
type modelBroker struct {
	t       *testing.T
	a       *ackBatcher
	ordered map[uint64]settlement // by tags, of those that are settled
	arrived map[uint64]*tagEntry
	left    map[uint64]bool // the broker waits for their acknowledgement
}

// write has the broker do what the next flush says.
func (b *modelBroker) write(all bool) {
	batch := b.a.take(all)
	for _, r := range batch.requeues {
		want := release
		if r.counted {
			want = abandon
		}
		b.settle(r.entry.tag, want)
	}
	if batch.upTo > 0 {
		if !b.left[batch.upTo] {
			b.t.Fatalf("tag %d is acknowledged again", batch.upTo)
		}
		if batch.multiple {
			for tag := range b.left {
				if tag < batch.upTo {
					b.settle(tag, acknowledge)
				}
			}
		}
		b.settle(batch.upTo, acknowledge)
	}
	for _, tag := range batch.single {
		b.settle(tag, acknowledge)
	}
}

// written writes if the channel would, and reports whether it did.
func (b *modelBroker) written() bool {
	select {
	case <-b.a.pending:
		b.write(false)
		return true
	default:
		return false
	}
}

func (b *modelBroker) settle(tag uint64, how settlement) {
	ordered, ok := b.ordered[tag]
	switch {
	case !b.left[tag]:
		b.t.Fatalf("tag %d is settled again", tag)
	case b.arrived[tag] == nil:
		b.t.Fatalf("tag %d is settled, which has not arrived", tag)
	case !ok:
		b.t.Fatalf("tag %d is settled, which nobody asked for", tag)
	case ordered != how:
		b.t.Fatalf("tag %d is settled as %d, and was ordered to be as %d", tag, how, ordered)
	}
	delete(b.left, tag)
}

// Each settled delivery is acknowledged once, in whatever order messages arrive and are
// settled.
func TestAcks_AcknowledgeTheOrderedTags(t *testing.T) {
	t.Parallel()
	for seed := range uint64(3000) {
		random := rand.New(rand.NewPCG(seed, 1))
		b := &modelBroker{t: t, a: newAckBatcher(), ordered: map[uint64]settlement{}, arrived: map[uint64]*tagEntry{}, left: map[uint64]bool{}}
		b.a.setMaxInFlight(1 + random.IntN(300))
		// What each consumer is sent arrives in order, but consumers are read beside each
		// other. Some messages take long.
		consumers := make([][]uint64, 1+random.IntN(4))
		last, slow := uint64(random.IntN(120)), random.IntN(3)*5 // in a hundred
		var stay []uint64
		for tag := uint64(1); tag <= last; tag++ {
			c := random.IntN(len(consumers))
			consumers[c] = append(consumers[c], tag)
			b.left[tag] = true
		}
		var open []uint64
		givesBack := random.IntN(3) * 10 // in a hundred
		for len(open) > 0 || slices.ContainsFunc(consumers, func(c []uint64) bool { return len(c) > 0 }) {
			switch kind := random.IntN(20); {
			case kind < 8:
				c := &consumers[random.IntN(len(consumers))]
				if len(*c) == 0 {
					continue
				}
				e := &tagEntry{tag: (*c)[0]}
				*c = (*c)[1:]
				b.arrived[e.tag] = e
				b.a.add(e)
				if random.IntN(100) < slow {
					stay = append(stay, e.tag)
				} else {
					open = append(open, e.tag)
				}
			case kind < 16:
				if len(open) == 0 {
					continue
				}
				i := random.IntN(len(open))
				tag := open[i]
				open = slices.Delete(open, i, i+1)
				how := acknowledge
				if random.IntN(100) < givesBack {
					how = abandon + settlement(random.IntN(2))
				}
				b.ordered[tag] = how
				b.a.settle(b.arrived[tag], how)
			case kind == 16:
				b.a.postponeRequeues(random.IntN(2) == 0)
			default:
				b.written()
			}
		}
		if random.IntN(2) == 0 {
			b.write(true) // as before the channel is closed
		} else {
			b.a.postponeRequeues(false)
			for b.written() {
			}
		}
		if len(b.left) != len(stay) || slices.ContainsFunc(stay, func(tag uint64) bool { return !b.left[tag] }) {
			t.Fatalf("seed %d: the broker waits for %v, but only %v are not settled", seed, b.left, stay)
		}
		if b.a.contiguous != last || len(b.a.outOfOrder) > 0 || b.a.pendingAcks != 0 || len(b.a.requeues) > 0 || (b.a.oldest != nil) != (len(stay) > 0) {
			t.Fatalf("seed %d: at the end these are the acknowledgements: %+v", seed, b.a)
		}
	}
}

// An acknowledgement behind a gap waits for its neighbours' until the next flush.
func TestAcks_BehindAGapAreFlushedOnce(t *testing.T) {
	t.Parallel()
	a := newAckBatcher()
	var entries []*tagEntry
	for tag := range uint64(5) {
		e := &tagEntry{tag: tag + 1}
		entries = append(entries, e)
		a.add(e)
	}
	written := func() string {
		b := a.take(false)
		return fmt.Sprint(b.upTo, b.multiple, b.single)
	}
	a.settle(entries[1], acknowledge)
	a.settle(entries[2], acknowledge)
	if got := written(); got != "0 false []" {
		t.Errorf("the first flush writes %s, want nothing", got)
	}
	a.settle(entries[4], acknowledge)
	if got := written(); got != "0 false [2 3]" {
		t.Errorf("the second flush writes %s, want 2 and 3", got)
	}
	a.settle(entries[0], acknowledge)
	a.settle(entries[3], acknowledge)
	if got := written(); got != "5 true []" {
		t.Errorf("the third flush writes %s, want all up to 5", got)
	}
}

// A message wakes up one of several calls of Receive, and the next one if that call has
// just been canceled.
func TestReceive_OneOfSeveralWakesUp(t *testing.T) {
	t.Parallel()
	transport := unconnected(t)
	r := newReceiver(transport, "billing", core.ReceiverConfig{Queue: "billing", MaxInFlight: 1 << 20})
	c := &consumerChannel{r: r, acks: newAckBatcher()}
	r.channel = c
	consumer := &consumer{}
	arrived := uint64(0)
	arrive := func() {
		arrived++
		r.addDelivery(c, consumer, &amqp.Delivery{DeliveryTag: arrived, Body: []byte("x")})
	}
	for round := range 5_000 {
		ctx, cancel := context.WithCancel(t.Context())
		var fickle int
		var patient error
		var first, second sync.WaitGroup
		first.Go(func() { fickle, _ = r.Receive(ctx, make([]core.Delivery, 1)) })
		second.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			_, patient = r.Receive(ctx, make([]core.Delivery, 1))
		})
		first.Go(cancel)
		arrive()
		if first.Wait(); fickle > 0 {
			arrive()
		}
		if second.Wait(); patient != nil {
			t.Fatalf("round %d: a message arrived and nobody was woken: %v", round, patient)
		}
	}
}
