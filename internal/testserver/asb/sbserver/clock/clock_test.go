package clock

import (
	"fmt"
	"testing"
	"time"
)

func TestFake_CallsInOrder(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	c := NewFake(start)
	var calls []string
	call := func(name string, d time.Duration) func() bool {
		return c.AfterFunc(d, func() {
			calls = append(calls, fmt.Sprint(name, c.Now().Sub(start)))
			if name == "a" {
				c.AfterFunc(time.Second, func() { calls = append(calls, fmt.Sprint("later", c.Now().Sub(start))) })
			}
		})
	}
	call("c", 3*time.Second)
	call("a", time.Second)
	call("b", time.Second)
	stopped := call("stopped", time.Second)
	call("never", time.Hour)
	if !stopped() || stopped() {
		t.Error("a call can be stopped exactly once")
	}
	c.Advance(3 * time.Second)
	if got := fmt.Sprint(calls); got != "[a1s b1s later2s c3s]" {
		t.Errorf("the calls are %s", got)
	}
	if got := c.Now(); !got.Equal(start.Add(3 * time.Second)) {
		t.Errorf("the clock shows %v", got)
	}
}

func TestAgenda_EventsInOrder(t *testing.T) {
	t.Parallel()
	var a Agenda
	events := map[*Event]string{}
	event := func(name string, at Instant) *Event {
		ev := &Event{}
		events[ev] = name
		a.Set(ev, at)
		return ev
	}
	// popped returns the events that are due.
	popped := func(now Instant) (names []string) {
		for ev := a.Pop(now); ev != nil; ev = a.Pop(now) {
			names = append(names, events[ev])
		}
		return names
	}
	event("c", 30)
	event("a", 10)
	event("b", 10) // after a, which was set before it
	moved := event("moved", 5)
	removed := event("removed", 10)
	a.Set(moved, 20)
	a.Remove(removed)
	a.Remove(removed)
	if removed.IsSet() || !moved.IsSet() {
		t.Error("an event is set until it is removed")
	}
	if got := a.Next(); got != 10 {
		t.Errorf("the next event is at %d", got)
	}
	if got := fmt.Sprint(popped(9), popped(20)); got != "[] [a b moved]" {
		t.Errorf("the events are %s", got)
	}
	if got := fmt.Sprint(popped(100)); got != "[c]" || a.Next() != 0 || moved.IsSet() {
		t.Errorf("at the end: %s, the next one is at %d", got, a.Next())
	}
}

func TestInstant_HasMilliseconds(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 6_999_999, time.UTC)
	i := At(at)
	if got := i.Time(); !got.Equal(at.Truncate(time.Millisecond)) {
		t.Errorf("%v is %v", at, got)
	}
	if got := i.Until(i.Add(time.Minute)); got != time.Minute {
		t.Errorf("a minute is %v", got)
	}
}
