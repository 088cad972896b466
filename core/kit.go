package core

import "github.com/reprise-go/reprise/core/internal/hooks"

// kit has the functions of packages messagekit and coretest, which document them.
type kit struct{}

func init() { hooks.Core = kit{} }

func (kit) Collected(m *Message) []Outgoing { return m.sends.all() }

func (kit) Commit(m *Message, out []Outgoing, sent func()) error { return m.sends.commit(out, sent) }

func (kit) Resend(m *Message, out []Outgoing) error { return m.sends.resend(out) }

func (kit) MarkDuplicate(m *Message) { m.outermost().markDuplicate() }

func (kit) Copy(m *Message) Outgoing { return m.incoming.forwarded() }

func (kit) SentID(m *Message) (id string, sent bool) { return m.ID, m.incoming.hasSentID() }
