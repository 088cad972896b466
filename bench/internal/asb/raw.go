package asb

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/reprise-go/reprise/bench/internal/measure"
	"github.com/reprise-go/reprise/bench/internal/reprise"
	"github.com/reprise-go/reprise/bench/internal/workload"
)

// rawSetup is the code of a user who needs only the rate, with azservicebus, on a queue like Reprise's: no endpoint,
// no recoverability except that failed messages are abandoned at once. The bytes of messages are Reprise's.
type rawSetup struct {
	links   int           // goroutines with a link each, which receive messages, handle them one after the other, and settle them all at once
	batch   int           // most messages that a link receives at a time
	latency time.Duration // delay of answers
}

func (setup rawSetup) contender(servers *Servers, name string) measure.StoreContender {
	return measure.StoreContender{Name: name, Open: func(ctx context.Context) (measure.Store, error) { return setup.openOn(ctx, servers) }}
}

type rawStore struct {
	setup rawSetup
	*sampleQueues
	client     *azservicebus.Client
	sender     *azservicebus.Sender
	body       []byte
	properties map[string]workload.Template

	wg   sync.WaitGroup
	errs []error
	end  context.CancelFunc
}

func (setup rawSetup) openOn(ctx context.Context, servers *Servers) (_ measure.Store, err error) {
	running, err := servers.ensureRunning(ctx, setup.latency)
	if err != nil {
		return nil, err
	}
	queues, err := running.newQueues()
	if err != nil {
		return nil, err
	}
	s := &rawStore{setup: setup, sampleQueues: queues}
	if err := s.prepare(ctx); err != nil {
		return nil, errors.Join(err, s.Close(ctx))
	}
	return s, nil
}

// prepare makes the queues like Reprise, and lets Reprise send a message, whose properties all others copy.
func (s *rawStore) prepare(ctx context.Context) (err error) {
	t, err := s.open(ctx)
	if err != nil {
		return err
	}
	s.body = reprise.Setup{}.Body()
	if err := errors.Join(t.Send(ctx, reprise.Message(workload.Placeholder, s.body)), t.Close(ctx)); err != nil {
		return err
	}
	if s.client, err = azservicebus.NewClientFromConnectionString(s.server.connectionString, nil); err != nil {
		return err
	}
	if s.sender, err = s.client.NewSender(s.queue(), nil); err != nil {
		return err
	}
	r, err := s.client.NewReceiverForQueue(s.queue(), nil)
	if err != nil {
		return err
	}
	messages, err := r.ReceiveMessages(ctx, 1, nil)
	if err != nil {
		return err
	}
	if len(messages) != 1 {
		return fmt.Errorf("%d messages are in the queue, want the one that was sent", len(messages))
	}
	s.properties = make(map[string]workload.Template)
	for name, value := range messages[0].ApplicationProperties {
		s.properties[name] = workload.NewTemplate(fmt.Sprint(value))
	}
	if len(s.properties[workload.SequenceHeader]) != 2 {
		return fmt.Errorf("the message has no sequence: %v", messages[0].ApplicationProperties)
	}
	return errors.Join(r.CompleteMessage(ctx, messages[0], nil), r.Close(ctx))
}

func (s *rawStore) queue() string { return s.prefix + workload.Queue }

func (s *rawStore) message(sequence string) *azservicebus.Message {
	properties := make(map[string]any, len(s.properties))
	for name, t := range s.properties {
		properties[name] = t.With(sequence)
	}
	return &azservicebus.Message{MessageID: &sequence, Body: s.body, ApplicationProperties: properties}
}

func (s *rawStore) Send(ctx context.Context, sequences []string) error {
	if len(sequences) == 1 {
		return s.sender.SendMessage(ctx, s.message(sequences[0]), nil)
	}
	for len(sequences) > 0 {
		batch, err := s.sender.NewMessageBatch(ctx, nil)
		if err != nil {
			return err
		}
		n := 0
		for ; n < len(sequences); n++ {
			err := batch.AddMessage(s.message(sequences[n]), nil)
			if errors.Is(err, azservicebus.ErrMessageTooLarge) && n > 0 {
				break
			}
			if err != nil {
				return err
			}
		}
		if err := s.sender.SendMessageBatch(ctx, batch, nil); err != nil {
			return err
		}
		sequences = sequences[n:]
	}
	return nil
}

func (s *rawStore) Start(ctx context.Context, handle func(string) error) error {
	ctx, s.end = context.WithCancel(ctx)
	s.errs = make([]error, s.setup.links)
	for i := range s.errs {
		r, err := s.client.NewReceiverForQueue(s.queue(), nil)
		if err != nil {
			return err
		}
		s.wg.Go(func() { s.errs[i] = s.poll(ctx, r, handle) })
	}
	return nil
}

// rawAfterFirst is the time for which a call waits for further messages after the first one: the same as in the
// adapter. The SDK's default is 20 ms.
const rawAfterFirst = 2 * time.Millisecond

// poll is the loop of one goroutine, until ctx ends.
func (s *rawStore) poll(ctx context.Context, r *azservicebus.Receiver, handle func(string) error) error {
	settling := context.WithoutCancel(ctx)
	options := &azservicebus.ReceiveMessagesOptions{TimeAfterFirstMessage: rawAfterFirst}
	errs := make([]error, s.setup.batch)
	for {
		messages, err := r.ReceiveMessages(ctx, s.setup.batch, options)
		if ctx.Err() != nil {
			return r.Close(settling)
		}
		if err != nil {
			return err
		}
		var settlements sync.WaitGroup
		for i, m := range messages {
			sequence, _ := m.ApplicationProperties[workload.SequenceHeader].(string)
			failed := handle(sequence) != nil
			settlements.Go(func() {
				if failed {
					errs[i] = r.AbandonMessage(settling, m, nil)
				} else {
					errs[i] = r.CompleteMessage(settling, m, nil)
				}
			})
		}
		settlements.Wait()
		if err := errors.Join(errs[:len(messages)]...); err != nil {
			return err
		}
	}
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
	var err error
	if s.client != nil {
		err = s.client.Close(context.WithoutCancel(ctx))
	}
	return errors.Join(err, s.drop(ctx))
}
