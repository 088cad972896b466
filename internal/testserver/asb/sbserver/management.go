//go:build darwin || linux

package sbserver

import (
	"fmt"
	"time"

	"github.com/reprise-go/reprise/internal/testserver/asb/amqp10"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/broker"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/condition"
)

// manage answers a request on $management of an entity (page service-bus-amqp-request-response).
func (c *client) manage(path string, r *request) response {
	name, _ := r.property("operation").(string)
	body, _ := r.message.Value.(amqp10.Map)
	a := arguments(propertiesOf(body))
	b := c.broker()
	e, err := b.Entity(path)
	if err != nil {
		return refusal(wireError(err))
	}
	path = e.Path
	const prefix = "com.microsoft:"
	if len(name) < len(prefix) || name[:len(prefix)] != prefix {
		return refusal(amqp10.Errorf(amqp10.ErrNotImplemented, "operation '%s' is unknown", name))
	}
	op := Op(name[len(prefix):])
	var run func() (amqp10.Map, error)
	switch op {
	case OpRenewLock:
		run = func() (amqp10.Map, error) { return renewLocks(b, path, a) }
	case OpPeek:
		run = func() (amqp10.Map, error) { return peek(b, path, a) }
	case OpReceiveDeferred:
		run = func() (amqp10.Map, error) { return c.receiveDeferred(path, r, a) }
	case OpSchedule:
		run = func() (amqp10.Map, error) { return schedule(b, path, a) }
	case OpCancelScheduled:
		run = func() (amqp10.Map, error) {
			return amqp10.Map{}, b.CancelScheduled(path, a.integers("sequence-numbers")...)
		}
	case OpRenewSession, OpGetSessionState, OpSetSessionState:
		run = func() (amqp10.Map, error) { return c.session(path, op, r, a) }
	case OpListSessions:
		run = func() (amqp10.Map, error) { return listSessions(b, path, a) }
	case "update-disposition":
		return r.settle(path, a)
	default:
		return refusal(amqp10.Errorf(amqp10.ErrNotImplemented, "operation '%s' is not implemented", name))
	}
	return r.performed(op, path, 200, run)
}

// arguments are the body of a request.
type arguments map[string]any

func (a arguments) string(name string) string {
	s, _ := a[name].(string)
	return s
}

// optional returns a string, or nil if there is none.
func (a arguments) optional(name string) *string {
	if s, ok := a[name].(string); ok {
		return &s
	}
	return nil
}

func (a arguments) integer(name string) int64 {
	n, _ := integer(a[name])
	return n
}

func integer(v any) (int64, bool) {
	switch v := v.(type) {
	case int64:
		return v, true
	case int32:
		return int64(v), true
	case uint32:
		return int64(v), true
	case uint64:
		return int64(v), true
	}
	return 0, false
}

// integers returns an array of longs. Some SDKs send a list.
func (a arguments) integers(name string) []int64 {
	var all []int64
	for _, e := range a.elements(name) {
		if n, ok := integer(e); ok {
			all = append(all, n)
		}
	}
	return all
}

// elements returns the elements of an array or a list.
func (a arguments) elements(name string) []any {
	switch v := a[name].(type) {
	case amqp10.Array:
		return v
	case amqp10.List:
		return v
	}
	return nil
}

// tokens returns the lock tokens, an array of UUIDs.
func (a arguments) tokens() []broker.LockToken {
	var tokens []broker.LockToken
	for _, e := range a.elements("lock-tokens") {
		if t, ok := e.(amqp10.UUID); ok {
			tokens = append(tokens, broker.LockToken(t))
		}
	}
	return tokens
}

func renewLocks(b *broker.Broker, path string, a arguments) (amqp10.Map, error) {
	lockedUntil, err := b.Renew(path, a.tokens()...)
	if err != nil {
		return nil, err
	}
	return amqp10.Map{{Key: "expirations", Value: arrayOf(lockedUntil)}}, nil
}

// maxPeeked is the most messages that the service returns for one request
// (https://github.com/Azure/azure-sdk-for-python/issues/26643).
const maxPeeked = 250

func peek(b *broker.Broker, path string, a arguments) (amqp10.Map, error) {
	limit := min(int(a.integer("message-count")), maxPeeked)
	messages, err := b.Peek(path, a.integer("from-sequence-number"), limit, a.optional("session-id"))
	if err != nil || len(messages) == 0 {
		return nil, err
	}
	list := make(amqp10.List, len(messages))
	for i, m := range messages {
		encoded, err := amqp10.AppendMessage(nil, m)
		if err != nil {
			return nil, err
		}
		list[i] = amqp10.Map{{Key: "message", Value: encoded}}
	}
	return amqp10.Map{{Key: "messages", Value: list}}, nil
}

// receiveDeferred delivers deferred messages. The session is that of the request, or of
// the link that the request names: azservicebus v1.11.0 sends no session.
func (c *client) receiveDeferred(path string, r *request, a arguments) (amqp10.Map, error) {
	mode := broker.ReceiveAndDelete
	if a.integer("receiver-settle-mode") == 1 {
		mode = broker.PeekLock
	}
	session := a.optional("session-id")
	if session == nil {
		if name, ok := r.property("associated-link-name").(string); ok {
			session = c.sessionOfLink(name)
		}
	}
	deliveries, err := c.broker().ReceiveDeferred(path, mode, session, a.integers("sequence-numbers")...)
	if err != nil || len(deliveries) == 0 {
		return nil, err
	}
	list := make(amqp10.List, len(deliveries))
	for i, d := range deliveries {
		if mode == broker.PeekLock {
			d.Message.DeliveryAnnotations = amqp10.Annotations{"x-opt-lock-token": amqp10.UUID(d.LockToken)}
		}
		encoded, err := amqp10.AppendMessage(nil, d.Message)
		if err != nil {
			return nil, err
		}
		list[i] = amqp10.Map{{Key: "message", Value: encoded}, {Key: "lock-token", Value: amqp10.UUID(d.LockToken)}}
	}
	return amqp10.Map{{Key: "messages", Value: list}}, nil
}

// sessionOfLink returns the session of a receiver, or nil if it has none.
func (c *client) sessionOfLink(name string) *string {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.receivers[name]
	if r == nil {
		return nil
	}
	if _, ok := sessionOf(r.link.Request().Source); !ok {
		return nil
	}
	id := r.consumer.SessionID()
	return &id
}

func schedule(b *broker.Broker, path string, a arguments) (amqp10.Map, error) {
	list := a.elements("messages")
	if len(list) == 0 {
		return nil, badRequest("the request has no messages")
	}
	messages := make([]broker.Message, len(list))
	for i, e := range list {
		entry, _ := e.(amqp10.Map)
		encoded, ok := entry.Get("message").([]byte)
		if !ok {
			return nil, badRequest("entry %d has no message", i)
		}
		m, err := decodeMessage(encoded)
		if err != nil {
			return nil, badRequest("entry %d: %s", i, err.Description)
		}
		messages[i] = m
	}
	sequences, err := b.Schedule(path, messages...)
	if err != nil {
		return nil, err
	}
	return amqp10.Map{{Key: "sequence-numbers", Value: arrayOf(sequences)}}, nil
}

func (c *client) session(path string, op Op, r *request, a arguments) (amqp10.Map, error) {
	id := a.optional("session-id")
	if id == nil {
		return nil, badRequest("the request has no session-id")
	}
	// The lock of a session belongs to the link that accepted it (page message-sessions), which
	// the SDKs name.
	if name, ok := r.property("associated-link-name").(string); ok {
		if held := c.sessionOfLink(name); held == nil || *held != *id {
			return nil, &condition.Error{Condition: condition.SessionLockLost, Description: fmt.Sprintf("The session lock has expired on the MessageSession '%s' of '%s'.", *id, path)}
		}
	}
	b := c.broker()
	switch op {
	case OpRenewSession:
		lockedUntil, err := b.RenewSession(path, *id)
		return amqp10.Map{{Key: "expiration", Value: lockedUntil}}, err
	case OpGetSessionState:
		state, err := b.SessionState(path, *id)
		if state == nil {
			return amqp10.Map{{Key: "session-state", Value: nil}}, err
		}
		return amqp10.Map{{Key: "session-state", Value: state}}, err
	}
	// azservicebus v1.11.0 sends an empty binary for nil, which "clears the stored session state".
	state, _ := a["session-state"].([]byte)
	if len(state) == 0 {
		state = nil
	}
	return amqp10.Map{}, b.SetSessionState(path, *id, state)
}

func listSessions(b *broker.Broker, path string, a arguments) (amqp10.Map, error) {
	updated, _ := a["last-updated-time"].(time.Time)
	skip := a.integer("skip")
	ids, err := b.Sessions(path, updated, int(skip), int(a.integer("top")))
	if err != nil || len(ids) == 0 {
		return nil, err
	}
	return amqp10.Map{{Key: "sessions-ids", Value: arrayOf(ids)}, {Key: "skip", Value: int32(skip) + int32(len(ids))}}, nil
}

// dispositions are the outcomes of update-disposition. The misspelling "defered" is that
// of the SDKs.
var dispositions = map[string]broker.Outcome{
	"completed": broker.Complete,
	"abandoned": broker.Abandon,
	"suspended": broker.DeadLetter,
	"defered":   broker.Defer,
	"unlocked":  broker.Release,
	"released":  broker.Release,
}

// settle settles deliveries on $management: deferred ones, and those whose link has ended.
func (r *request) settle(path string, a arguments) response {
	outcome, ok := dispositions[a.string("disposition-status")]
	if !ok {
		return refusal(amqp10.Errorf(condition.Argument, "disposition-status '%s' is unknown", a.string("disposition-status")))
	}
	how := broker.Settlement{Outcome: outcome, Reason: a.string("deadletter-reason"), Description: a.string("deadletter-description")}
	modified, _ := a["properties-to-modify"].(amqp10.Map)
	how.Properties = propertiesOf(modified)
	return r.performed(settlementOps[outcome], path, 200, func() (amqp10.Map, error) {
		for _, t := range a.tokens() {
			if err := r.client.broker().Settle(path, t, how); err != nil {
				return nil, err
			}
		}
		return amqp10.Map{}, nil
	})
}
