package transport_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport"
)

func delivered(t *testing.T, log *transport.DeliveryLog, key string, count int, lastError string) {
	t.Helper()
	gotCount, gotError := log.Delivered(key)
	if gotCount != count || gotError != lastError {
		t.Fatalf("Delivered(%q) = %d, %q; want %d, %q", key, gotCount, gotError, count, lastError)
	}
}

func TestC9DeliveryLogCountsFailuresFromOne(t *testing.T) {
	log := transport.NewDeliveryLog(1)
	delivered(t, log, "a", 1, "")
	delivered(t, log, "a", 1, "") // being delivered is no failure
	if log.Len() != 0 {
		t.Fatalf("asking was recorded: %d entries", log.Len())
	}
	log.Failed("a", errors.New("first"))
	delivered(t, log, "a", 2, "first")
	delivered(t, log, "b", 1, "")
	log.Failed("a", errors.New("second"))
	delivered(t, log, "a", 3, "second")
	log.Failed("a", nil)
	delivered(t, log, "a", 4, "")
	log.Forget("a")
	log.Forget("never seen")
	delivered(t, log, "a", 1, "")
	if log.Len() != 0 {
		t.Fatalf("%d entries after Forget", log.Len())
	}
}

func TestDeliveryLogIsBounded(t *testing.T) {
	for _, c := range []struct{ maxInFlight, capacity int }{
		{0, 1000}, {1, 1000}, {250, 1000}, {251, 1004}, {5000, 20000},
	} {
		log := transport.NewDeliveryLog(c.maxInFlight)
		for i := range c.capacity + 500 {
			log.Failed(fmt.Sprint(i), errors.New("no"))
		}
		if log.Len() != c.capacity {
			t.Errorf("MaxInFlight %d: %d entries, want %d", c.maxInFlight, log.Len(), c.capacity)
		}
		delivered(t, log, "0", 1, "") // the oldest went first
		delivered(t, log, fmt.Sprint(c.capacity+499), 2, "no")
	}
}

func TestDeliveryLogKeepsWhatIsStillDelivered(t *testing.T) {
	log := transport.NewDeliveryLog(1)
	log.Failed("old", errors.New("no"))
	for i := range 5000 {
		log.Failed(fmt.Sprint(i), errors.New("no"))
		delivered(t, log, "old", 2, "no")
	}
}

func TestDeliveryLogResizes(t *testing.T) {
	log := transport.NewDeliveryLog(500)
	fail := func(round string) {
		for i := range 5000 {
			log.Failed(fmt.Sprint(round, i), nil)
		}
	}
	fail("first")
	if log.Len() != 2000 {
		t.Fatalf("%d entries for MaxInFlight 500, want 2000", log.Len())
	}
	log.Resize(1000)
	fail("second")
	if log.Len() != 4000 {
		t.Fatalf("%d entries after Resize(1000), want 4000", log.Len())
	}
	log.Resize(0) // a pause
	delivered(t, log, "second4999", 2, "")
	delivered(t, log, "second1000", 2, "")
	fail("third")
	if log.Len() != 4000 {
		t.Fatalf("%d entries after Resize(0), want 4000", log.Len())
	}
}

func TestDeliveryLogStaysFlatOverAMillionFailures(t *testing.T) {
	log := transport.NewDeliveryLog(16)
	cause := errors.New("no")
	for i := range 1_000_000 {
		log.Failed(fmt.Sprint(i), cause)
		if n := log.Len(); n > 1000 {
			t.Fatalf("%d entries after %d failures", n, i+1)
		}
	}
}

func TestDeliveryLogIsSafeForConcurrentUse(t *testing.T) {
	log := transport.NewDeliveryLog(16)
	var wg sync.WaitGroup
	for worker := range 8 {
		wg.Go(func() {
			key := fmt.Sprint("own", worker)
			for i := range 500 {
				log.Failed(key, errors.New("no"))
				log.Failed("shared", nil)
				if count, _ := log.Delivered(key); count != i+2 {
					t.Errorf("count %d, want %d", count, i+2)
					return
				}
				log.Resize(16 + i)
				log.Len()
			}
		})
	}
	wg.Wait()
	delivered(t, log, "shared", 4001, "")
}

func TestErrorTextIsBoundedAndUTF8(t *testing.T) {
	long := strings.Repeat("x", transport.MaxErrorText)
	for name, c := range map[string]struct{ text, want string }{
		"short":                 {"no", "no"},
		"exact":                 {long, long},
		"longer":                {long + "y", long},
		"cut inside two bytes":  {long[1:] + "éé", long[1:]},
		"cut inside four bytes": {long[3:] + "\U0001F600", long[3:]},
		"cut after four bytes":  {long[4:] + "\U0001F600x", long[4:] + "\U0001F600"},
		"not UTF-8":             {"a\xffb", "a?b"},
		"long, not UTF-8":       {strings.Repeat("\x80", 2*transport.MaxErrorText), ""},
	} {
		got := transport.ErrorText(errors.New(c.text))
		if c.want != "" && got != c.want {
			t.Errorf("%s: got %d bytes ending in %q", name, len(got), got[max(0, len(got)-8):])
		}
		if len(got) > transport.MaxErrorText || !utf8.ValidString(got) {
			t.Errorf("%s: %d bytes, valid UTF-8: %t", name, len(got), utf8.ValidString(got))
		}
	}
	if got := transport.ErrorText(nil); got != "" {
		t.Errorf("ErrorText(nil) = %q", got)
	}
}

func TestDeliveryKey(t *testing.T) {
	message := func(nativeID, body string, headers ...string) *core.Incoming {
		in := &core.Incoming{NativeID: nativeID, Body: []byte(body)}
		for i := 0; i < len(headers); i += 2 {
			in.Headers.Set(headers[i], headers[i+1])
		}
		return in
	}
	if got := transport.DeliveryKey(message("7", "body")); got != "7" {
		t.Errorf("the key is %q, want the native id", got)
	}
	same := transport.DeliveryKey(message("", "body", "a", "1", "b", "2"))
	if got := transport.DeliveryKey(message("", "body", "b", "2", "a", "1")); got != same {
		t.Error("the order of headers makes a difference")
	}
	seen := map[string]int{same: -1}
	for i, in := range []*core.Incoming{
		message("", ""),
		message("", "body"),
		message("", "body2", "a", "1", "b", "2"),
		message("", "body", "a", "1", "b", "3"),
		message("", "body", "a", "1"),
		message("", "body", "a1", "", "b", "2"),
		message("", "body", "a", "1b", "", "2"),
		message("", "", "body", "", "a", "1"),
	} {
		key := transport.DeliveryKey(in)
		if other, ok := seen[key]; ok {
			t.Errorf("messages %d and %d share a key", i, other)
		}
		seen[key] = i
	}
}

// How an adapter uses a DeliveryLog for a broker that does not count.
func ExampleDeliveryLog() {
	log := transport.NewDeliveryLog(16)                            // in OpenReceiver, with its MaxInFlight
	key := transport.DeliveryKey(&core.Incoming{NativeID: "4711"}) // of the message fetched

	count, lastError := log.Delivered(key) // in Receive
	fmt.Printf("%d %q\n", count, lastError)

	log.Failed(key, errors.New("no connection")) // in Abandon

	count, lastError = log.Delivered(key) // in the next Receive
	fmt.Printf("%d %q\n", count, lastError)

	log.Forget(key) // in Complete
	fmt.Println(log.Len())
	// Output:
	// 1 ""
	// 2 "no connection"
	// 0
}
