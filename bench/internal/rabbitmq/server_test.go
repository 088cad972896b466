package rabbitmq

import (
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprise-go/reprise/bench/internal/workload"
)

// Messages that consumers had and did not acknowledge are counted at the end of a sample, at once.
func TestWaiting_CountsUnacknowledgedMessages(t *testing.T) {
	if testing.Short() {
		t.Skip("a server: not in short runs")
	}
	const messages, taken = 300, 200
	var sequences []string
	for i, list := 0, workload.NewSequences(messages); i < messages; i++ {
		sequences = append(sequences, list.At(i))
	}
	for range 10 {
		opened, err := rawOneByOne.openOn(t.Context(), &shared)
		if err != nil {
			t.Fatal(err)
		}
		s := opened.(*rawStore)
		if err := s.Send(t.Context(), sequences); err != nil {
			t.Fatal(err)
		}
		consumeWithoutAcks(t, s.server.url, taken)
		for range 2 { // and finds none of its messages
			if n, err := s.Waiting(t.Context()); err != nil || n != messages {
				t.Errorf("%d messages are left (%v), want %d", n, err, messages)
			}
		}
		if _, err := s.server.newQueues(); err == nil || !strings.Contains(err.Error(), workload.Queue) {
			t.Errorf("queues that exist are taken: %v", err)
		}
		if err := s.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// consumeWithoutAcks consumes messages and closes the connection.
func consumeWithoutAcks(t *testing.T, url string, messages int) {
	t.Helper()
	conn, err := amqp.Dial(url)
	if err != nil {
		t.Fatal(err)
	}
	ch, err := conn.Channel()
	if err == nil {
		err = ch.Qos(messages, 0, false)
	}
	if err != nil {
		t.Fatal(err)
	}
	deliveries, err := ch.Consume(workload.Queue, rawConsumer, false, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	for range messages {
		<-deliveries
	}
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
}
