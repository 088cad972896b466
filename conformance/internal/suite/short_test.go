package suite

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/inmemory"
)

func TestShortLocks_OnlyForCasesThatAwaitTheirEnd(t *testing.T) {
	t.Parallel()
	broker := inmemory.NewBroker()
	var mu sync.Mutex
	opened := map[string]map[time.Duration]bool{} // by case, how long the locks are
	opens := func(lock time.Duration) func(t testing.TB) core.Transport {
		return func(t testing.TB) core.Transport {
			mu.Lock()
			defer mu.Unlock()
			name, _, _ := strings.Cut(t.Name(), "/")
			if opened[name] == nil {
				opened[name] = map[time.Duration]bool{}
			}
			opened[name][lock] = true
			transport, err := inmemory.New(inmemory.Config{Broker: broker, LockDuration: lock})
			if err != nil {
				t.Fatal(err)
			}
			return transport
		}
	}
	const long, short = 10 * time.Minute, 4 * time.Second
	h := Harness{Synctest: true, Open: opens(long), OpenShortLocks: opens(short)}
	report, err := check(t, h, "C5", "C6", "C9", "C17")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range report.failures() {
		t.Error(f)
	}
	for _, c := range []struct {
		name string
		want time.Duration
	}{
		{"C6 a late settlement does not change the delivery count", short},
		{"C17 a lock that is renewed does not end", short},
		{"C9 a delivery after one whose lock ended is a redelivery", short},
		{"C5 the lock of a settled delivery cannot be renewed", long},
		{"C6 a settlement after the receiver was closed is refused", long},
		{"C17 a renewal ends with its context", long},
	} {
		if !opened[c.name][c.want] || len(opened[c.name]) != 1 {
			t.Errorf("%s opened transports with locks of %v, want %v", c.name, opened[c.name], c.want)
		}
	}

	h.OpenShortLocks = nil // the only locks are the long ones
	clear(opened)
	if _, err := check(t, h, "C6"); err != nil {
		t.Fatal(err)
	}
	if name := "C6 a late settlement does not change the delivery count"; !opened[name][long] {
		t.Errorf("without OpenShortLocks %s opened transports with locks of %v, want %v", name, opened[name], long)
	}
}

func TestShortLocks_LongOnesAreRefused(t *testing.T) {
	t.Parallel()
	h := harnessOn(inmemory.Config{LockDuration: 10 * time.Minute}, changes{})
	h.OpenShortLocks = h.Open
	_, err := check(t, h, "C1")
	if err == nil || !strings.Contains(err.Error(), "OpenShortLocks") || !strings.Contains(err.Error(), "10m0s") {
		t.Errorf("the error %v does not name OpenShortLocks and 10m0s", err)
	}
}

func TestShortRun_LeavesOutLongCases(t *testing.T) {
	t.Parallel()
	for name, bubble := range map[string]bool{"in real time": false, "in a bubble": true} {
		s, err := newSuite(t, harnessOnServer(withLocks, changes{}))
		if err != nil {
			t.Fatal(err)
		}
		s.short, s.h.Synctest = true, bubble
		var ran []string
		for _, c := range cases() {
			if !s.leavesOut(&c) {
				ran = append(ran, c.name())
			}
		}
		for _, c := range []struct {
			name     string
			inBubble bool // there it runs, because waiting takes no time
		}{
			{"C15 Receive continues after an outage", true},
			{"C17 a lock that is renewed does not end", true},
			{"C7 a message that a killed process handled but did not settle is redelivered", true},
			{"C3 a large backlog is delivered to the last message", false},
			{soakCases[0].name(), false},
		} {
			if got, want := slices.Contains(ran, c.name), bubble && c.inBubble; got != want {
				t.Errorf("%s, in a short run: %s runs: %t, want %t", name, c.name, got, want)
			}
			if i := slices.IndexFunc(s.report.Results, func(r Result) bool { return r.Case == c.name }); !slices.Contains(ran, c.name) && (i < 0 || !strings.Contains(s.report.Results[i].Reason, "-short")) {
				t.Errorf("%s: the report does not say that %s was left out because of -short", name, c.name)
			}
		}
		if s.short = false; s.tooLong(&soakCases[0]) {
			t.Errorf("%s: %s is left out of a long run", name, soakCases[0].name())
		}
	}
}

func TestShortRun_TriesEachModeAndEachCaseInOne(t *testing.T) {
	t.Parallel()
	s := &suite{caps: inmemory.Everything(), short: true}
	seen := map[core.TransactionMode]int{}
	for _, c := range cases() {
		modes := s.modesOf(&c)
		if len(modes) != 1 {
			t.Errorf("in a short run %s runs in %v, want one mode", c.name(), modes)
		}
		if c.modes == 0 {
			seen[modes[0]]++
		}
	}
	for _, mode := range s.caps.Transactions {
		if seen[mode] < 20 {
			t.Errorf("of the cases that run in each mode, %d do so in %v in a short run", seen[mode], mode)
		}
	}
}

func TestTags_AreAtTheEndOfSubtestNames(t *testing.T) {
	t.Parallel()
	names := map[string]bool{}
	for _, c := range cases() {
		names[c.subtestName()] = true
	}
	for _, want := range []string{
		"C15 Receive continues after an outage @broker",
		"C17 a lock that is renewed does not end @locks",
		"C7 a message that a killed process handled but did not settle is redelivered @processes",
		"C3 a large backlog is delivered to the last message @slow",
		"C15 OpenReceiver of a queue that does not exist fails at once",
	} {
		if !names[want] {
			t.Errorf("no case has a subtest named %q", want)
		}
	}
}
