package sqs

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/reprise-go/reprise/core"
)

// settlementKind is what a settlement asks of the service.
type settlementKind int

const (
	deletion settlementKind = iota
	giveBack                // the message is available when timeout has passed
	renewal                 // the message is locked for timeout from now on
)

// settlement is one order about a delivery.
type settlement struct {
	kind    settlementKind
	timeout time.Duration
	before  func()
	handle  string
	asked   time.Time // when the request left
}

// settler carries out what is to become of the messages of a receiver, up to ten with one request. Those that came together are
// handled at about the same time: it waits for a moment, while more are in hand.
type settler struct {
	r         *receiver
	deletions *batcher[*settlement]
	returns   *batcher[*settlement]
	renewals  *batcher[*settlement] // apart, so that no settlement waits for them
}

const (
	settleLinger = 5 * time.Millisecond
	renewLinger  = 50 * time.Millisecond
	// settleGrace is how long a settlement that is under way is awaited by a caller whose context has ended.
	settleGrace = 5 * time.Second
)

func newSettler(r *receiver) *settler {
	s := &settler{r: r}
	batch := func(linger time.Duration, do func(context.Context, []*entry[*settlement])) *batcher[*settlement] {
		return &batcher[*settlement]{
			life: r.t.life, partly: requestsAtOnce, most: requestsAtOnce, linger: linger, worthwhile: s.moreInHand, do: do,
		}
	}
	s.deletions = batch(settleLinger, s.delete)
	s.returns = batch(settleLinger, s.change)
	s.renewals = batch(renewLinger, s.change)
	return s
}

// moreInHand reports whether there are deliveries besides the n that are waiting here.
func (s *settler) moreInHand(n int) bool {
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	return len(s.r.held)-len(s.r.arrived) > n
}

// do carries out a settlement, and returns when it was asked of the service.
func (s *settler) do(ctx context.Context, d *delivery, what settlement) (asked time.Time, err error) {
	what.handle = d.handle
	b := s.deletions
	switch what.kind {
	case deletion:
	case renewal:
		b = s.renewals
	case giveBack:
		b = s.returns
	}
	e := &entry[*settlement]{what: &what}
	b.add(e)
	err, _ = b.await(ctx, e, settleGrace)
	if err != nil && !errors.Is(err, ctx.Err()) {
		err = s.explained(err)
	}
	return what.asked, err
}

// explained says of an error of the service what it means to the delivery.
func (s *settler) explained(err error) error {
	if errors.Is(err, core.ErrClosed) {
		return fmt.Errorf("sqs: settle a message of %q: %w: %w", s.r.address, core.ErrLockLost, err)
	}
	if faultOf(err) == faultLockLost {
		return fmt.Errorf("sqs: settle a message of %q: %w: %w", s.r.address, core.ErrLockLost, err)
	}
	return fmt.Errorf("sqs: settle a message of %q: %w", s.r.address, s.r.t.explained(err))
}

func isLockLost(err error) bool { return errors.Is(err, core.ErrLockLost) }

// delete makes one request.
func (s *settler) delete(ctx context.Context, entries []*entry[*settlement]) {
	in := &sqs.DeleteMessageBatchInput{QueueUrl: &s.r.url, Entries: make([]types.DeleteMessageBatchRequestEntry, len(entries))}
	for i, e := range entries {
		in.Entries[i] = types.DeleteMessageBatchRequestEntry{Id: aws.String(strconv.Itoa(i)), ReceiptHandle: &e.what.handle}
	}
	out, err := s.r.t.sqs.DeleteMessageBatch(ctx, in)
	if err != nil {
		failAll(entries, err)
		return
	}
	outcome(entries, out.Failed, len(out.Successful))
}

// change makes one request.
func (s *settler) change(ctx context.Context, entries []*entry[*settlement]) {
	in := &sqs.ChangeMessageVisibilityBatchInput{QueueUrl: &s.r.url, Entries: make([]types.ChangeMessageVisibilityBatchRequestEntry, len(entries))}
	asked := time.Now()
	for i, e := range entries {
		e.what.asked = asked
		in.Entries[i] = types.ChangeMessageVisibilityBatchRequestEntry{
			Id: aws.String(strconv.Itoa(i)), ReceiptHandle: &e.what.handle, VisibilityTimeout: int32(e.what.timeout / time.Second),
		}
	}
	out, err := s.r.t.sqs.ChangeMessageVisibilityBatch(ctx, in)
	if err != nil {
		failAll(entries, err)
		return
	}
	outcome(entries, out.Failed, len(out.Successful))
}

func failAll(entries []*entry[*settlement], err error) {
	for _, e := range entries {
		e.err = err
	}
}

// giveBack makes messages available to others, if the service can be reached. What is not given back comes again
// when its visibility timeout ends.
func (s *settler) giveBack(ctx context.Context, left []*delivery) {
	if len(left) > 0 {
		s.inBatches(ctx, left, s.change)
	}
}

// deleteAll consumes messages, and returns those of which the service says that it did.
func (s *settler) deleteAll(ctx context.Context, all []*delivery) (deleted []*delivery) {
	for i, e := range s.inBatches(ctx, all, s.delete) {
		if e.err == nil {
			deleted = append(deleted, all[i])
		}
	}
	return deleted
}

// inBatches makes the requests for many deliveries, a few at a time.
func (s *settler) inBatches(ctx context.Context, all []*delivery, do func(context.Context, []*entry[*settlement])) []*entry[*settlement] {
	entries := make([]*entry[*settlement], len(all))
	for i, d := range all {
		entries[i] = &entry[*settlement]{what: &settlement{handle: d.handle}}
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	const atOnce = 8
	slots := make(chan struct{}, atOnce)
	var requests sync.WaitGroup
	for first := 0; first < len(entries); first += receiveBatch {
		some := entries[first:min(first+receiveBatch, len(entries))]
		slots <- struct{}{}
		requests.Go(func() {
			do(ctx, some)
			<-slots
		})
	}
	requests.Wait()
	return entries
}
