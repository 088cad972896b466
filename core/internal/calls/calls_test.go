package calls

import (
	"errors"
	"runtime"
	"slices"
	"testing"
	"time"
)

func TestQueue_OutlivesPanicsAndGoexit(t *testing.T) {
	var reported []any
	q := New(10, func(value any) { reported = append(reported, value) })
	var called []int
	q.Add(func() { panic("observer") })
	q.Add(func() { called = append(called, 1) })
	q.Add(runtime.Goexit)
	q.Add(func() { called = append(called, 2) })
	if !q.Close(time.Minute) {
		t.Fatal("the calls have not returned")
	}
	if want := []any{"observer", ErrGoexit}; !slices.Equal(reported, want) {
		t.Errorf("reported %v, want %v", reported, want)
	}
	if want := []int{1, 2}; !slices.Equal(called, want) {
		t.Errorf("called %v, want %v", called, want)
	}
}

func TestQueue_CountsDroppedCalls(t *testing.T) {
	q := New(1, nil)
	began, end := make(chan struct{}), make(chan struct{})
	q.Add(func() { close(began); <-end })
	<-began
	for range 3 { // one has room
		q.Add(func() {})
	}
	if q.Close(0) {
		t.Error("closed while a call has not returned")
	}
	q.Add(func() {})
	if got := q.Dropped(); got != 3 {
		t.Errorf("%d dropped, want 3", got)
	}
	close(end)
	if !q.Close(time.Minute) {
		t.Error("the calls have not returned")
	}
}

type brokenError struct{ error }

func TestErrorText(t *testing.T) {
	for want, err := range map[string]error{
		"":     nil,
		"text": errors.New("text"),
		"an error whose text cannot be read: its method Error panics": brokenError{},
	} {
		if got := ErrorText(err); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
