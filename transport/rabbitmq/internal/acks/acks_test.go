package acks

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// modelBroker models a broker's handling of the acknowledgements of one channel.
type modelBroker struct {
	t       *testing.T
	a       *Batcher
	ordered map[uint64]Settlement // by tags, of those that are settled
	arrived map[uint64]*Entry
	left    map[uint64]bool // the broker waits for their acknowledgement
}

// write has the broker apply the next flush.
func (b *modelBroker) write(all bool) {
	batch := b.a.Take(all)
	for _, r := range batch.Requeues {
		want := Release
		if r.Counted {
			want = Abandon
		}
		b.settle(r.Entry.Tag, want)
	}
	if batch.UpTo > 0 {
		if !b.left[batch.UpTo] {
			b.t.Fatalf("tag %d is acknowledged again", batch.UpTo)
		}
		if batch.Multiple {
			for tag := range b.left {
				if tag < batch.UpTo {
					b.settle(tag, Acknowledge)
				}
			}
		}
		b.settle(batch.UpTo, Acknowledge)
	}
	for _, tag := range batch.Single {
		b.settle(tag, Acknowledge)
	}
}

// written writes if the channel would, and reports whether it did.
func (b *modelBroker) written() bool {
	select {
	case <-b.a.Pending:
		b.write(false)
		return true
	default:
		return false
	}
}

func (b *modelBroker) settle(tag uint64, how Settlement) {
	ordered, ok := b.ordered[tag]
	switch {
	case !b.left[tag]:
		b.t.Fatalf("tag %d is settled again", tag)
	case b.arrived[tag] == nil:
		b.t.Fatalf("tag %d is settled, which has not arrived", tag)
	case !ok:
		b.t.Fatalf("tag %d is settled without a call for it", tag)
	case ordered != how:
		b.t.Fatalf("tag %d is settled as %d, and was ordered to be as %d", tag, how, ordered)
	}
	delete(b.left, tag)
}

// Each settled delivery is acknowledged once, in any order in which messages arrive and are
// settled.
func TestAcks_AcknowledgeTheOrderedTags(t *testing.T) {
	t.Parallel()
	for seed := range uint64(3000) {
		random := rand.New(rand.NewPCG(seed, 1))
		b := &modelBroker{t: t, a: New(), ordered: map[uint64]Settlement{}, arrived: map[uint64]*Entry{}, left: map[uint64]bool{}}
		b.a.SetMaxInFlight(1 + random.IntN(300))
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
				e := &Entry{Tag: (*c)[0]}
				*c = (*c)[1:]
				b.arrived[e.Tag] = e
				b.a.Add(e)
				if random.IntN(100) < slow {
					stay = append(stay, e.Tag)
				} else {
					open = append(open, e.Tag)
				}
			case kind < 16:
				if len(open) == 0 {
					continue
				}
				i := random.IntN(len(open))
				tag := open[i]
				open = slices.Delete(open, i, i+1)
				how := Acknowledge
				if random.IntN(100) < givesBack {
					how = Abandon + Settlement(random.IntN(2))
				}
				b.ordered[tag] = how
				b.a.Settle(b.arrived[tag], how)
			case kind == 16:
				b.a.PostponeRequeues(random.IntN(2) == 0)
			default:
				b.written()
			}
		}
		if random.IntN(2) == 0 {
			b.write(true) // as before the channel is closed
		} else {
			b.a.PostponeRequeues(false)
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
	a := New()
	var entries []*Entry
	for tag := range uint64(5) {
		e := &Entry{Tag: tag + 1}
		entries = append(entries, e)
		a.Add(e)
	}
	written := func() string {
		b := a.Take(false)
		return fmt.Sprint(b.UpTo, b.Multiple, b.Single)
	}
	a.Settle(entries[1], Acknowledge)
	a.Settle(entries[2], Acknowledge)
	if got := written(); got != "0 false []" {
		t.Errorf("the first flush writes %s, want nothing", got)
	}
	a.Settle(entries[4], Acknowledge)
	if got := written(); got != "0 false [2 3]" {
		t.Errorf("the second flush writes %s, want 2 and 3", got)
	}
	a.Settle(entries[0], Acknowledge)
	a.Settle(entries[3], Acknowledge)
	if got := written(); got != "5 true []" {
		t.Errorf("the third flush writes %s, want all up to 5", got)
	}
}

// Settlements of a withheld consumer are not written, except for the last ones.
func TestAcks_WithheldConsumer(t *testing.T) {
	t.Parallel()
	for _, all := range []bool{false, true} {
		a := New()
		c := &Consumer{}
		withheld, returned, other := &Entry{Tag: 1, Consumer: c}, &Entry{Tag: 2, Consumer: c}, &Entry{Tag: 3}
		for _, e := range []*Entry{withheld, returned, other} {
			a.Add(e)
		}
		c.Withheld = true
		a.Settle(withheld, Acknowledge)
		a.Settle(returned, Release)
		a.Settle(other, Acknowledge)
		a.Take(false) // the last one is beyond a gap
		if b := a.Take(all); !all && (b.UpTo != 0 || len(b.Requeues) != 0 || !slices.Equal(b.Single, []uint64{3})) {
			t.Errorf("while the consumer is withheld, this is written: %+v", b)
		} else if all && (b.UpTo != 3 || !b.Multiple || len(b.Requeues) != 1) {
			t.Errorf("at the end, this is written: %+v", b)
		}
		if all {
			continue
		}
		if c.Unwritten != 2 {
			t.Errorf("%d deliveries are unwritten, want 2", c.Unwritten)
		}
		c.Withheld = false
		if b := a.Take(false); b.UpTo != 1 || b.Multiple || len(b.Requeues) != 1 || b.Requeues[0].Entry != returned {
			t.Errorf("afterwards, this is written: %+v", b)
		}
		if c.Unwritten != 0 {
			t.Errorf("%d deliveries are unwritten at the end", c.Unwritten)
		}
	}
}
