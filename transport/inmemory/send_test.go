package inmemory_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/core/queues"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// Rule C2.
func TestSend_ResultsAreByDestination(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport := open(t, inmemory.Config{}, "a", "b")
		err := transport.Send(t.Context(), message("a", "1"), message("missing", "2"), message("b", "3"))
		failWith(t, err, core.ErrQueueNotFound)
		var failed *core.SendError
		if !errors.As(err, &failed) {
			t.Fatalf("no *SendError: %v", err)
		}
		for i, want := range []core.SendResult{
			{ID: "id-1", To: "a", State: core.SendAccepted},
			{ID: "id-2", To: "missing", State: core.SendRefused},
			{ID: "id-3", To: "b", State: core.SendAccepted},
		} {
			got := failed.Results[i]
			if got.ID != want.ID || got.To != want.To || got.State != want.State || (got.Err == nil) != (want.State == core.SendAccepted) {
				t.Errorf("result %d is %+v, want %+v", i, got, want)
			}
		}
		if !strings.Contains(err.Error(), `"missing"`) || !strings.Contains(err.Error(), "Provision") {
			t.Errorf("the error names neither the queue nor the remedy: %v", err)
		}
		depth(t, transport, "a", queues.Depth{Ready: 1})
		depth(t, transport, "b", queues.Depth{Ready: 1})
	})
}

// Rule C2.
func TestSend_EndedContextOrClosedTransportSendsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := inmemory.NewBroker()
		transport := open(t, inmemory.Config{Broker: broker}, "a")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		failWith(t, transport.Send(ctx, message("a", "1")), context.Canceled)
		succeed(t, transport.Close(t.Context()))
		err := transport.Send(t.Context(), message("a", "1"))
		failWith(t, err, core.ErrClosed)
		var failed *core.SendError
		if !errors.As(err, &failed) || failed.Results[0].State != core.SendRefused {
			t.Errorf("no *SendError that says refused: %v", err)
		}
		depth(t, open(t, inmemory.Config{Broker: broker}), "a", queues.Depth{})
	})
}

// Rule C10.
func TestSend_HeadersAndBodyArriveAsSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport := open(t, inmemory.Config{}, "q")
		r := peekLock(t, transport, "q")
		var h core.Headers
		h.Set("empty", "")
		h.Set("Ключ ключ", "線\n\x00:value")
		everyByte := make([]byte, 256)
		for i := range everyByte {
			everyByte[i] = byte(i)
		}
		for _, body := range [][]byte{nil, {}, everyByte, make([]byte, 1<<20)} {
			send(t, transport, core.Outgoing{ID: "1", Queue: "q", Headers: h, Body: body})
			d := receive(t, r, string(body))
			in := d.Incoming()
			if in.Headers.Len() != 2 || in.Headers.Get("Ключ ключ") != "線\n\x00:value" {
				t.Errorf("headers arrived as %v", in.Headers.Map())
			}
			if _, ok := in.Headers.Lookup("empty"); !ok {
				t.Error("the empty value did not arrive")
			}
			succeed(t, d.Complete(t.Context()))
		}
	})
}

// Rule C10.
func TestSend_RefusesIllegalMessagesBeforehand(t *testing.T) {
	header := func(key, value string) (h core.Headers) {
		h.Set("fine", "yes")
		h.Set(key, value)
		return h
	}
	var tooLarge = func(limit string, max, size int) error {
		return &core.TooLargeError{Limit: limit, Max: max, Size: size}
	}
	for name, c := range map[string]struct {
		out  core.Outgoing
		want error // nil: any
	}{
		"key not UTF-8":      {core.Outgoing{ID: "1", Queue: "q", Headers: header("\xff", "")}, core.ErrInvalidHeader},
		"value not UTF-8":    {core.Outgoing{ID: "1", Queue: "q", Headers: header("k", "\xff")}, core.ErrInvalidHeader},
		"empty key":          {core.Outgoing{ID: "1", Queue: "q", Headers: header("", "v")}, core.ErrInvalidHeader},
		"long key":           {core.Outgoing{ID: "1", Queue: "q", Headers: header("12345678901", "")}, tooLarge("MaxHeaderKeyBytes", 10, 11)},
		"large headers":      {core.Outgoing{ID: "1", Queue: "q", Headers: header("k", strings.Repeat("v", 13))}, tooLarge("MaxHeaderBytes", 20, 21)},
		"large message":      {core.Outgoing{ID: "1", Queue: "q", Headers: header("k", "v"), Body: make([]byte, 22)}, tooLarge("MaxMessageBytes", 30, 31)},
		"no destination":     {core.Outgoing{}, nil},
		"both destinations":  {core.Outgoing{ID: "1", Queue: "q", Topic: "t"}, nil},
		"negative delay":     {core.Outgoing{ID: "1", Queue: "q", Delay: -1}, nil},
		"negative time left": {core.Outgoing{ID: "1", Queue: "q", TimeToBeReceived: -1}, nil},
	} {
		inBubble(t, name, func(t *testing.T) {
			transport := open(t, inmemory.Config{Capabilities: able(func(caps *core.Capabilities) {
				caps.MaxHeaderKeyBytes, caps.MaxHeaderBytes, caps.MaxMessageBytes = 10, 20, 30
			})}, "q")
			err := transport.Send(t.Context(), message("q", "good"), c.out)
			if err == nil {
				t.Fatal("Send accepted it")
			}
			var size *core.TooLargeError
			switch want := c.want.(type) {
			case nil:
			case *core.TooLargeError:
				if !errors.As(err, &size) || *size != *want || !errors.Is(err, core.ErrTooLarge) {
					t.Fatalf("error is %v, want %v", err, want)
				}
			default:
				failWith(t, err, want)
			}
			depth(t, transport, "q", queues.Depth{})
		})
	}
	inBubble(t, "exactly at the limits", func(t *testing.T) {
		transport := open(t, inmemory.Config{Capabilities: able(func(caps *core.Capabilities) {
			caps.MaxHeaderKeyBytes, caps.MaxHeaderBytes, caps.MaxMessageBytes = 1, 2, 30
			caps.MaxDelay = time.Hour
		})}, "q")
		var h core.Headers
		h.Set("k", "v")
		send(t, transport, core.Outgoing{ID: "1", Queue: "q", Headers: h, Body: make([]byte, 28), Delay: time.Hour})
	})
}

// Rule C11.
func TestSend_CopiesMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport := open(t, inmemory.Config{}, "q")
		r := peekLock(t, transport, "q")
		var h core.Headers
		h.Set("k", "sent")
		body := []byte("sent")
		send(t, transport, core.Outgoing{ID: "1", Queue: "q", Headers: h, Body: body})
		copy(body, "EVIL")
		h.Set("k", "evil")
		peeked := browse(t, transport, "q")
		copy(peeked[0].Body, "EVIL")
		peeked[0].Headers.Set("k", "evil")
		for attempt := range 3 {
			d := receive(t, r, "sent")
			if got := d.Incoming().Headers.Map(); len(got) != 1 || got["k"] != "sent" {
				t.Fatalf("attempt %d: headers %v", attempt, got)
			}
			mine := d.Incoming().Headers // as a handler changes its copy
			mine.Set("k", "evil")
			mine.Set("new", "evil")
			succeed(t, d.Abandon(t.Context(), errors.New("no")))
		}
	})
}

func TestIncoming_IDs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport := open(t, inmemory.Config{}, "q")
		r := peekLock(t, transport, "q")
		var h core.Headers
		h.Set(headers.MessageID, "from the header")
		send(t, transport,
			core.Outgoing{ID: "field", Queue: "q", Headers: h},
			core.Outgoing{ID: "field", Queue: "q"})
		seen := map[string]bool{}
		for _, want := range []string{"from the header", "field"} {
			in := receive(t, r, "").Incoming()
			if in.ID != want || !in.IDSent || in.NativeID == "" || seen[in.NativeID] {
				t.Errorf("ID %q, NativeID %q; want ID %q and a new NativeID", in.ID, in.NativeID, want)
			}
			seen[in.NativeID] = true
		}
	})
}

func TestReceive_IsInTheOrderOfSending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport := open(t, inmemory.Config{}, "q")
		r := peekLock(t, transport, "q")
		var want []byte
		for i := range 100 { // in steps of one: the ring grows while it wraps round
			body := []byte{byte(i)}
			want = append(want, body...)
			send(t, transport, core.Outgoing{ID: "1", Queue: "q", Body: body}, core.Outgoing{ID: "1", Queue: "q", Body: body})
			succeed(t, receive(t, r, string([]byte{byte(i / 2)})).Complete(t.Context()))
		}
		left := browse(t, transport, "q")
		var got []byte
		for i := 0; i < len(left); i += 2 {
			got = append(got, left[i].Body...)
		}
		if len(left) != 100 || !bytes.Equal(got, want[50:]) {
			t.Errorf("%d left, in the order %v", len(left), got)
		}
	})
}
