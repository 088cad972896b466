package core

import (
	"context"

	"github.com/reprise-go/reprise/core/internal/hooks"
)

// kit has the functions of packages messagekit and coretest, which document them.
type kit struct{}

func init() { hooks.Core = kit{} }

func (kit) CallRecovered(ctx context.Context, m *Message, handler HandlerFunc) error {
	return handler.callRecovered(ctx, m)
}

func (kit) Collected(m *Message) []Outgoing { return m.sends.all() }

func (kit) Commit(m *Message, out []Outgoing, sent func()) error { return m.sends.commit(out, sent) }

func (kit) Resend(m *Message, out []Outgoing) error { return m.sends.resend(out) }

func (kit) MarkDuplicate(m *Message) { m.outermost().markDuplicate() }

func (kit) Copy(m *Message) Outgoing {
	out := m.incoming.forwarded()
	out.TimeToBeReceived = remainingTime(m.incoming.ExpiresAt)
	return out
}

func (kit) SentID(m *Message) (id string, sent bool) { return m.ID, m.incoming.hasSentID() }

// NewMessage makes a message that no endpoint received. send gets the messages of
// [Message.SendNow].
func (kit) NewMessage(endpoint, messageType string, in *Incoming, caps Capabilities, codec Codec, send func(context.Context, ...Outgoing) error) (*Message, error) {
	bodies, err := newBodyCodec(codec)
	if err != nil {
		return nil, err
	}
	m := &Message{}
	m.begin(&messageDeps{
		composer: &composer{
			endpoint: endpoint, machine: "test", replyTo: endpoint, codec: bodies, caps: caps,
			address: func(queue string) (string, error) { return queue, nil },
		},
		send: send,
	}, in, selection{messageType: messageType})
	return m, nil
}

func (kit) ContextWithMessage(ctx context.Context, m *Message) context.Context {
	return contextWithMessage(ctx, m)
}

func (kit) TakenOver(f *Failed) bool { return f.takenOver }
