package main

import (
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
)

// What consumers had and did not acknowledge is found at the end of a sample, at once.
func TestRabbitMQ_CountsUnacknowledgedMessages(t *testing.T) {
	if testing.Short() {
		t.Skip("a server: not in short runs")
	}
	t.Parallel()
	rabbitTests.Lock()
	defer rabbitTests.Unlock()
	const messages, taken = 300, 200
	for range 10 {
		opened, err := rawOneByOne.openOn(t.Context(), &rabbitTests.rabbitmq)
		if err != nil {
			t.Fatal(err)
		}
		s := opened.(*rawRabbitStore)
		if err := send(t.Context(), s, messages, 1, messages); err != nil {
			t.Fatal(err)
		}
		consumeWithoutAcks(t, s.server.url, taken)
		for range 2 { // and finds no message of its own
			if n, err := s.waiting(t.Context()); err != nil || n != messages {
				t.Errorf("%d messages are left (%v), want %d", n, err, messages)
			}
		}
		if _, err := s.server.newQueues(); err == nil || !strings.Contains(err.Error(), ordersQueue) {
			t.Errorf("queues that exist are taken: %v", err)
		}
		if err := s.close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// consumeWithoutAcks consumes so many messages and closes the connection.
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
	deliveries, err := ch.Consume(ordersQueue, rawConsumer, false, false, false, false, nil)
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
