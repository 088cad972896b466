package inmemory

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/queues"
)

// The index finds each message by its number when earlier ones have left, and keeps at most as
// many free entries as messages.
func TestIndex_FindsMessagesByNumber(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var x index
	var want []uint64
	next := uint64(0)
	for range 20000 {
		if random.IntN(1000) < 505 || len(want) == 0 {
			next += 1 + random.Uint64N(3)
			numbers := []uint64{next}
			if random.IntN(5) == 0 { // two senders, the later number first
				next++
				numbers = []uint64{next, next - 1}
			}
			for _, seq := range numbers {
				x.add(&message{seq: seq})
			}
			slices.Sort(numbers)
			want = append(want, numbers...)
		} else {
			i := random.IntN(len(want))
			if random.IntN(20) == 0 {
				i = 0
			}
			x.remove(x.get(want[i]))
			want = slices.Delete(want, i, i+1)
		}
		if n := x.entries.len(); n-x.left != len(want) || n > 2*len(want)+2*minRing {
			t.Fatalf("%d entries, %d of them free, for %d messages", n, x.left, len(want))
		}
		if len(want) == 0 {
			continue
		}
		if first := x.entries.at(0); first.message == nil || first.seq != want[0] {
			t.Fatalf("the first entry is %+v, want %d", first, want[0])
		}
		seq := want[random.IntN(len(want))]
		if m := x.get(seq); m == nil || m.seq != seq {
			t.Fatalf("message %d is %+v", seq, m)
		}
		after, _ := slices.BinarySearch(want, seq+1)
		i := x.search(seq + 1)
		for i < x.entries.len() && x.entries.at(i).message == nil {
			i++
		}
		if has := i < x.entries.len(); has != (after < len(want)) || has && x.entries.at(i).seq != want[after] {
			t.Fatalf("the entry after %d is at %d of %d", seq, i, x.entries.len())
		}
		if m := x.get(next + 1); m != nil {
			t.Fatalf("message %d, which was never added, is %+v", next+1, m)
		}
	}
	for i := range x.entries.len() {
		if m := x.entries.at(i).message; m != nil && !slices.Contains(want, m.seq) {
			t.Errorf("message %d is still there", m.seq)
		}
	}
}

// A message that stays, such as one with a long delay, keeps no entries of those that pass.
func TestIndex_ForgetsMessagesBehindOneThatStays(t *testing.T) {
	var x index
	x.add(&message{seq: 1})
	for seq := uint64(2); seq < 10000; seq++ {
		m := &message{seq: seq}
		x.add(m)
		x.remove(m)
		if n := x.entries.len(); n > 2+2*minRing {
			t.Fatalf("%d entries for one message", n)
		}
	}
}

// Messages that were taken while they waited for others of their group leave no memory behind.
func TestTake_FreesWaitingMessages(t *testing.T) {
	transport, q, _ := testQueue(t, Config{})
	for range 1000 {
		if err := transport.Send(t.Context(), core.Outgoing{ID: "1", Queue: q.name, GroupKey: "g"}); err != nil {
			t.Fatal(err)
		}
	}
	page, err := transport.Browse(t.Context(), queues.Request{Queue: q.name, Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	var takes []queues.Take
	for _, m := range page.Messages[1:] {
		takes = append(takes, queues.Take{Key: m.Key})
	}
	if _, err := transport.Take(t.Context(), q.name, takes); err != nil {
		t.Fatal(err)
	}
	if n := q.groups.byKey["g"].waiting.len(); n != 0 || q.groups.waiting != 0 || q.stored.entries.len() > 2+2*minRing {
		t.Errorf("%d messages wait (%d by the count) in %d entries", n, q.groups.waiting, q.stored.entries.len())
	}
}
