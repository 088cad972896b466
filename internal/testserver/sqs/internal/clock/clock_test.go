package clock

import (
	"testing"
	"time"
)

func TestClock_RunsAheadOfTheMachine(t *testing.T) {
	t.Parallel()
	machine := time.Unix(1_000_000, 5)
	c := New(func() time.Time { return machine })
	if got := c.Now(); got != At(machine) || !got.Time().Equal(machine) {
		t.Errorf("a new clock shows %s, want %s", got.Time(), machine)
	}
	c.SetAhead(time.Hour)
	c.Advance(time.Minute)
	if got := c.Ahead(); got != time.Hour+time.Minute {
		t.Errorf("it is %s ahead", got)
	}
	machine = machine.Add(time.Second)
	if got := c.Now().Sub(At(machine)); got != time.Hour+time.Minute {
		t.Errorf("it shows the machine's time and %s", got)
	}
}

func TestInstant_Units(t *testing.T) {
	t.Parallel()
	i := At(time.UnixMilli(1999))
	if i.Seconds() != 1 || i.Milliseconds() != 1999 || i.Add(Seconds(2)).Milliseconds() != 3999 {
		t.Errorf("%d s, %d ms, and %d ms two seconds later", i.Seconds(), i.Milliseconds(), i.Add(Seconds(2)).Milliseconds())
	}
}
