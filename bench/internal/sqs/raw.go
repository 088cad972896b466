package sqs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/reprise-go/reprise/bench/internal/measure"
	"github.com/reprise-go/reprise/bench/internal/reprise"
	"github.com/reprise-go/reprise/bench/internal/workload"
)

// rawSetup is the code of a user who needs only the rate, with the AWS SDK, on a queue like Reprise's: no
// endpoint, no recoverability except that failed messages return at once, headers that are searched instead of
// parsed. The bytes of messages are Reprise's.
type rawSetup struct {
	pollers int           // goroutines that each receive ten messages, handle them, and delete them with one request
	latency time.Duration // delay of answers
}

func (setup rawSetup) contender(servers *Servers, name string) measure.StoreContender {
	return measure.StoreContender{Name: name, Open: func(ctx context.Context) (measure.Store, error) { return setup.openOn(ctx, servers) }}
}

// batchSize is the most entries of a request.
const batchSize = 10

type rawStore struct {
	setup rawSetup
	*sampleQueues
	url        string
	body       workload.Template
	attributes map[string]workload.Template

	wg   sync.WaitGroup
	errs []error
	end  context.CancelFunc
}

func (setup rawSetup) openOn(ctx context.Context, servers *Servers) (_ measure.Store, err error) {
	running, err := servers.ensureRunning(setup.latency)
	if err != nil {
		return nil, err
	}
	s := &rawStore{setup: setup, sampleQueues: running.newQueues()}
	if err := s.prepare(ctx); err != nil {
		return nil, errors.Join(err, s.Close(ctx))
	}
	return s, nil
}

// prepare makes the queues like Reprise, and lets Reprise send a message, whose text and attributes all others copy.
func (s *rawStore) prepare(ctx context.Context) error {
	t, err := s.open(ctx)
	if err != nil {
		return err
	}
	if err := errors.Join(t.Send(ctx, reprise.Message(workload.Placeholder, reprise.Setup{}.Body())), t.Close(ctx)); err != nil {
		return err
	}
	if s.url, err = s.queueURL(ctx, workload.Queue); err != nil {
		return err
	}
	messages, err := s.receive(ctx)
	if err != nil {
		return err
	}
	if len(messages) != 1 {
		return fmt.Errorf("%d messages are in the queue, want the one that was sent", len(messages))
	}
	s.body = workload.NewTemplate(*messages[0].Body)
	if len(s.body) < 2 {
		return fmt.Errorf("the sequence is not in the message: %s", *messages[0].Body)
	}
	s.attributes = make(map[string]workload.Template)
	for name, a := range messages[0].MessageAttributes {
		s.attributes[name] = workload.NewTemplate(*a.StringValue)
	}
	return s.remove(ctx, messages)
}

func (s *rawStore) attributesWith(sequence string) map[string]types.MessageAttributeValue {
	m := make(map[string]types.MessageAttributeValue, len(s.attributes))
	for name, t := range s.attributes {
		m[name] = types.MessageAttributeValue{DataType: new("String"), StringValue: new(t.With(sequence))}
	}
	return m
}

func (s *rawStore) Send(ctx context.Context, sequences []string) error {
	if len(sequences) == 1 {
		_, err := s.sdk.SendMessage(ctx, &awssqs.SendMessageInput{
			QueueUrl: &s.url, MessageBody: new(s.body.With(sequences[0])), MessageAttributes: s.attributesWith(sequences[0]),
		})
		return err
	}
	for batch := range slices.Chunk(sequences, batchSize) {
		entries := make([]types.SendMessageBatchRequestEntry, len(batch))
		for i, sequence := range batch {
			entries[i] = types.SendMessageBatchRequestEntry{
				Id: new(strconv.Itoa(i)), MessageBody: new(s.body.With(sequence)), MessageAttributes: s.attributesWith(sequence),
			}
		}
		out, err := s.sdk.SendMessageBatch(ctx, &awssqs.SendMessageBatchInput{QueueUrl: &s.url, Entries: entries})
		if err != nil {
			return err
		}
		if err := allSucceeded(out.Failed); err != nil {
			return err
		}
	}
	return nil
}

func allSucceeded(failed []types.BatchResultErrorEntry) error {
	if len(failed) == 0 {
		return nil
	}
	return fmt.Errorf("%d entries of a batch failed, the first one with %s", len(failed), *failed[0].Code)
}

// sequence finds the sequence in the text of a message.
func (s *rawStore) sequence(body string) string {
	at := len(s.body[0])
	if len(body) < at+workload.SequenceDigits {
		return ""
	}
	return body[at : at+workload.SequenceDigits]
}

func (s *rawStore) receive(ctx context.Context) ([]types.Message, error) {
	out, err := s.sdk.ReceiveMessage(ctx, &awssqs.ReceiveMessageInput{
		QueueUrl: &s.url, MaxNumberOfMessages: batchSize, WaitTimeSeconds: int32(waitTime / time.Second), MessageAttributeNames: []string{"All"},
	})
	if err != nil {
		return nil, err
	}
	return out.Messages, nil
}

// remove deletes messages.
func (s *rawStore) remove(ctx context.Context, messages []types.Message) error {
	entries := make([]types.DeleteMessageBatchRequestEntry, len(messages))
	for i, m := range messages {
		entries[i] = types.DeleteMessageBatchRequestEntry{Id: new(strconv.Itoa(i)), ReceiptHandle: m.ReceiptHandle}
	}
	out, err := s.sdk.DeleteMessageBatch(ctx, &awssqs.DeleteMessageBatchInput{QueueUrl: &s.url, Entries: entries})
	if err != nil {
		return err
	}
	return allSucceeded(out.Failed)
}

// requeue makes messages visible again.
func (s *rawStore) requeue(ctx context.Context, messages []types.Message) error {
	entries := make([]types.ChangeMessageVisibilityBatchRequestEntry, len(messages))
	for i, m := range messages {
		entries[i] = types.ChangeMessageVisibilityBatchRequestEntry{Id: new(strconv.Itoa(i)), ReceiptHandle: m.ReceiptHandle}
	}
	out, err := s.sdk.ChangeMessageVisibilityBatch(ctx, &awssqs.ChangeMessageVisibilityBatchInput{QueueUrl: &s.url, Entries: entries})
	if err != nil {
		return err
	}
	return allSucceeded(out.Failed)
}

func (s *rawStore) Start(ctx context.Context, handle func(string) error) error {
	ctx, s.end = context.WithCancel(ctx)
	s.errs = make([]error, s.setup.pollers)
	for i := range s.errs {
		s.wg.Go(func() { s.errs[i] = s.poll(ctx, handle) })
	}
	return nil
}

// poll is the loop of one goroutine, until ctx ends.
func (s *rawStore) poll(ctx context.Context, handle func(string) error) error {
	requests := context.WithoutCancel(ctx) // a cancelled request may lock messages without a receiver
	var done, failed []types.Message
	for ctx.Err() == nil {
		messages, err := s.receive(requests)
		if err != nil {
			return err
		}
		done, failed = done[:0], failed[:0]
		for _, m := range messages {
			if handle(s.sequence(*m.Body)) == nil {
				done = append(done, m)
			} else {
				failed = append(failed, m)
			}
		}
		if len(done) > 0 {
			err = s.remove(requests, done)
		}
		if len(failed) > 0 {
			err = errors.Join(err, s.requeue(requests, failed))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *rawStore) Stop(context.Context) error {
	s.end()
	s.wg.Wait()
	return errors.Join(s.errs...)
}

func (s *rawStore) Close(ctx context.Context) error {
	if s.end != nil {
		s.end()
		s.wg.Wait()
	}
	return s.drop(ctx)
}
