package delays_test

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/reprise-go/reprise/transport/rabbitmq/internal/delays"
	"github.com/reprise-go/reprise/transport/rabbitmq/internal/names"
)

// matches reports whether a topic exchange routes a key to a binding.
func matches(binding, key string) bool {
	return matchWords(strings.Split(binding, "."), strings.Split(key, "."))
}

func matchWords(binding, key []string) bool {
	switch {
	case len(binding) == 0:
		return len(key) == 0
	case binding[0] == "#":
		return matchWords(binding[1:], key) || len(key) > 0 && matchWords(binding, key[1:])
	default:
		return len(key) > 0 && (binding[0] == "*" || binding[0] == key[0]) && matchWords(binding[1:], key[1:])
	}
}

// travel follows a message through the topology, as the broker would, and returns how
// many seconds it waits, and in how many queues. It fails where a message has not
// exactly one way.
func travel(t *testing.T, exchange, key string) (seconds, queues int) {
	t.Helper()
	for level := delays.Levels - 1; level >= 0; level-- {
		if exchange != delays.Level(level) {
			continue
		}
		waits, passes := delays.LevelBindings(level)
		through, past := matches(waits, key), matches(passes, key)
		if through == past {
			t.Fatalf("%q at level %d: waits %v, passes %v", key, level, through, past)
		}
		if through {
			arguments := delays.LevelArguments(level)
			seconds += int(arguments["x-message-ttl"].(int64) / 1000)
			queues++
			if exchange = arguments["x-dead-letter-exchange"].(string); exchange != delays.NextExchange(level) {
				t.Fatalf("level %d hands over to %q", level, exchange)
			}
		} else {
			exchange = delays.NextExchange(level)
		}
	}
	if exchange != delays.DeliveryExchange {
		t.Fatalf("%q ends in %q", key, exchange)
	}
	return seconds, queues
}

var awkwardQueues = []string{
	"billing", "sales.billing", "sales", "x.sales.billing", "0", "1", "0.1.x", "1.0.1.x", "1.x", "x", "0.0.0.billing",
	"billing.", ".billing", "..", ".", "*x", "a#b", "nsb.v2", strings.Repeat("q", names.MaxQueue), strings.Repeat("0.", 99) + "0", strings.Repeat("1.", 28) + "billing",
}

func TestDelayRoutes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		delay    time.Duration
		seconds  int
		exchange string
		begins   string // of the key
	}{
		{0, 0, "nsb.v2.delay-level-00", strings.Repeat("0.", 28)},
		{1, 1, "nsb.v2.delay-level-00", strings.Repeat("0.", 27) + "1."},
		{time.Second, 1, "nsb.v2.delay-level-00", strings.Repeat("0.", 27) + "1."},
		{time.Second + 1, 2, "nsb.v2.delay-level-01", strings.Repeat("0.", 26) + "1.0."},
		{10 * time.Second, 10, "nsb.v2.delay-level-03", strings.Repeat("0.", 24) + "1.0.1.0."},
		{1<<27*time.Second - 1, 1 << 27, "nsb.v2.delay-level-27", "1." + strings.Repeat("0.", 27)},
		{delays.Max, 1<<28 - 1, "nsb.v2.delay-level-27", strings.Repeat("1.", 28)},
	} {
		exchange, key, seconds := delays.Route(c.delay, "sales.billing")
		if exchange != c.exchange || key != c.begins+"sales.billing" || seconds != c.seconds {
			t.Errorf("%v: %q, %q, %d", c.delay, exchange, key, seconds)
		}
	}
}

// A message waits in one queue for each bit of its delay, and in all of them together for
// all of it.
func TestDelayRoutes_AddUp(t *testing.T) {
	t.Parallel()
	check := func(want int, queue string) {
		exchange, key, seconds := delays.Route(time.Duration(want)*time.Second, queue)
		waits, queues := travel(t, exchange, key)
		if waits != want || seconds != want || queues != strings.Count(key[:len(delays.BindingPattern)], "1") {
			t.Errorf("%d s to %q: it waits for %d s in %d queues", want, queue, waits, queues)
		}
		if beginning := delays.Level(delays.Levels - 1); exchange != beginning {
			if waits, _ := travel(t, beginning, key); waits != want { // as a publisher to the first level does
				t.Errorf("%d s to %q: from the first level it waits for %d s", want, queue, waits)
			}
		}
		if len(key) > names.MaxShortString {
			t.Errorf("the key to %q has %d bytes", queue, len(key))
		}
	}
	for _, queue := range awkwardQueues {
		for bit := range delays.Levels {
			check(1<<bit, queue)
			check(1<<bit-1, queue)
		}
		check(delays.MaxSeconds, queue)
		for range 50 {
			check(rand.IntN(delays.MaxSeconds+1), queue)
		}
	}
}

// NServiceBus's bindings do not ensure that.
func TestDelayRoutes_ReachTheirQueueOnly(t *testing.T) {
	t.Parallel()
	for _, to := range awkwardQueues {
		for _, delay := range []time.Duration{0, time.Second, 10 * time.Second, delays.Max} {
			_, key, _ := delays.Route(delay, to)
			for _, bound := range awkwardQueues {
				if got := matches(delays.BindingKey(bound), key); got != (bound == to) {
					t.Errorf("a message to %q, %v late, reaches %q: %v", to, delay, bound, got)
				}
			}
		}
	}
	if _, key, _ := delays.Route(0, "sales.billing"); !matches("#.billing", key) {
		t.Error("the matcher does not know the effect of NServiceBus's binding")
	}
}

func TestDelayArguments(t *testing.T) {
	t.Parallel()
	for level, want := range map[int]struct {
		ttl  int64
		next string
	}{0: {1000, "nsb.v2.delay-delivery"}, 1: {2000, "nsb.v2.delay-level-00"}, 27: {134_217_728_000, "nsb.v2.delay-level-26"}} {
		a := delays.LevelArguments(level)
		if len(a) != 5 || a["x-queue-type"] != "quorum" || a["x-dead-letter-strategy"] != "at-least-once" || a["x-overflow"] != "reject-publish" ||
			a["x-message-ttl"] != want.ttl || a["x-dead-letter-exchange"] != want.next {
			t.Errorf("level %d: %v, want %v", level, a, want)
		}
	}
	if waits, passes := delays.LevelBindings(27); waits != "1.#" || passes != "0.#" {
		t.Errorf("the first level is bound by %q and %q", waits, passes)
	}
	if waits, passes := delays.LevelBindings(25); waits != "*.*.1.#" || passes != "*.*.0.#" {
		t.Errorf("the third level is bound by %q and %q", waits, passes)
	}
}

func FuzzDelays(f *testing.F) {
	for i, queue := range awkwardQueues {
		f.Add(uint32(i*12345), queue, awkwardQueues[len(awkwardQueues)-1-i])
	}
	f.Fuzz(func(t *testing.T, seconds uint32, to, other string) {
		for _, queue := range []string{to, other} {
			if _, err := names.Queue(queue); err != nil {
				return // it cannot be sent to
			}
		}
		seconds &= delays.MaxSeconds
		exchange, key, _ := delays.Route(time.Duration(seconds)*time.Second, to)
		if waits, _ := travel(t, exchange, key); waits != int(seconds) {
			t.Errorf("%d s to %q: it waits for %d s", seconds, to, waits)
		}
		if !matches(delays.BindingKey(to), key) || to != other && matches(delays.BindingKey(other), key) {
			t.Errorf("%q does not reach %q alone, beside %q", key, to, other)
		}
		if len(key) > names.MaxShortString || len(delays.BindingKey(to)) > names.MaxShortString {
			t.Errorf("the keys of %q are too long", to)
		}
	})
}
