package foreignsuites

import (
	"context"
	"crypto/rand"
	"errors"
	"maps"
	"sync"
	"time"

	"gocloud.dev/gcerrors"
	"gocloud.dev/pubsub/driver"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport"
)

const (
	// pollTime is how long a ReceiveBatch waits for messages.
	pollTime = time.Second
	// maxUnsettled is the number of unsettled messages of a subscription.
	maxUnsettled = 100
)

// errorInfo has the methods of both kinds of drivers.
type errorInfo struct{}

// IsRetryable implements driver.Topic and driver.Subscription.
func (errorInfo) IsRetryable(err error) bool {
	return errors.Is(err, core.ErrUnavailable) && !core.IsPermanent(err)
}

// As implements driver.Topic and driver.Subscription.
func (errorInfo) As(any) bool { return false }

// ErrorAs implements driver.Topic and driver.Subscription.
func (errorInfo) ErrorAs(err error, target any) bool { return errors.As(err, target) }

// ErrorCode implements driver.Topic and driver.Subscription.
func (errorInfo) ErrorCode(err error) gcerrors.ErrorCode {
	for _, each := range []struct {
		target error
		code   gcerrors.ErrorCode
	}{
		{core.ErrQueueNotFound, gcerrors.NotFound},
		{core.ErrNoSubscriber, gcerrors.NotFound},
		{core.ErrTooLarge, gcerrors.InvalidArgument},
		{core.ErrInvalidHeader, gcerrors.InvalidArgument},
		{core.ErrClosed, gcerrors.FailedPrecondition},
		{errors.ErrUnsupported, gcerrors.Unimplemented},
		{context.Canceled, gcerrors.Canceled},
		{context.DeadlineExceeded, gcerrors.DeadlineExceeded},
	} {
		if errors.Is(err, each.target) {
			return each.code
		}
	}
	if _, ok := errors.AsType[*core.NameError](err); ok {
		return gcerrors.InvalidArgument
	}
	return gcerrors.Unknown
}

// noneAs is the As of messages: there is nothing of a driver in them.
func noneAs(any) bool { return false }

// destinations is a driver.Topic that sends each message to a topic, or to several queues.
type destinations struct {
	errorInfo
	transport core.Transport
	to        []core.Outgoing // each with the fields Queue, or Topic and RequireSubscriber
}

// SendBatch implements driver.Topic.
func (d *destinations) SendBatch(ctx context.Context, ms []*driver.Message) error {
	var out []core.Outgoing
	for _, m := range ms {
		if m.BeforeSend != nil {
			if err := m.BeforeSend(noneAs); err != nil {
				return err
			}
		}
		if m.LoggableID == "" { // the id of a message that is sent again stays the same
			m.LoggableID = rand.Text()
		}
		for _, one := range d.to {
			one.ID, one.Headers, one.Body = m.LoggableID, core.HeadersFromMap(m.Metadata), m.Body
			out = append(out, one)
		}
	}
	if err := d.transport.Send(ctx, out...); err != nil {
		return err
	}
	for _, m := range ms {
		if m.AfterSend != nil {
			if err := m.AfterSend(noneAs); err != nil {
				return err
			}
		}
	}
	return nil
}

// Close implements driver.Topic. The transport is that of the caller.
func (d *destinations) Close() error { return nil }

// subscription is a driver.Subscription of a queue. Its receiver is opened by the first
// ReceiveBatch, which returns the error of a missing queue.
type subscription struct {
	errorInfo
	transport core.Transport
	queue     string
	open      context.Context // until Close
	close     context.CancelFunc

	mu       sync.Mutex
	receiver core.Receiver
}

func newSubscription(t core.Transport, queue string) *subscription {
	s := &subscription{transport: t, queue: queue}
	s.open, s.close = context.WithCancel(context.Background())
	return s
}

// received is the AckID of a message.
type received struct {
	core.Delivery
	settled context.CancelFunc // ends the renewal of the lock
}

func (s *subscription) openReceiver(ctx context.Context) (core.Receiver, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.receiver != nil {
		return s.receiver, nil
	}
	r, err := s.transport.OpenReceiver(ctx, core.ReceiverConfig{Queue: s.queue, Mode: core.TransactionReceiveOnly, MaxInFlight: maxUnsettled})
	if err == nil {
		s.receiver = r
	}
	return r, err
}

// ReceiveBatch implements driver.Subscription.
func (s *subscription) ReceiveBatch(ctx context.Context, limit int) ([]*driver.Message, error) {
	r, err := s.openReceiver(ctx)
	if err != nil {
		return nil, err
	}
	waiting, cancel := context.WithTimeout(ctx, pollTime)
	defer cancel()
	deliveries := make([]core.Delivery, min(limit, maxUnsettled))
	n, err := r.Receive(waiting, deliveries)
	if err != nil {
		if ctx.Err() == nil && waiting.Err() != nil {
			return nil, nil // there are no messages
		}
		return nil, err
	}
	ms := make([]*driver.Message, n)
	for i, d := range deliveries[:n] {
		ms[i] = s.message(d)
	}
	return ms, nil
}

// message returns the message of a delivery, and renews the delivery's lock until it is settled.
// The Go CDK has no call that would tell the application of a lost lock.
func (s *subscription) message(d core.Delivery) *driver.Message {
	ctx, settled := context.WithCancel(s.open)
	go func() { _ = transport.KeepLocked(ctx, d) }()
	in := d.Incoming()
	m := &driver.Message{LoggableID: in.ID, Body: in.Body, AckID: &received{d, settled}, AsFunc: noneAs}
	if in.Headers.Len() > 0 {
		m.Metadata = maps.Collect(in.Headers.All())
	}
	return m
}

// SendAcks implements driver.Subscription.
func (s *subscription) SendAcks(ctx context.Context, ids []driver.AckID) error {
	return settle(ctx, ids, core.Delivery.Complete)
}

// CanNack implements driver.Subscription.
func (s *subscription) CanNack() bool { return true }

// SendNacks implements driver.Subscription.
func (s *subscription) SendNacks(ctx context.Context, ids []driver.AckID) error {
	return settle(ctx, ids, func(d core.Delivery, ctx context.Context) error { return d.Abandon(ctx, errNack) })
}

var errNack = errors.New("nack")

// settle settles deliveries at the same time: the adapter collects them into few requests.
func settle(ctx context.Context, ids []driver.AckID, one func(core.Delivery, context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	errs := make([]error, len(ids))
	var all sync.WaitGroup
	for i, id := range ids {
		all.Go(func() {
			r := id.(*received)
			switch err := one(r.Delivery, ctx); {
			case err == nil, errors.Is(err, core.ErrSettled), errors.Is(err, core.ErrLockLost): // with a lost lock it is redelivered
				r.settled()
			default:
				errs[i] = err
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// Close implements driver.Subscription. It gives the unsettled messages back.
func (s *subscription) Close() error {
	s.close()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.receiver == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), settleTimeout)
	defer cancel()
	return s.receiver.Close(ctx)
}
