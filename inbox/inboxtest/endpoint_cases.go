package inboxtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/reprise-go/reprise/core"
)

// adds returns a handler whose effect is named after the message.
func (s *service) adds(suffix string) core.HandlerFunc {
	return func(ctx context.Context, m *core.Message) error { return s.db.Effect(ctx, m.ID+suffix) }
}

var errRetry = errors.New("the handler fails")

// shortRetries retries at once and then after a millisecond.
var shortRetries = core.Recoverability{Immediate: core.Immediate{NumberOfRetries: 2}, Delayed: core.Delayed{NumberOfRetries: 2, Delays: []time.Duration{time.Millisecond, time.Millisecond}}}

func duplicateIsNotHandled(ctx context.Context, db Database) error {
	s, err := newService(ctx, db)
	if err != nil {
		return err
	}
	var stop func() error
	for range 2 { // the second run stands for another process
		if stop, err = s.run(ctx, inside{name: "billing", handlers: []core.HandlerFunc{s.adds("")}}); err != nil {
			return err
		}
		err = steps(
			func() error { return s.put(ctx, "m1", "m1", "m2") },
			func() error { return s.drained(ctx, "billing") },
			stop,
		)
		if err != nil {
			return err
		}
	}
	return steps(
		func() error { return s.hasRun("m1", 1) },
		func() error { return s.hasRun("m2", 1) },
		func() error { return hasEffects(ctx, db, "m1", 1) },
		func() error { return s.onlyFailures(nil) },
	)
}

func lostSendsAreRepeated(ctx context.Context, db Database) error {
	s, err := newService(ctx, db)
	if err != nil {
		return err
	}
	s.lost = 4 // immediate retries, and one after a delay
	stop, err := s.run(ctx, inside{name: "billing", retries: shortRetries, handlers: []core.HandlerFunc{func(ctx context.Context, m *core.Message) error {
		return errors.Join(
			db.Effect(ctx, m.ID),
			m.Send("events", billedType.Of([]byte("bill \x00\xff")).With(core.SendOptions{GroupKey: "g", Properties: map[string]string{"p": "1"}, Headers: map[string]string{"app": "v \u00e9"}})),
			m.Send("events", notedType.Of([]byte("note"))),
		)
	}}})
	if err != nil {
		return err
	}
	err = steps(
		func() error { return s.put(ctx, "m1") },
		func() error { return s.drained(ctx, "billing") },
		stop,
		func() error { return s.hasRun("m1", 1) },
		func() error { return hasEffects(ctx, db, "m1", 1) },
		func() error { return s.onlyFailures(nil) },
	)
	if err != nil {
		return err
	}
	messages, err := s.arrived(ctx, "events", 2)
	if err != nil {
		return err
	}
	for _, call := range s.called {
		for i, out := range call {
			first, got := s.called[0][i], messages[i]
			if out.ID != first.ID || got.ID != first.ID || !maps.Equal(got.Headers.Map(), first.Headers.Map()) || string(got.Body) != string(first.Body) ||
				got.GroupKey != first.GroupKey || !maps.Equal(got.Properties, first.Properties) {
				return fmt.Errorf("a message was sent at first as %+v, then as %+v, and has arrived as %+v", first, out, got)
			}
		}
	}
	store, err := db.Open(ctx)
	if err != nil {
		return err
	}
	tx, entry, err := store.Begin(ctx, key("billing", "m1"), time.Minute)
	switch {
	case err != nil:
		return err
	case tx != nil:
		return errors.Join(errors.New("there is no entry of a message that was handled"), tx.Rollback(ctx))
	case entry.Outgoing != nil:
		return errors.New("the entry still has the messages, though they have left and the inbox was closed")
	}
	return nil
}

func eachScopeHandles(ctx context.Context, db Database) error {
	s, err := newService(ctx, db)
	if err != nil {
		return err
	}
	var stops []func() error
	defer func() {
		for _, stop := range stops {
			_ = stop()
		}
	}()
	for _, name := range []string{"billing", "shipping"} {
		stop, err := s.run(ctx, inside{name: name, handlers: []core.HandlerFunc{s.adds(" in " + name)}})
		if err != nil {
			return err
		}
		stops = append(stops, stop)
	}
	return steps(
		func() error { return s.put(ctx, "m1", "m1") },
		func() error { return s.drained(ctx, "billing", "shipping") },
		func() error { return s.hasRun("m1", 2) },
		func() error { return hasEffects(ctx, db, "m1 in billing", 1) },
		func() error { return hasEffects(ctx, db, "m1 in shipping", 1) },
	)
}

func eachHandlerOnce(ctx context.Context, db Database) error {
	s, err := newService(ctx, db)
	if err != nil {
		return err
	}
	runs := 0
	sends := func(ctx context.Context, m *core.Message) error {
		return errors.Join(db.Effect(ctx, "first"), m.Send("events", firstType.Of([]byte("first"))))
	}
	failsOnce := func(ctx context.Context, m *core.Message) error {
		if err := errors.Join(db.Effect(ctx, "second"), m.Send("events", secondType.Of([]byte("second")))); err != nil {
			return err
		}
		if runs++; runs == 1 {
			return errRetry
		}
		return nil
	}
	stop, err := s.run(ctx, inside{name: "billing", each: true, retries: shortRetries, handlers: []core.HandlerFunc{sends, failsOnce}})
	if err != nil {
		return err
	}
	err = steps(
		func() error { return s.put(ctx, "m1") },
		func() error { return s.drained(ctx, "billing") },
		stop,
		func() error { return s.hasRun("m1", 3) },
		func() error { return hasEffects(ctx, db, "first", 1) },
		func() error { return hasEffects(ctx, db, "second", 1) },
	)
	if err != nil {
		return err
	}
	messages, err := s.arrived(ctx, "events", 2)
	if err != nil {
		return err
	}
	bodies := []string{string(messages[0].Body), string(messages[1].Body)}
	if slices.Sort(bodies); bodies[0] != "first" || bodies[1] != "second" || messages[0].ID == messages[1].ID {
		return fmt.Errorf("of two handlers, of which one failed once, %q have arrived with the ids %s and %s", bodies, messages[0].ID, messages[1].ID)
	}
	return nil
}

// verdicts tests a message whose first attempt ends in each of the ways, and that is then
// received once more.
func verdicts(ctx context.Context, db Database) error {
	s, err := newService(ctx, db)
	if err != nil {
		return err
	}
	ways := map[string]struct {
		err           error
		runs, effects int
	}{
		"success":       {nil, 1, 1},
		"discard":       {core.Discard(errors.New("of no use")), 1, 0},
		"error":         {errRetry, 2, 1},
		"reject":        {core.GiveUp(errRetry), 2, 1},
		"invalid":       {core.GiveUpTo(errRetry, core.InvalidQueue), 2, 1},
		"move":          {core.GiveUpTo(errRetry, "parking"), 2, 1},
		"defer":         {core.Defer(errors.New("not yet"), time.Millisecond), 2, 1},
		"retry after":   {core.RetryAfter(errRetry, time.Millisecond), 2, 1},
		"unrecoverable": {core.GiveUp(errRetry), 2, 1},
		"put back":      {core.PutBack(errRetry, time.Millisecond), 2, 1},
		"refuse":        {core.Refuse(errRetry, time.Millisecond), 2, 1},
	}
	first := func(id string) bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.runs[id] == 1
	}
	stop, err := s.run(ctx, inside{name: "billing", retries: shortRetries, handlers: []core.HandlerFunc{func(ctx context.Context, m *core.Message) error {
		if err := db.Effect(ctx, m.ID); err != nil {
			return err
		}
		if first(m.ID) {
			return ways[m.ID].err
		}
		return nil
	}}})
	if err != nil {
		return err
	}
	defer func() { _ = stop() }()
	for range 3 { // the third is always a duplicate
		if err := errors.Join(s.put(ctx, slices.Collect(maps.Keys(ways))...), s.drained(ctx, "billing")); err != nil {
			return err
		}
	}
	for id, want := range ways {
		if err := errors.Join(s.hasRun(id, want.runs), hasEffects(ctx, db, id, want.effects)); err != nil {
			return fmt.Errorf("the first attempt ends with %q: %w", id, err)
		}
	}
	return nil
}

func copiesAtOnce(ctx context.Context, db Database) error {
	s, err := newService(ctx, db)
	if err != nil {
		return err
	}
	began, finish := make(chan struct{}, 100), make(chan struct{})
	var stops []func() error
	defer func() {
		for _, stop := range stops {
			_ = stop()
		}
	}()
	for range 2 { // instances of one endpoint
		stop, err := s.run(ctx, inside{name: "billing", retries: shortRetries, handlers: []core.HandlerFunc{func(ctx context.Context, m *core.Message) error {
			began <- struct{}{}
			<-finish
			return errors.Join(db.Effect(ctx, m.ID), m.Send("events", billedType.Of([]byte(m.ID))))
		}}})
		if err != nil {
			return err
		}
		stops = append(stops, stop)
	}
	ids := slices.Repeat([]string{"m1"}, 20)
	if err := s.put(ctx, ids...); err != nil {
		return err
	}
	select {
	case <-began:
	case <-ctx.Done():
		return errors.New("no copy is handled")
	}
	close(finish)
	return steps(
		func() error { return s.drained(ctx, "billing") },
		func() error { return s.hasRun("m1", 1) },
		func() error { return hasEffects(ctx, db, "m1", 1) },
		func() error { return s.onlyFailures(nil) },
	)
}
