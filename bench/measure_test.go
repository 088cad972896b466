package main

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
)

// faulty is a system that handles each message in a goroutine, as often as
// deliver says.
type faulty struct {
	handle  func(string) error
	deliver func(sequence int) int
}

func (f faulty) send(_ context.Context, sequence string) error {
	for range f.deliver(sequenceNumber(sequence)) {
		go func() { _ = f.handle(sequence) }() // what it returns is for systems that retry
	}
	return nil
}

func (faulty) close(context.Context) error { return nil }

func faultyContender(deliver func(sequence int) int) contender {
	return contender{"faulty", func(_ context.Context, handle func(string) error) (system, error) {
		return faulty{handle, deliver}, nil
	}}
}

func TestMeasure_CountsMessagesAfterTheWarmUp(t *testing.T) {
	for _, p := range []pace{freeRunning, blocking} {
		c := faultyContender(func(int) int { return 1 })
		s, err := c.measure(t.Context(), work{pace: p, messages: 100})
		if err != nil {
			t.Fatal(err)
		}
		if s.messages != 100 || s.elapsed <= 0 || s.allocs < 100 {
			t.Errorf("pace %v: the sample is %+v", p, s)
		}
	}
}

func TestMeasure_FailsForALostMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := faultyContender(func(n int) int {
			if n == 57 {
				return 0
			}
			return 1
		})
		_, err := c.measure(t.Context(), work{messages: 100})
		if err == nil || !strings.Contains(err.Error(), "109 of 110 messages were handled") {
			t.Errorf("the error is %v", err)
		}
	})
}

func TestMeasure_FailsForADuplicate(t *testing.T) {
	// The repetition takes the place of another message, so that the number of
	// handled ones is right.
	c := faultyContender(func(n int) int {
		switch n {
		case 57:
			return 2
		case 58:
			return 0
		}
		return 1
	})
	_, err := c.measure(t.Context(), work{messages: 100})
	if err == nil || !strings.Contains(err.Error(), "2 of 110 messages were not attempted exactly 1 times") {
		t.Errorf("the error is %v", err)
	}
}

func TestLedger_RefusesUnknownMessages(t *testing.T) {
	for _, sequence := range []string{"", "x", "000000000001"} {
		l := newLedger(1, 0)
		l.expect(1)
		for _, s := range []string{sequence, "000000000000"} {
			if err := l.handle(s); err != nil {
				t.Fatal(err)
			}
		}
		if err := l.check(); err == nil {
			t.Errorf("%q was accepted", sequence)
		}
	}
}

func TestSequence_RoundTrip(t *testing.T) {
	list := newSequences(1234)
	for i := range 1234 {
		if got := sequenceNumber(list.at(i)); got != i {
			t.Fatalf("%q is %d, want %d", list.at(i), got, i)
		}
	}
}
