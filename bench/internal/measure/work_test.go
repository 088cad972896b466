package measure

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/reprise-go/reprise/bench/internal/workload"
)

// faulty is a system that handles each message in a goroutine, as often as
// deliver says.
type faulty struct {
	handle  func(string) error
	deliver func(sequence int) int
}

func (f faulty) Send(_ context.Context, sequence string) error {
	for range f.deliver(workload.SequenceNumber(sequence)) {
		go func() { _ = f.handle(sequence) }() // what it returns is for systems that retry
	}
	return nil
}

func (faulty) Close(context.Context) error { return nil }

func faultyContender(deliver func(sequence int) int) Contender {
	return Contender{"faulty", func(_ context.Context, handle func(string) error) (System, error) {
		return faulty{handle, deliver}, nil
	}}
}

func TestMeasure_CountsMessagesAfterTheWarmUp(t *testing.T) {
	for _, p := range []Pace{FreeRunning, Blocking} {
		c := faultyContender(func(int) int { return 1 })
		s, err := c.measure(t.Context(), Work{Pace: p, Messages: 100})
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
		_, err := c.measure(t.Context(), Work{Messages: 100})
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
	_, err := c.measure(t.Context(), Work{Messages: 100})
	if err == nil || !strings.Contains(err.Error(), "2 of 110 messages were not attempted exactly 1 times") {
		t.Errorf("the error is %v", err)
	}
}
