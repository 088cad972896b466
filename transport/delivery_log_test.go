package transport_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
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

// Rule C9.
func TestDeliveryLog_CountsFailuresFromOne(t *testing.T) {
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

func TestDeliveryLog_IsBounded(t *testing.T) {
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
		delivered(t, log, "0", 2, "no")                        // it keeps its place
		delivered(t, log, fmt.Sprint(c.capacity*3/4), 1, "")   // the oldest of the LRU cache
		delivered(t, log, fmt.Sprint(c.capacity+499), 2, "no") // the latest
	}
}

// TestDeliveryLog_MoreMessagesThanItHolds plays a queue of messages that all fail,
// several times as many as the log holds: every one must be counted up to its last
// attempt, in any order in which the broker redelivers.
func TestDeliveryLog_MoreMessagesThanItHolds(t *testing.T) {
	const limit = 6 // attempts
	random := rand.New(rand.NewPCG(1, 2))
	orders := map[string]func(waiting int) int{ // which one is next
		"tail":        func(int) int { return 0 },
		"head":        func(waiting int) int { return waiting - 1 },
		"random":      random.IntN,
		"a few first": func(waiting int) int { return waiting - 1 - random.IntN(min(waiting, 16)) },
	}
	for _, c := range []struct {
		order                string
		messages, leftovers  int // of the latter none returns
		instances            int
		attempts             int // at most, on average
		attemptsOfOneMessage int
	}{
		{order: "tail", messages: 1000, instances: 1, attempts: limit, attemptsOfOneMessage: limit},
		{order: "tail", messages: 1000, leftovers: 3000, instances: 1, attempts: 20, attemptsOfOneMessage: 30},
		{order: "tail", messages: 5000, instances: 1, attempts: 25, attemptsOfOneMessage: 50},
		{order: "tail", messages: 5000, leftovers: 3000, instances: 1, attempts: 40, attemptsOfOneMessage: 80},
		{order: "tail", messages: 5000, leftovers: 3000, instances: 3, attempts: 70, attemptsOfOneMessage: 150},
		{order: "random", messages: 5000, leftovers: 3000, instances: 1, attempts: 40, attemptsOfOneMessage: 120},
		{order: "head", messages: 5000, leftovers: 3000, instances: 1, attempts: limit, attemptsOfOneMessage: limit},
		{order: "a few first", messages: 5000, leftovers: 3000, instances: 1, attempts: limit, attemptsOfOneMessage: limit},
		{order: "head", messages: 5000, leftovers: 3000, instances: 3, attempts: 3 * limit, attemptsOfOneMessage: 3 * limit},
	} {
		t.Run(fmt.Sprintf("%s, %d messages, %d leftovers, %d instances", c.order, c.messages, c.leftovers, c.instances), func(t *testing.T) {
			if testing.Short() && c.messages*c.attempts > 100_000 {
				t.Skip("hundreds of thousands of deliveries: not in short runs")
			}
			logs := make([]*transport.DeliveryLog, c.instances)
			for i := range logs {
				logs[i] = transport.NewDeliveryLog(16)
				for left := range c.leftovers {
					logs[i].Failed(fmt.Sprint("left", left), nil)
				}
			}
			queue := make([]string, c.messages)
			for i := range queue {
				queue[i] = fmt.Sprint(i)
			}
			attempts := map[string]int{}
			total := 0
			for len(queue) > 0 && total <= c.attempts*c.messages {
				at := orders[c.order](len(queue))
				key := queue[at]
				log := logs[random.IntN(c.instances)]
				count, lastError := log.Delivered(key)
				total++
				attempts[key]++
				if count > attempts[key] {
					t.Fatalf("attempt %d of a message has the count %d", attempts[key], count)
				}
				if want := fmt.Sprint(key, " failed"); count > 1 && lastError != want {
					t.Fatalf("LastError of %s is %q", key, lastError)
				}
				switch {
				case count == limit:
					log.Forget(key)
					queue[at] = queue[len(queue)-1]
					queue = queue[:len(queue)-1]
					continue
				case c.order == "tail":
					queue = append(queue[1:], key)
				}
				log.Failed(key, errors.New(key+" failed"))
				if n := log.Len(); n > 1000 {
					t.Fatalf("the log holds %d messages", n)
				}
			}
			if len(queue) > 0 {
				t.Fatalf("after %d attempts of %d messages %d have not reached attempt %d", total, c.messages, len(queue), limit)
			}
			for key, n := range attempts {
				if n < limit || n > c.attemptsOfOneMessage {
					t.Errorf("message %s had %d attempts, want %d to %d", key, n, limit, c.attemptsOfOneMessage)
				}
			}
			t.Logf("%.1f attempts of each message", float64(total)/float64(c.messages))
		})
	}
}

// TestDeliveryLog_FullOfMessagesThatNeverReturn shows that a message that is
// redelivered at once is counted in any case.
func TestDeliveryLog_FullOfMessagesThatNeverReturn(t *testing.T) {
	log := transport.NewDeliveryLog(1)
	for i := range 5000 {
		log.Failed(fmt.Sprint(i), nil)
	}
	for failures := range 50 {
		delivered(t, log, "new", failures+1, "")
		log.Failed("new", nil)
	}
}

// TestDeliveryLog_FreesPlaces shows after how many failures the places of messages
// that never return are free again: those of 0 to 249 last.
func TestDeliveryLog_FreesPlaces(t *testing.T) {
	const capacity, quarter = 1000, 250
	log := transport.NewDeliveryLog(1)
	for i := range capacity {
		log.Failed(fmt.Sprint(i), nil)
	}
	held := func(i int) bool { count, _ := log.Delivered(fmt.Sprint(i)); return count == 2 }
	total := capacity
	for _, c := range []struct{ patience, first int }{{8, 2 * quarter}, {64, quarter}, {512, 0}} {
		for ; total < c.patience*capacity; total++ {
			log.Failed("another", nil)
		}
		if !held(c.first) {
			t.Errorf("after %d failures the place of message %d is free", total, c.first)
		}
		for range capacity { // the first of them was the first message's 1,000 failures before
			log.Failed(fmt.Sprint("newcomer", total), nil)
			total++
		}
		if held(c.first) {
			t.Errorf("after %d failures message %d keeps its place", total, c.first)
		}
		if c.first > 0 && !held(c.first-1) {
			t.Errorf("after %d failures message %d lost its place", total, c.first-1)
		}
	}
}

func TestDeliveryLog_Resizes(t *testing.T) {
	log := transport.NewDeliveryLog(500)
	fail := func(round string, n int) {
		for i := range n {
			log.Failed(fmt.Sprint(round, i), nil)
		}
	}
	fail("first", 5000)
	if log.Len() != 2000 {
		t.Fatalf("%d entries for MaxInFlight 500, want 2000", log.Len())
	}
	log.Resize(1000)
	fail("second", 2000)
	if log.Len() != 4000 {
		t.Fatalf("%d entries after Resize(1000), want 4000", log.Len())
	}
	log.Resize(0) // a pause
	delivered(t, log, "first0", 2, "")
	delivered(t, log, "second1999", 2, "")
	fail("third", 5000)
	if log.Len() != 4000 {
		t.Fatalf("%d entries after Resize(0), want 4000", log.Len())
	}
}

func TestDeliveryLog_StaysFlat(t *testing.T) {
	log := transport.NewDeliveryLog(16)
	cause := errors.New("no")
	for i := range 100_000 {
		log.Failed(fmt.Sprint(i), cause)
		if n := log.Len(); n > 1000 {
			t.Fatalf("%d entries after %d failures", n, i+1)
		}
	}
}

func TestDeliveryLog_ConcurrentUse(t *testing.T) {
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

func TestErrorText_IsBoundedAndUTF8(t *testing.T) {
	const limit = 4 << 10
	long := strings.Repeat("x", limit)
	for name, c := range map[string]struct{ text, want string }{
		"short":                 {"no", "no"},
		"exact":                 {long, long},
		"longer":                {long + "y", long},
		"cut inside two bytes":  {long[1:] + "éé", long[1:]},
		"cut inside four bytes": {long[3:] + "\U0001F600", long[3:]},
		"cut after four bytes":  {long[4:] + "\U0001F600x", long[4:] + "\U0001F600"},
		"not UTF-8":             {"a\xffb", "a?b"},
		"long, not UTF-8":       {strings.Repeat("\x80", 2*limit), ""},
	} {
		got := transport.ErrorText(errors.New(c.text))
		if c.want != "" && got != c.want {
			t.Errorf("%s: got %d bytes ending in %q", name, len(got), got[max(0, len(got)-8):])
		}
		if len(got) > limit || !utf8.ValidString(got) {
			t.Errorf("%s: %d bytes, valid UTF-8: %t", name, len(got), utf8.ValidString(got))
		}
	}
	if got := transport.ErrorText(nil); got != "" {
		t.Errorf("ErrorText(nil) = %q", got)
	}
}

func TestDeliveryKey(t *testing.T) {
	key := func(nativeID string) string { return transport.DeliveryKey(&core.Incoming{NativeID: nativeID}) }
	if got := key("7"); got != "7" {
		t.Errorf("the key is %q, want the native id", got)
	}
	long := strings.Repeat("x", 100_000)
	if one, other := key(long), key(long+"y"); len(one) > 512 || one == other {
		t.Errorf("the keys of two long native ids are %q and %q", one, other)
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
