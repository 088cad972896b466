package queues

import (
	"fmt"
	"testing"
	"time"

	"github.com/reprise-go/reprise/internal/testserver/sqs/internal/clock"
	"github.com/reprise-go/reprise/internal/testserver/sqs/internal/content"
)

// BenchmarkQueue sends, receives and deletes one message of a queue that has n others.
func BenchmarkQueue(b *testing.B) {
	for _, fifo := range []bool{false, true} {
		for _, n := range []int{0, 100_000} {
			b.Run(fmt.Sprintf("fifo=%t/length=%d", fifo, n), func(b *testing.B) {
				st := New(Config{Region: "r", Account: "1", MaxInFlight: 1 << 30, Clock: clock.New(time.Now)})
				q := newQueue(1, "q", st.QueueARN("q"), fifo)
				_, q.settings, _ = st.changeAttributesLocked("q", fifo, nil, nil)
				st.queues["q"] = q
				now := st.clock.Now()
				send := func(i int) {
					id := fmt.Sprint(i)
					m := &message{Content: content.Content{ID: id, Body: "x"}, sent: now, enqueued: now, due: now}
					if fifo {
						m.group, m.deduplication = id, id
					}
					st.putLocked(q, m, now)
				}
				for i := range n {
					send(-i - 1)
				}
				b.ReportAllocs()
				i := 0
				for b.Loop() {
					i++
					send(i)
					got := st.takeLocked(q, wanted{max: 1, visibility: time.Minute}, now)
					if _, err := st.deleteLocked(q, got[0].handle, now); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
