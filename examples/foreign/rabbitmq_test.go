//go:build darwin || linux

package main

import (
	"strings"
	"testing"

	"github.com/reprise-go/reprise/core"
)

const ada, bob = `{"id": 1, "customer": "ada"}`, `{"id": 1, "customer": "bob"}`

// onRabbitMQ returns options with a virtual host.
func onRabbitMQ(t *testing.T, customers ...string) options {
	t.Helper()
	return options{transport: "rabbitmq", broker: broker.PasswordURL(broker.NewVHost(t)), customers: customers}
}

// A message of each client is handled, fails, is returned from the error queue and is handled again; a request has its
// reply, and a subscriber the event.
func TestRabbitMQ(t *testing.T) {
	notInShortRuns(t)
	for name, c := range map[string]struct {
		client
		returnFailed string
		sent         object // the message as Reprise gets it
		reply        object // of Reprise, as the client gets it
		event        object
	}{
		"pika": {
			client: pika, returnFailed: "return_failed",
			sent: object{
				"amqp/type": "order.placed", "amqp/messageId": nil, "amqp/contentType": nil, "amqp/contentEncoding": nil,
				"amqp/headers": nil,
			},
			reply: object{
				"properties/type": "invoice", "properties/content_type": "application/json", "properties/correlation_id": "question-2",
				"properties/delivery_mode": 2,
			},
			event: object{
				"properties/type": "invoice.written", "properties/content_type": "application/json", "properties/reply_to": "billing",
				"properties/headers/NServiceBus.EnclosedMessageTypes": "invoice.written", "properties/headers/NServiceBus.MessageIntent": "Publish",
			},
		},
		"amqplib": {
			client: amqplib, returnFailed: "returnFailed",
			sent: object{
				"amqp/type": "order.placed", "amqp/messageId": nil, "amqp/contentType": nil, "amqp/contentEncoding": nil,
				"amqp/headers": object{},
			},
			reply: object{
				"properties/type": "invoice", "properties/contentType": "application/json", "properties/correlationId": "question-2",
				"properties/deliveryMode": 2,
			},
			event: object{
				"properties/type": "invoice.written", "properties/contentType": "application/json", "properties/replyTo": "billing",
			},
		},
		"spring": {
			client: spring, returnFailed: "returnFailed",
			sent: object{
				"amqp/type": nil, "amqp/messageId": nil, "amqp/contentType": "application/json", "amqp/contentEncoding": "UTF-8",
				"amqp/headers": object{"__TypeId__": "com.example.Order"},
			},
			reply: object{ // the template takes the property correlation-id away
				"properties/type": "invoice", "properties/contentType": "application/json", "properties/headers/NServiceBus.CorrelationId": "1",
			},
			event: object{"properties/type": "invoice.written", "properties/contentType": "application/json"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := onRabbitMQ(t, "ada")
			billing := startBilling(t, o)
			listener := c.listen(t, o.broker, "listen")

			c.run(t, o.broker, "place", "1", "ada")
			first := billing.handled(t, c.sent)
			expect(t, "the message", first, object{"type": "order.placed"})
			expect(t, "the event", listener.next(t), c.event, object{"body": `{"order":1}`})

			reply := c.prints(t, o.broker, "request", "2", "ada")
			request := billing.handled(t, object{"type": "order.placed"})
			expect(t, "the reply", reply, c.reply, object{"body": `{"order":2}`,
				"properties/headers/NServiceBus.MessageIntent": "Reply", "properties/headers/NServiceBus.RelatedTo": request["id"]})
			listener.next(t)

			c.run(t, o.broker, "place", "3", "bob")
			failed := billing.fails(t, object{"type": "order.placed"})
			billing.stop()
			returned := c.prints(t, o.broker, c.returnFailed)
			expect(t, "in the error queue", returned, object{
				"body": failed["body"], "properties/headers/NServiceBus.FailedQ": "billing",
				"properties/headers/NServiceBus.ExceptionInfo.Message": `the customer "bob" is unknown`,
			})
			if lines := c.run(t, o.broker, c.returnFailed); len(lines) > 0 {
				t.Errorf("the error queue still has %v", lines)
			}
			o.customers = append(o.customers, "bob")
			handled := startBilling(t, o).handled(t, object{"type": "order.placed", "body": failed["body"]})
			expect(t, "the returned message", handled, object{"id": failed["id"], "delayedRetries": nil})
			expect(t, "the event", listener.next(t), c.event, object{"body": `{"order":3}`})
		})
	}
}

// Two messages without an id, of the same content, are two messages.
func TestRabbitMQ_EqualMessagesWithoutID(t *testing.T) {
	notInShortRuns(t)
	o := onRabbitMQ(t, "ada")
	billing := startBilling(t, o)
	listener := pika.listen(t, o.broker, "listen")
	ids := map[any]bool{}
	for range 2 {
		amqplib.run(t, o.broker, "place", "1", "ada")
		ids[billing.handled(t, object{"type": "order.placed"})["id"]] = true
		ids[listener.next(t).at("properties/message_id")] = true
	}
	if len(ids) != 4 {
		t.Errorf("two messages and their events have the ids %v, want four", ids)
	}
}

// The routing key names the type; replies go to a queue that the broker names, and to one with a name.
func TestRabbitMQ_OtherAddresses(t *testing.T) {
	notInShortRuns(t)
	o := onRabbitMQ(t, "ada")
	billing := startBilling(t, o)
	pika.run(t, o.broker, "place_by_key", "1", "ada")
	billing.handled(t, object{"type": "order.placed", "body": ada, "amqp/type": nil})
	for queue, prefix := range map[string]string{"": "amq.gen-", "answers": "answers"} {
		reply := pika.prints(t, o.broker, "request_by_queue", "1", "ada", queue)
		request := billing.handled(t, object{"type": "order.placed", "body": ada})
		if to, _ := request.at("headers/NServiceBus.ReplyToAddress").(string); !strings.HasPrefix(to, prefix) {
			t.Errorf("the reply goes to %q, want %s", to, prefix)
		}
		expect(t, "the reply", reply, object{"properties/type": "invoice", "body": `{"order":1}`, "properties/correlation_id": "question-1"})
	}
}

// Copies for delayed retries and in the error queue keep the properties, and the headers with their types.
func TestRabbitMQ_CopiesKeepProperties(t *testing.T) {
	notInShortRuns(t)
	o := onRabbitMQ(t)
	billing := startBilling(t, o)
	pika.run(t, o.broker, "place_with_all", "1", "bob")
	sent := object{
		"body": bob, "id": "order-1", "amqp/type": "order.placed", "amqp/messageId": "order-1", "amqp/contentType": "application/json",
		"amqp/contentEncoding": "utf-8", "amqp/appId": "shop", "amqp/timestamp": "2023-11-14T22:13:20Z",
		"amqp/headers/text": "Zoë", "amqp/headers/number": 7, "amqp/headers/large": 1 << 40, "amqp/headers/yes": true,
		"amqp/headers/nothing": nil, "amqp/headers/bytes": []byte{0, 255}, "amqp/headers/list": []any{1, "two", nil},
		"amqp/headers/table": object{"a": 1, "b": object{"c": false}},
		// The same headers, as text for handlers.
		"headers/text": "Zoë", "headers/number": "7", "headers/yes": "true", "headers/nothing": "", "headers/bytes": "AP8=",
		"headers/list": "1;two;",
	}
	inErrorQueue := object{
		"body": bob, "properties/type": "order.placed", "properties/message_id": "order-1", "properties/content_type": "application/json",
		"properties/content_encoding": "utf-8", "properties/app_id": "shop", "properties/timestamp": 1700000000,
		"properties/correlation_id": "basket-7", "properties/priority": 3, "properties/delivery_mode": 2,
		"properties/headers/text": "Zoë", "properties/headers/number": 7, "properties/headers/large": 1 << 40,
		"properties/headers/yes": true, "properties/headers/nothing": nil, "properties/headers/bytes": `b'\x00\xff'`,
		"properties/headers/list": []any{1, "two", nil}, "properties/headers/table": object{"a": 1, "b": object{"c": false}},
		"properties/headers/Reprise.FailureReason": "RetriesExhausted",
	}
	for range 2 { // a returned message has all its attempts again
		billing.fails(t, sent)
		billing.stop()
		expect(t, "in the error queue", pika.prints(t, o.broker, "return_failed"), inErrorQueue)
		billing = startBilling(t, o)
	}
	billing.fails(t, sent)
	billing.stop()
	pika.prints(t, o.broker, "return_failed")
	o.customers = []string{"bob"}
	startBilling(t, o).handled(t, sent)
}

// A template without a converter says text/plain; listeners that return values reply to the queue of the event's sender.
func TestSpring(t *testing.T) {
	notInShortRuns(t)
	o := onRabbitMQ(t, "ada")
	billing := startBilling(t, o)
	spring.listen(t, o.broker, "listenAndReturn")
	pika.run(t, o.broker, "place", "1", "ada")
	billing.handled(t, object{"type": "order.placed"})
	billing.handled(t, object{"type": "receipt", "body": `{"order":1}`, "amqp/type": nil, "amqp/headers/__TypeId__": "com.example.Receipt"})

	spring.listen(t, o.broker, "listenAndReturnText")
	spring.run(t, o.broker, "text", ada)
	text := billing.next(t)
	expect(t, "the text", text, object{"type": "order.placed", "body": ada, "amqp/contentType": "text/plain"})
	expectError(t, text, "decode \"order.placed\" from text/plain: this content type is not JSON")

	pika.run(t, o.broker, "place", "2", "ada")
	billing.handled(t, object{"body": `{"id": 2, "customer": "ada"}`})
	got := map[any]object{}
	for range 2 {
		line := billing.next(t)
		got[line["body"]] = line
	}
	expect(t, "the receipt", got[`{"order":2}`], object{"type": "receipt", "error": nil})
	expect(t, "the text", got["thanks"], object{"type": "", "amqp/contentType": "text/plain"})
	expectError(t, got["thanks"], core.ErrNoType.Error())
}

// A task of a Celery client is handled, and a Celery worker runs a task of Reprise; its result, with a backend rpc://,
// comes to the queue of the sender without a type.
func TestCelery(t *testing.T) {
	notInShortRuns(t)
	for results, replies := range map[string]bool{"": false, "rpc://": true} {
		t.Run("results"+results, func(t *testing.T) {
			t.Parallel()
			o := onRabbitMQ(t, "ada")
			billing := startBilling(t, o)
			c := celery.with("AMQP_URL=" + o.broker)
			if results != "" {
				c = c.with("RESULTS=" + results)
			}
			worker := c
			worker.command = []string{"python3", "-m", "celery", "-A", "tasks", "worker", "--pool", "solo", "--loglevel", "info"}
			w := worker.start(t)
			w.await(t, "ready")
			c.run(t, "1", "ada")
			task := billing.handled(t, object{
				"type": "shop.place_order", "amqp/type": nil, "amqp/contentType": "application/json", "amqp/contentEncoding": "utf-8",
				"amqp/headers/task": "shop.place_order",
			})
			expect(t, "the task of Reprise", w.next(t), object{"id": task["id"], "customer": "ada", "order": 1})
			expect(t, "the task of Celery", task, object{
				"amqp/messageId": nil, "headers/NServiceBus.CorrelationId": task.at("amqp/headers/id"),
				"body": `[[], {"id": 1, "customer": "ada"}, {"callbacks": null, "errbacks": null, "chain": null, "chord": null}]`,
			})
			w.await(t, "succeeded")
			if replies {
				result := billing.next(t)
				expect(t, "the result", result, object{"type": "", "amqp/contentType": "application/json"})
				expectError(t, result, core.ErrNoType.Error())
			}
			pika.run(t, o.broker, "place", "2", "ada")
			billing.handled(t, object{"type": "order.placed"}) // no result came before it
		})
	}
}

// The error queue has a task of Celery with the types of its headers: a worker ends at another eta.
func TestCelery_FailedTask(t *testing.T) {
	notInShortRuns(t)
	o := onRabbitMQ(t)
	billing := startBilling(t, o)
	celery.with("AMQP_URL="+o.broker).run(t, "1", "bob")
	failed := billing.fails(t, object{"type": "shop.place_order"})
	billing.stop()
	expect(t, "in the error queue", pika.prints(t, o.broker, "return_failed"), object{
		"body": failed["body"], "properties/content_encoding": "utf-8", "properties/headers/task": "shop.place_order",
		"properties/headers/eta": nil, "properties/headers/retries": 0, "properties/headers/timelimit": []any{nil, nil},
	})
	o.customers = []string{"bob"}
	startBilling(t, o).handled(t, object{"type": "shop.place_order", "id": failed["id"]})
}
