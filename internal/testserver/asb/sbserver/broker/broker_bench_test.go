package broker_test

import (
	"testing"

	"github.com/reprise-go/reprise/internal/testserver/asb/amqp10"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/broker"
)

func BenchmarkBroker(b *testing.B) {
	for _, durable := range []bool{false, true} {
		name, dir := "memory", ""
		if durable {
			name, dir = "journal", b.TempDir()
		}
		batch := make([]broker.Message, 100)
		for i := range batch {
			batch[i] = newMessage("0123456789", withID("m"), withProperty("a", "b"), withProperty("c", "d"))
			encoded, err := amqp10.AppendMessage(nil, batch[i].AMQP)
			if err != nil {
				b.Fatal(err)
			}
			batch[i].Encoded = encoded
		}
		b.Run(name, func(b *testing.B) {
			n, err := broker.New(broker.Config{Dir: dir, AutoCreate: true})
			if err != nil {
				b.Fatal(err)
			}
			b.Run("send", func(b *testing.B) {
				for b.Loop() {
					if err := n.Send("sent", batch...); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(b.N*len(batch))/b.Elapsed().Seconds(), "messages/s")
			})
			b.Run("receive and complete", func(b *testing.B) {
				c, err := n.Consume(b.Context(), "q", broker.ConsumerConfig{})
				if err != nil {
					b.Fatal(err)
				}
				for b.Loop() {
					if err := n.Send("q", batch...); err != nil {
						b.Fatal(err)
					}
					for _, d := range c.Next(len(batch)) {
						if err := c.Settle(d.LockToken, broker.Settlement{Outcome: broker.Complete}); err != nil {
							b.Fatal(err)
						}
					}
				}
				b.ReportMetric(float64(b.N*len(batch))/b.Elapsed().Seconds(), "messages/s")
			})
			if err := n.Close(); err != nil {
				b.Fatal(err)
			}
		})
	}
}
