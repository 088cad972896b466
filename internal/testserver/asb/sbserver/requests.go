//go:build darwin || linux

package sbserver

import (
	"encoding/binary"
	"fmt"
	"slices"
	"sync"

	"github.com/reprise-go/reprise/internal/testserver/asb/amqp10"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/condition"
)

// requests is a link on which a client sends requests to $cbs or $management. The reply goes to
// the link whose target is the reply-to address of the request (page
// service-bus-amqp-request-response).
type requests struct {
	client *client
	link   *amqp10.Link
	handle func(*request) response
}

// replies is a link on which a client receives the replies to its requests.
type replies struct {
	client  *client
	link    *amqp10.Link
	address string

	mu    sync.Mutex
	sent  uint64
	queue []amqp10.Outgoing
}

// maxReplies is the most replies that may wait for a client that gives no credit.
const maxReplies = 5000

// request is a request on $cbs or $management.
type request struct {
	client  *client
	link    *amqp10.Link
	message *amqp10.Message
	reply   func(response)
}

// response is the answer to a request. Status 0 means no answer: the request replies
// later, or never.
type response struct {
	status      int32
	description string
	condition   amqp10.Symbol
	body        amqp10.Map
}

// Closed implements amqp10.Inlet.
func (*requests) Closed() {}

// Transfer implements amqp10.Inlet.
func (n *requests) Transfer(m amqp10.Incoming) {
	message, err := amqp10.DecodeMessage(m.Payload)
	if err != nil {
		if !m.Settled {
			n.link.Settle(m.ID, amqp10.Rejected{Error: amqp10.Errorf(amqp10.ErrDecode, "decode a request: %v", err)})
		}
		return
	}
	if !m.Settled {
		n.link.Settle(m.ID, amqp10.Accepted{})
	}
	r := &request{client: n.client, link: n.link, message: message}
	r.reply = func(a response) { n.client.sendReply(message, a) }
	if a := n.handle(r); a.status != 0 {
		r.reply(a)
	}
}

// sendReply sends the reply to a request, if the client has a link for it.
func (c *client) sendReply(request *amqp10.Message, a response) {
	p := request.Properties
	if p == nil || p.ReplyTo == nil {
		return
	}
	c.mu.Lock()
	r := c.replies[*p.ReplyTo]
	c.mu.Unlock()
	if r == nil {
		return
	}
	reply := &amqp10.Message{
		Properties: &amqp10.MessageProperties{CorrelationID: p.MessageID},
		ApplicationProperties: map[string]any{
			"status-code":        a.status,
			"status-description": a.description,
			"statusCode":         a.status,
			"statusDescription":  a.description,
		},
	}
	if a.condition != "" {
		reply.ApplicationProperties["error-condition"] = a.condition
		reply.ApplicationProperties["errorCondition"] = a.condition
	}
	if a.body != nil {
		reply.Value = a.body
	} else {
		reply.Value = amqp10.Null{}
	}
	payload, err := amqp10.AppendMessage(nil, reply)
	if err != nil {
		c.goClose(amqp10.Errorf(amqp10.ErrInternal, "encode a reply: %v", err))
		return
	}
	r.mu.Lock()
	if len(r.queue) >= maxReplies {
		r.mu.Unlock()
		c.goClose(amqp10.Errorf(amqp10.ErrResourceLimitExceeded, "%d replies wait for credit on the link '%s'", maxReplies, r.link.Name()))
		return
	}
	r.sent++
	r.queue = append(r.queue, amqp10.Outgoing{Tag: binary.BigEndian.AppendUint64(nil, r.sent), Payload: payload, Settled: true})
	r.mu.Unlock()
	r.link.Wake()
}

// Next implements amqp10.Outlet.
func (r *replies) Next(n int) []amqp10.Outgoing {
	r.mu.Lock()
	defer r.mu.Unlock()
	n = min(n, len(r.queue))
	next := slices.Clone(r.queue[:n])
	r.queue = slices.Delete(r.queue, 0, n)
	return next
}

// Unsent implements amqp10.Outlet.
func (*replies) Unsent([]amqp10.Outgoing) {}

// Settle implements amqp10.Outlet.
func (*replies) Settle(amqp10.Settlement) {}

// Closed implements amqp10.Outlet.
func (r *replies) Closed() {
	c := r.client
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.replies[r.address] == r {
		delete(c.replies, r.address)
	}
}

// property returns an application property of the request.
func (r *request) property(name string) any { return r.message.ApplicationProperties[name] }

// performed carries the request out as an operation, and replies with success or the
// error.
func (r *request) performed(op Op, entity string, success int32, run func() (amqp10.Map, error)) response {
	var body amqp10.Map
	r.client.perform(operation{
		op: op, entity: entity, link: r.link,
		run: func() *amqp10.Error {
			var err error
			body, err = run()
			return wireError(err)
		},
		reply: func(err *amqp10.Error) {
			switch {
			case err != nil:
				r.reply(refusal(err))
			case body == nil && success == 200 && op.hasResult():
				r.reply(response{status: 204, description: "No Content"})
			default:
				r.reply(response{status: success, description: "OK", body: body})
			}
		},
	})
	return response{}
}

// hasResult reports whether a reply without a body means that there is nothing to return.
func (op Op) hasResult() bool { return op == OpPeek || op == OpListSessions || op == OpReceiveDeferred }

// refusal returns the reply for an error.
func refusal(err *amqp10.Error) response {
	status := (&condition.Error{Condition: err.Condition}).Status()
	switch err.Condition {
	case amqp10.ErrUnauthorizedAccess:
		status = 401
	case ServerBusy.Condition:
		status = 503 // azservicebus v1.11.0, internal/errors.go: 408, 500 and 503 are retried
	}
	return response{status: status, description: err.Description, condition: err.Condition}
}

// badRequest returns an error of a request's arguments.
func badRequest(format string, args ...any) error {
	return &condition.Error{Condition: condition.Argument, Description: fmt.Sprintf(format, args...)}
}
