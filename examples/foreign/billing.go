package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
)

var (
	orderPlaced    = core.NewMessageType[Order]("order.placed")
	invoice        = core.NewMessageType[Invoice]("invoice") // the reply to an order
	invoiceWritten = core.NewEvent[Invoice]("invoice.written")

	// placeOrder is a task of a Celery client, and sendMail one for a Celery worker. The body of a task is
	// [args, kwargs, options].
	placeOrder = core.NewMessageType[[]json.RawMessage]("shop.place_order")
	sendMail   = core.NewMessageType[[]any]("shop.send_mail")

	// receipt is the value that a listener of Spring returns.
	receipt = core.NewMessageType[Receipt]("receipt")
)

// Order is the body of an order.
type Order struct {
	ID       int    `json:"id"`
	Customer string `json:"customer"`
}

// Invoice is the body of an invoice.
type Invoice struct {
	Order int `json:"order"`
}

// Receipt is the body of a receipt.
type Receipt struct {
	Order int `json:"order"`
}

// billing has the dependencies of the handlers.
type billing struct {
	customers []string
}

// newBilling makes the endpoint, which prints its attempts to out.
func newBilling(t core.Transport, out io.Writer, o options) (*core.Endpoint, error) {
	b := &billing{customers: o.customers}
	ep, err := core.New("billing", t, core.Config{
		Provision:   core.ProvisionAlways,
		MessageType: messageType,
		Recoverability: core.Recoverability{
			Immediate: core.Immediate{NumberOfRetries: 1},
			Delayed:   core.Delayed{Delays: []time.Duration{time.Second}},
		},
		Observers: []core.Observer{{HandleEnd: (&printer{out: out}).print}},
		Logger:    o.logger,
	})
	if err != nil {
		return nil, err
	}
	core.Handle(ep, orderPlaced, b.place)
	core.Handle(ep, placeOrder, b.perform)
	core.Handle(ep, receipt, func(context.Context, *core.Message, Receipt) error { return nil })
	return ep, nil
}

// snippet: types

// messageType returns the type of a message that names it in a header of its framework. "" leaves the type that the
// message names itself.
func messageType(in *core.Incoming) string {
	switch class := in.Headers.Get("__TypeId__"); class { // of Spring's Jackson2JsonMessageConverter
	case "com.example.Order":
		return orderPlaced.Name()
	case "com.example.Receipt":
		return receipt.Name()
	}
	return in.Headers.Get("task") // of Celery
}

// end

// place bills an order, and replies to a request.
func (b *billing) place(_ context.Context, m *core.Message, order Order) error {
	if err := b.check(order); err != nil {
		return err
	}
	written := Invoice{Order: order.ID}
	if m.Headers.Get(headers.ReplyToAddress) != "" {
		if err := m.Reply(invoice.Of(written)); err != nil {
			return err
		}
	}
	return m.Publish(invoiceWritten.Of(written))
}

// check fails on purpose, until billing is started with the customer.
func (b *billing) check(order Order) error {
	if !slices.Contains(b.customers, order.Customer) {
		return fmt.Errorf("the customer %q is unknown", order.Customer)
	}
	return nil
}

// snippet: celery

// perform handles the task of a Celery client, and sends one to a Celery worker.
func (b *billing) perform(_ context.Context, m *core.Message, body []json.RawMessage) error {
	if len(body) != 3 {
		return fmt.Errorf("the body of a task has %d parts, want args, kwargs and options", len(body))
	}
	var order Order
	if err := json.Unmarshal(body[1], &order); err != nil { // kwargs
		return err
	}
	if err := b.check(order); err != nil {
		return err
	}
	mail := []any{[]any{order.Customer}, map[string]any{"order": order.ID}, map[string]any{}}
	return m.Send("celery", sendMail.Of(mail).With(core.SendOptions{
		Headers:       map[string]string{"task": sendMail.Name(), "id": m.ID}, // the worker needs both
		CorrelationID: m.ID,
	}))
}

// end

// printer prints attempts as lines of JSON.
type printer struct {
	mu  sync.Mutex
	out io.Writer
}

// attempt is one line.
type attempt struct {
	Type    string            `json:"type"`
	ID      string            `json:"id"`
	Body    string            `json:"body"`
	Headers map[string]string `json:"headers"`
	Delayed int               `json:"delayedRetries,omitempty"`
	Error   string            `json:"error,omitempty"`
	AMQP    *properties       `json:"amqp,omitempty"`
}

// properties are those of a message on RabbitMQ, and its headers with their types.
type properties struct {
	Type            string     `json:"type,omitempty"`
	MessageID       string     `json:"messageId,omitempty"`
	ContentType     string     `json:"contentType,omitempty"`
	ContentEncoding string     `json:"contentEncoding,omitempty"`
	AppID           string     `json:"appId,omitempty"`
	Timestamp       time.Time  `json:"timestamp,omitzero"`
	Headers         amqp.Table `json:"headers"`
}

// print is called at the end of each attempt.
func (p *printer) print(_ context.Context, h core.Handling) {
	m := h.Message
	a := attempt{Type: m.Type, ID: m.ID, Body: string(m.RawBody()), Headers: m.Headers.Map(), Delayed: m.DelayedRetries}
	if h.Err != nil {
		a.Error = h.Err.Error()
	}
	if d, ok := m.Native().(*amqp.Delivery); ok {
		a.AMQP = &properties{d.Type, d.MessageId, d.ContentType, d.ContentEncoding, d.AppId, d.Timestamp, d.Headers}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = json.NewEncoder(p.out).Encode(a) // a lost line is no failure of the message
}
