package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

// rawASBSetup is the code of a user who needs only the rate, with azservicebus, on a queue like Reprise's: no endpoint,
// no recoverability except that failed messages are abandoned at once. The bytes of messages are Reprise's.
type rawASBSetup struct {
	links int           // goroutines with a link each, which receive messages, handle them one after the other, and settle them all at once
	batch int           // most messages that a link receives at a time
	away  time.Duration // delay of answers
}

func (setup rawASBSetup) keeper(on *asbSystem, name string) keeper {
	return keeper{name, func(ctx context.Context) (store, error) { return setup.openOn(ctx, on) }}
}

type rawASBStore struct {
	setup rawASBSetup
	*asbQueues
	client     *azservicebus.Client
	sender     *azservicebus.Sender
	body       []byte
	properties map[string]text

	wg   sync.WaitGroup
	errs []error
	end  context.CancelFunc
}

func (setup rawASBSetup) openOn(ctx context.Context, on *asbSystem) (_ store, err error) {
	server, err := on.server(ctx, setup.away)
	if err != nil {
		return nil, err
	}
	queues, err := server.newQueues()
	if err != nil {
		return nil, err
	}
	s := &rawASBStore{setup: setup, asbQueues: queues}
	if err := s.prepare(ctx); err != nil {
		return nil, errors.Join(err, s.close(ctx))
	}
	return s, nil
}

// prepare makes the queues like Reprise, and lets Reprise send a message, whose properties all others copy.
func (s *rawASBStore) prepare(ctx context.Context) (err error) {
	t, err := s.open(ctx)
	if err != nil {
		return err
	}
	s.body = repriseSetup{}.body()
	if err := errors.Join(t.Send(ctx, repriseMessage(placeholder, s.body)), t.Close(ctx)); err != nil {
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
	s.properties = make(map[string]text)
	for name, value := range messages[0].ApplicationProperties {
		s.properties[name] = textOf(fmt.Sprint(value))
	}
	if len(s.properties[sequenceHeader]) != 2 {
		return fmt.Errorf("the message has no sequence: %v", messages[0].ApplicationProperties)
	}
	return errors.Join(r.CompleteMessage(ctx, messages[0], nil), r.Close(ctx))
}

func (s *rawASBStore) queue() string { return s.prefix + ordersQueue }

func (s *rawASBStore) message(sequence string) *azservicebus.Message {
	properties := make(map[string]any, len(s.properties))
	for name, t := range s.properties {
		properties[name] = t.with(sequence)
	}
	return &azservicebus.Message{MessageID: &sequence, Body: s.body, ApplicationProperties: properties}
}

func (s *rawASBStore) send(ctx context.Context, sequences []string) error {
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

func (s *rawASBStore) start(ctx context.Context, handle func(string) error) error {
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

// rawASBAfterFirst is the time for which a call waits for further messages after the first one: the same as in the
// adapter. The SDK's default is 20 ms.
const rawASBAfterFirst = 2 * time.Millisecond

// poll is the loop of one goroutine, until ctx ends.
func (s *rawASBStore) poll(ctx context.Context, r *azservicebus.Receiver, handle func(string) error) error {
	settling := context.WithoutCancel(ctx)
	options := &azservicebus.ReceiveMessagesOptions{TimeAfterFirstMessage: rawASBAfterFirst}
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
			sequence, _ := m.ApplicationProperties[sequenceHeader].(string)
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

func (s *rawASBStore) stop(context.Context) error {
	s.end()
	s.wg.Wait()
	return errors.Join(s.errs...)
}

func (s *rawASBStore) close(ctx context.Context) error {
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
