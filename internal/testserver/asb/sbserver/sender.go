//go:build darwin || linux

package sbserver

import (
	"slices"

	"github.com/reprise-go/reprise/internal/testserver/asb/amqp10"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/broker"
)

// batchFormat is the message format of a batch: each data section of the body is an encoded
// message (azservicebus v1.11.0, message_batch.go; page service-bus-amqp-protocol-guide).
const batchFormat = 0x80013700

// sender is a link on which a client sends to a queue or topic.
type sender struct {
	client *client
	link   *amqp10.Link
	path   string
}

func (c *client) attachSender(l *amqp10.Link, path string) *amqp10.Error {
	e, err := c.broker().Entity(path)
	if err != nil {
		return wireError(err)
	}
	s := &sender{client: c, link: l, path: e.Path}
	c.addLink(l, s.path)
	reply := amqp10.Reply{
		MaxMessageSize: uint64(e.MaxMessageSize),
		// A batch may have at most 1 MB, even if a message may have 100 MB (page
		// service-bus-premium-messaging, "Large messages support").
		Properties: amqp10.Map{{Key: amqp10.Symbol("com.microsoft:max-message-batch-size"), Value: min(uint64(e.MaxMessageSize), 1<<20)}},
	}
	if !l.AcceptIncoming(s, reply) {
		s.Closed()
	}
	return nil
}

// Closed implements amqp10.Inlet.
func (s *sender) Closed() { s.client.removeLink(s.link) }

// Transfer implements amqp10.Inlet.
func (s *sender) Transfer(m amqp10.Incoming) {
	s.client.perform(operation{
		op: OpSend, entity: s.path, link: s.link,
		hold: func() { m.Payload = slices.Clone(m.Payload) },
		run: func() *amqp10.Error {
			messages, err := decodeMessages(m.Format, m.Payload)
			if err != nil {
				return err
			}
			return wireError(s.client.broker().Send(s.path, messages...))
		},
		reply: func(err *amqp10.Error) {
			switch {
			case m.Settled:
			case err != nil:
				s.link.Settle(m.ID, amqp10.Rejected{Error: err})
			default:
				s.link.Settle(m.ID, amqp10.Accepted{})
			}
		},
	})
}

// decodeMessages decodes a message or a batch.
func decodeMessages(format uint32, payload []byte) ([]broker.Message, *amqp10.Error) {
	if format != batchFormat {
		m, err := decodeMessage(payload)
		return []broker.Message{m}, err
	}
	batch, err := amqp10.DecodeMessage(payload)
	if err != nil {
		return nil, amqp10.Errorf(amqp10.ErrDecode, "decode a batch: %v", err)
	}
	messages := make([]broker.Message, len(batch.Data))
	for i, data := range batch.Data {
		m, err := decodeMessage(data)
		if err != nil {
			return nil, err
		}
		messages[i] = m
	}
	return messages, nil
}

func decodeMessage(payload []byte) (broker.Message, *amqp10.Error) {
	m, err := amqp10.DecodeMessage(payload)
	if err != nil {
		return broker.Message{}, amqp10.Errorf(amqp10.ErrDecode, "decode a message: %v", err)
	}
	return broker.Message{AMQP: m, Encoded: payload}, nil
}
