package core

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"

	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/core/internal/calls"
	"github.com/reprise-go/reprise/core/internal/ids"
)

// sends composes, checks and collects the messages that one run of handlers sends. It is
// a part of the [Message] of that run, whose methods for sending delegate to it.
//
// message and scope are set before handlers get the message, and only read afterwards. mu
// guards the other fields. Any goroutine may call the methods, which lock mu, and after it
// that of an outer run, never the other way round. SendMiddleware and the transport run
// without the lock; the codec, which encodes a body, runs with it.
type sends struct {
	message *Message
	scope   string // makes the derived ids of middleware and HandleFailed distinct

	mu        sync.Mutex
	collected []Outgoing
	// collected[adoptedAt:][:adopted] are from the last run of next that succeeded.
	adoptedAt, adopted int32
	composed           int32 // messages composed so far, those sent at once included
	ended              bool
	committed          *committedSends // of the outermost run, or nil
}

// end refuses later sends, and returns the messages to send if the run succeeded.
func (s *sends) end() []Outgoing {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	return s.committed.withCommitted(s.collected)
}

// isEnded reports whether the run, or a run around it, has ended.
func (s *sends) isEnded() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.endedLocked()
}

func (s *sends) endedLocked() bool {
	outer := s.message.parent
	return s.ended || outer != nil && outer.sends.isEnded()
}

func (s *sends) composer() *composer { return s.message.deps.composer }

func (s *sends) received() *Incoming { return s.message.incoming }

// all returns copies of the messages collected so far.
func (s *sends) all() []Outgoing {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.collected)
}

// collect composes a message and collects it.
func (s *sends) collect(intent, queue string, d *Draft) error {
	if s.composer().sendChain == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		out, err := s.composeLocked(intent, queue, d)
		if err == nil {
			s.collected = append(s.collected, out)
		}
		return err
	}
	out, err := s.compose(s.message.context(), intent, queue, d)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.endedLocked() { // while SendMiddleware ran
		return s.errorOf(intent, d.messageType, ErrHandlingEnded)
	}
	s.collected = append(s.collected, out...)
	return nil
}

// sendNow composes a message and sends it at once.
func (s *sends) sendNow(ctx context.Context, intent, queue string, d *Draft) error {
	out, err := s.compose(ctx, intent, queue, d)
	if err != nil || len(out) == 0 {
		return err
	}
	return s.message.deps.send(ctx, out...)
}

// compose returns the messages of a send: one, unless SendMiddleware makes more or
// fewer of it.
func (s *sends) compose(ctx context.Context, intent, queue string, d *Draft) ([]Outgoing, error) {
	composed, err := s.composeOne(intent, queue, d)
	if err != nil {
		return nil, err
	}
	c := s.composer()
	if c.sendChain != nil {
		if found, _ := MessageFromContext(ctx); found != s.message {
			ctx = contextWithMessage(ctx, s.message)
		}
	}
	out, err := c.runSendMiddleware(ctx, composed)
	if err != nil {
		return nil, s.errorOf(intent, d.messageType, err)
	}
	return out, nil
}

func (s *sends) composeOne(intent, queue string, d *Draft) (Outgoing, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.composeLocked(intent, queue, d)
}

func (s *sends) composeLocked(intent, queue string, d *Draft) (Outgoing, error) {
	if s.endedLocked() {
		return Outgoing{}, s.errorOf(intent, d.messageType, ErrHandlingEnded)
	}
	in := s.received()
	from := causation{
		id:             in.ID,
		conversationID: in.Headers.Get(headers.ConversationID),
		correlationID:  in.Headers.Get(headers.CorrelationID),
		replyGroup:     in.replyGroup(),
		sagaID:         in.Headers.Get(headerOriginatingSagaID),
		sagaType:       in.Headers.Get(headerOriginatingSagaType),
	}
	s.composed++
	out, err := s.composer().compose(intent, queue, d, from, func() string {
		sender := s.composer().endpoint + s.scope
		if n := in.deferrals(); n > 0 {
			// A deferred message is not retried but handled anew, and its messages (SendNow) are
			// new ones.
			sender += "/deferral/" + strconv.Itoa(n)
		}
		return ids.Derived(in.ID, sender, int(s.composed))
	})
	if err != nil {
		return Outgoing{}, s.errorOf(intent, d.messageType, err)
	}
	return out, nil
}

// errorOf returns the error of a send.
func (s *sends) errorOf(intent, messageType string, err error) error {
	return fmt.Errorf("core: %s %q while handling message %s: %w", sendVerb(intent), messageType, s.received().ID, err)
}

func sendVerb(intent string) string {
	switch intent {
	case headers.IntentPublish:
		return "publish"
	case headers.IntentReply:
		return "reply with"
	default:
		return "send"
	}
}

// forward collects a copy of the received message for another queue.
func (s *sends) forward(queue string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	out, err := s.forwardedLocked(queue)
	if err == nil {
		s.collected = append(s.collected, out)
	}
	return err
}

// forwardNow sends a copy of the received message to another queue at once.
func (s *sends) forwardNow(ctx context.Context, queue string) error {
	s.mu.Lock()
	out, err := s.forwardedLocked(queue)
	s.mu.Unlock()
	if err != nil {
		return err
	}
	return s.message.deps.send(ctx, out)
}

func (s *sends) forwardedLocked(queue string) (Outgoing, error) {
	out := s.received().forwarded()
	out.Queue = queue
	err := s.composer().checkSize(&out)
	switch {
	case s.endedLocked():
		err = ErrHandlingEnded
	case queue == "":
		err = errors.New("no destination queue was given")
	case isReservedQueue(queue):
		err = errors.New("that name stands for a queue of the configuration (GiveUpTo)")
	}
	if err != nil {
		return Outgoing{}, fmt.Errorf("core: forward message %s to %q: %w", s.received().ID, queue, err)
	}
	return out, nil
}

// forwarded returns the copy of a message that is forwarded, without a destination.
func (in *Incoming) forwarded() Outgoing {
	out := in.copyTo("", in.Headers, ReasonForward)
	in.writeID(&out.Headers)
	out.Headers.Del(headers.Attempts, headers.Undelivered, headers.RetryUniqueMessageID, headers.RetryAckQueue, headers.RetryAckSent)
	out.Headers.Del(retryHeaders...)
	return out
}

// adopt replaces the messages of an earlier run by those of a run that succeeded.
func (s *sends) adopt(out []Outgoing) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.collected = slices.Delete(s.collected, int(s.adoptedAt), int(s.adoptedAt+s.adopted))
	s.adoptedAt, s.adopted = int32(len(s.collected)), int32(len(out))
	s.collected = append(s.collected, out...)
}

// keepAdopted makes later runs keep the messages that earlier runs have collected.
func (s *sends) keepAdopted() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.adopted = 0
}

// collectedSends are the messages collected before a savepoint.
type collectedSends struct {
	messages           []Outgoing
	adoptedAt, adopted int32
}

// mark returns the messages collected so far, or false if the run has ended.
func (s *sends) mark() (collectedSends, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return collectedSends{slices.Clone(s.collected), s.adoptedAt, s.adopted}, !s.endedLocked()
}

// restore drops the messages collected since mark.
func (s *sends) restore(to collectedSends) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.collected = slices.Clone(to.messages)
	s.adoptedAt, s.adopted = to.adoptedAt, to.adopted
}

// resend collects messages that an earlier attempt had collected, and that may not have
// been sent.
func (s *sends) resend(out []Outgoing) error {
	fail := func(err error) error {
		return fmt.Errorf("core: resend %d messages while handling message %s: %w", len(out), s.received().ID, err)
	}
	if err := s.composer().checkAllResent(out); err != nil {
		return fail(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.endedLocked() {
		return fail(ErrHandlingEnded)
	}
	s.collected = append(s.collected, s.received().withNative(out, s.received().Native)...)
	return nil
}

// commit marks collected messages as sent regardless of the outcome of the attempt.
func (s *sends) commit(out []Outgoing, sent func()) error {
	fail := func(err error) error {
		return fmt.Errorf("core: commit %d messages while handling message %s: %w", len(out), s.received().ID, err)
	}
	if err := s.composer().checkAllResent(out); err != nil {
		return fail(err)
	}
	if s.isEnded() {
		return fail(ErrHandlingEnded)
	}
	outermost := &s.message.outermost().sends
	outermost.mu.Lock()
	defer outermost.mu.Unlock()
	if outermost.committed == nil {
		outermost.committed = &committedSends{}
	}
	c := outermost.committed
	c.messages = c.appendMissing(slices.Clone(c.messages), s.received().withNative(out, s.received().Native))
	if sent != nil {
		c.callbacks = append(c.callbacks, sent)
	}
	return nil
}

// committedSends returns the committed messages to send, or nil.
func (s *sends) committedSends() *committedSends {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.committed
}

// checkAllResent refuses messages that handlers cannot have collected, or that the
// transport can no longer send.
func (c *composer) checkAllResent(out []Outgoing) error {
	for i := range out {
		if err := c.checkResent(&out[i]); err != nil {
			return err
		}
	}
	return nil
}

func (c *composer) checkResent(out *Outgoing) error {
	switch {
	case out.ID == "":
		return errors.New("a message has no ID; set the one that it was first sent with")
	case out.Queue != "" && out.Topic != "":
		return fmt.Errorf("message %s has both queue %q and topic %q; empty one of them", out.ID, out.Queue, out.Topic)
	case out.Reason != ReasonApplication && out.Reason != ReasonForward:
		return fmt.Errorf("message %s is a %v, which handlers do not send", out.ID, out.Reason)
	}
	if err := c.checkRequest(out); err != nil {
		return fmt.Errorf("message %s: %w", out.ID, err)
	}
	return nil
}

// committedSends has the messages that are sent after any outcome of an attempt.
type committedSends struct {
	messages  []Outgoing
	callbacks []func() // called when they have been sent
}

// appendMissing returns out with the messages of more that it lacks.
func (*committedSends) appendMissing(out, more []Outgoing) []Outgoing {
	for i := range more {
		same := func(o Outgoing) bool {
			return o.ID == more[i].ID && o.Queue == more[i].Queue && o.Topic == more[i].Topic
		}
		if !slices.ContainsFunc(out, same) {
			out = append(out, more[i])
		}
	}
	return out
}

// withCommitted returns the messages to send with a success that collected out.
func (c *committedSends) withCommitted(out []Outgoing) []Outgoing {
	if c == nil {
		return out
	}
	return c.appendMissing(out, c.messages)
}

// notifySent calls the functions of Commit. c may be nil.
func (c *committedSends) notifySent(panicked func(any)) {
	if c == nil {
		return
	}
	for _, f := range c.callbacks {
		calls.Recover(panicked, f)
	}
}

// withNative does to the messages as Incoming.withNative. c may be nil.
func (c *committedSends) withNative(in *Incoming, native any) *committedSends {
	if c == nil {
		return nil
	}
	return &committedSends{messages: in.withNative(c.messages, native), callbacks: c.callbacks}
}

// bytes returns the memory that the messages take. c may be nil.
func (c *committedSends) bytes() int {
	size := 0
	if c != nil {
		for i := range c.messages {
			size += len(c.messages[i].Body) + c.messages[i].Headers.Bytes()
		}
	}
	return size
}
