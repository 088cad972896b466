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
	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/sqs/internal/batch"
)

// settlementKind is the kind of request that a settlement needs.
type settlementKind int

const (
	settleDelete settlementKind = iota
	settleReturn                // the message is available when timeout has passed
	settleRenew                 // the message is locked for timeout from now on
)

// settlement is a request about one delivery.
type settlement struct {
	kind    settlementKind
	timeout time.Duration
	before  func() // runs before the request, which may make the message available to others
	d       *delivery
	handle  string
	asked   time.Time // when the request left
}

// settler settles the deliveries of a receiver, up to ten with one request. Messages that
// arrived together are handled at about the same time, so it waits for a moment while
// more are in flight.
type settler struct {
	settleRequests
	r         *receiver
	deletions *batch.Batcher[*settlement]
	returns   *batch.Batcher[*settlement]
	renewals  *batch.Batcher[*settlement] // separate from returns, so that no return waits for them
}

const (
	settleLinger = 5 * time.Millisecond
	renewLinger  = 50 * time.Millisecond
	// settleGrace is how long a caller whose context has ended waits for a settlement
	// that has left.
	settleGrace = 5 * time.Second
	// cancelGrace is the same after the request was cancelled, because the caller's deadline
	// has passed.
	cancelGrace = time.Second
)

// graceOf returns the time for which a settlement waits after the end of ctx: with a deadline
// it ends then.
func graceOf(ctx context.Context) time.Duration {
	if _, ends := ctx.Deadline(); ends {
		return 0
	}
	return settleGrace
}

func newSettler(r *receiver) *settler {
	s := &settler{settleRequests: settleRequests{r.t, r.url}, r: r}
	newBatcher := func(linger time.Duration, worthwhile func(int) bool, do func(context.Context, []*batch.Entry[*settlement])) *batch.Batcher[*settlement] {
		return &batch.Batcher[*settlement]{
			Life: r.t.life, Runners: r.t.runners, Partly: maxConcurrentRequests, MaxConcurrent: maxConcurrentRequests, Timeout: requestTimeout, Linger: linger, Worthwhile: worthwhile, Do: do,
		}
	}
	s.deletions = newBatcher(settleLinger, s.moreToSettle, s.delete)
	s.returns = newBatcher(settleLinger, s.moreToSettle, s.change)
	s.renewals = newBatcher(renewLinger, s.moreToRenew, s.change)
	for _, b := range []*batch.Batcher[*settlement]{s.deletions, s.returns} {
		b.Added, b.Ended = r.settling, r.settled
	}
	return s
}

// moreToSettle reports whether handlers have deliveries that may be settled soon.
func (s *settler) moreToSettle(int) bool { return s.r.unsettled() > 0 }

// moreToRenew reports whether handlers have more deliveries than the n that wait for a
// renewal.
func (s *settler) moreToRenew(n int) bool { return s.r.unsettled() > n }

// do makes a settlement, with others in one request, and returns the time at which the
// request left.
func (s *settler) do(ctx context.Context, d *delivery, request settlement) (asked time.Time, err error) {
	request.d, request.handle = d, d.handle
	b := s.deletions
	switch request.kind {
	case settleDelete:
	case settleRenew:
		b = s.renewals
	case settleReturn:
		b = s.returns
	}
	e := &batch.Entry[*settlement]{Item: &request}
	b.Add(e)
	err, begun := b.Await(ctx, e, graceOf(ctx))
	if _, ends := ctx.Deadline(); err != nil && begun && ends { // else it could take effect when the outage ends
		b.Cancel(e)
		err, _ = b.Await(ctx, e, cancelGrace)
	}
	if err != nil {
		if !errors.Is(err, ctx.Err()) {
			err = s.explained(err)
		}
		return time.Time{}, transport.Unavailable(ctx, err, transient) // the request may still be in progress, and write to asked
	}
	return request.asked, nil
}

// explained adds to an error of a request its meaning to the delivery.
func (s *settler) explained(err error) error {
	if errors.Is(err, core.ErrClosed) || faultOf(err) == faultLockLost {
		return fmt.Errorf("sqs: settle a message of %q: %w: %w", s.r.address, core.ErrLockLost, err)
	}
	return fmt.Errorf("sqs: settle a message of %q: %w", s.r.address, s.r.t.explained(err))
}

// settleRequests makes the requests that settle messages of one queue.
type settleRequests struct {
	t   *Transport
	url string // of the queue
}

// delete makes one request, which deletes messages.
func (q settleRequests) delete(ctx context.Context, entries []*batch.Entry[*settlement]) {
	in := &sqs.DeleteMessageBatchInput{QueueUrl: &q.url, Entries: make([]types.DeleteMessageBatchRequestEntry, len(entries))}
	for i, e := range entries {
		in.Entries[i] = types.DeleteMessageBatchRequestEntry{Id: aws.String(strconv.Itoa(i)), ReceiptHandle: &e.Item.handle}
	}
	out, err := q.t.sqs.DeleteMessageBatch(ctx, in)
	if err != nil {
		failAll(entries, err)
		return
	}
	outcome(entries, out.Failed, len(out.Successful))
}

// change makes one request, which changes visibility timeouts.
func (q settleRequests) change(ctx context.Context, entries []*batch.Entry[*settlement]) {
	in := &sqs.ChangeMessageVisibilityBatchInput{QueueUrl: &q.url, Entries: make([]types.ChangeMessageVisibilityBatchRequestEntry, len(entries))}
	asked := time.Now()
	for i, e := range entries {
		e.Item.asked = asked
		in.Entries[i] = types.ChangeMessageVisibilityBatchRequestEntry{
			Id: aws.String(strconv.Itoa(i)), ReceiptHandle: &e.Item.handle, VisibilityTimeout: int32(e.Item.timeout / time.Second),
		}
	}
	out, err := q.t.sqs.ChangeMessageVisibilityBatch(ctx, in)
	if err != nil {
		failAll(entries, err)
		return
	}
	outcome(entries, out.Failed, len(out.Successful))
}

func failAll(entries []*batch.Entry[*settlement], err error) {
	for _, e := range entries {
		e.Err = err
	}
}

// release makes messages available to others, if the service can be reached. Otherwise
// they are redelivered when their visibility timeout ends.
func (q settleRequests) release(ctx context.Context, deliveries []*delivery) {
	q.inBatches(ctx, deliveries, settlement{}, q.change)
}

// lock locks messages for a time from now on, in whole seconds, rounded up. It returns
// the messages that were locked; those whose request failed are redelivered when their
// visibility timeout ends.
func (q settleRequests) lock(ctx context.Context, deliveries []*delivery, timeout time.Duration) (locked []*delivery) {
	return succeeded(deliveries, q.inBatches(ctx, deliveries, settlement{timeout: time.Duration(seconds(timeout)) * time.Second}, q.change))
}

// deleteAll deletes messages, and returns those whose deletion the service has confirmed.
func (q settleRequests) deleteAll(ctx context.Context, deliveries []*delivery) (deleted []*delivery) {
	return succeeded(deliveries, q.inBatches(ctx, deliveries, settlement{}, q.delete))
}

// succeeded returns the deliveries whose entries have no error.
func succeeded(deliveries []*delivery, entries []*batch.Entry[*settlement]) (done []*delivery) {
	for i, e := range entries {
		if e.Err == nil {
			done = append(done, deliveries[i])
		}
	}
	return done
}

// inBatches makes the requests for many deliveries, a few at a time.
func (q settleRequests) inBatches(ctx context.Context, deliveries []*delivery, request settlement, do func(context.Context, []*batch.Entry[*settlement])) []*batch.Entry[*settlement] {
	entries := make([]*batch.Entry[*settlement], len(deliveries))
	for i, d := range deliveries {
		each := request
		each.handle = d.handle
		entries[i] = &batch.Entry[*settlement]{Item: &each}
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	const atOnce = 8
	slots := make(chan struct{}, atOnce)
	var requests sync.WaitGroup
	for first := 0; first < len(entries); first += batch.MaxEntries {
		part := entries[first:min(first+batch.MaxEntries, len(entries))]
		slots <- struct{}{}
		requests.Go(func() {
			do(ctx, part)
			<-slots
		})
	}
	requests.Wait()
	return entries
}
