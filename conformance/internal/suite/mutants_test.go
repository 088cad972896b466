package suite

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/reprise-go/reprise/transport/inmemory"
)

// mutants is one list for each file of cases.
func mutants() []mutant {
	return slices.Concat(
		capabilityMutants,
		sendMutants,
		receiveMutants,
		maxInFlightMutants,
		malformedMutants,
		settleOnceMutants,
		lostLockMutants,
		nothingLostMutants,
		giveBackMutants,
		deliveryCountMutants,
		contentMutants,
		limitMutants,
		redeliveryMutants,
		atomicMutants,
		nativeTransactionMutants,
		savepointMutants,
		delayMutants,
		closeMutants,
		outageMutants,
		competingReceiverMutants,
		lockMutants,
		provisionMutants,
		publishMutants,
		expiryMutants,
		secretMutants,
		deadLetterMutants,
		purgeMutants,
		groupMutants,
		browseMutants,
		pageMutants,
		takeMutants,
		queueMutants,
		heldLookMutants,
		sentReturnMutants,
		attemptMutants,
		exactCountMutants,
		retryMutants,
		unrecoverableMutants,
		actionMutants,
		unsupportedMutants,
		policyMutants,
		handlerSendMutants,
		originalMessageMutants,
		errorPathLimitMutants,
		failedMoveMutants,
		panicMutants,
		shutdownMutants,
		lostSettlementMutants,
		errorQueueMutants,
		poisonMessageMutants,
		rateLimitMutants,
		failureLimitMutants,
		handleFailedMutants,
		middlewareMutants,
		groupRetryMutants,
		failureQueueMutants,
		putBackMutants,
		returnMutants,
		causeMutants,
		engineSendMutants,
	)
}

// heavyCases take minutes, so that a mutant meets them only where the other cases of
// its rule do not notice it, and where it is the one named here, which shows that
// the case can fail.
var heavyCases = map[string]string{
	"C2 many senders share a transport":                                             "confirms one of two Sends at a time by the other's confirm",
	"C2 a Send accepts more bytes than one message may have":                        "holds a whole Send against the limit of one message",
	"C3 a large backlog is delivered to the last message":                           "drops messages above the length of a queue",
	"C3 a receiver can have more than 1,000 messages in flight":                     "holds no more than 1,000 messages",
	"C3 a storm of cancelled Receives loses nothing":                                "drops an answer for which no call waits any more",
	"C3 Receive may be called concurrently":                                         "lets one caller receive at a time, and loses the messages for the others",
	"C10 a body may be large":                                                       "cuts bodies at 64 KiB",
	"C10 messages of 64 KiB are sent and received":                                  "has a column of 65,535 bytes for bodies",
	"C11 a transport does not change the message of a delivery later":               "reads every body into one buffer",
	"C12 200 concurrent CompleteWith forward 200 messages":                          "loses messages that are sent with a settlement now and then",
	"C14 a closed transport leaves no goroutine":                                    "leaves a goroutine behind",
	"C14 no message is lost when a transport is closed while it sends and receives": "accepts messages while it is closed, and loses them",
	"R24 a message whose error is 1 MiB long reaches the error queue":               "keeps the cause of an Abandon in a short column",
	"R24 the largest message that an endpoint sends reaches the error queue":        "cuts off large bodies",
	soakCases[0].name():       "now and then loses a message that it gets back",
	exactCountCases[0].name(): "counts a prefetched message that it gave back",
	exactCountCases[1].name(): "counts a prefetched message that it gave back",
	exactCountCases[2].name(): "gives messages back, counted, when MaxInFlight is lowered",
	exactCountCases[3].name(): "gives messages back, counted, when MaxInFlight is lowered",
	exactCountCases[4].name(): "gives messages back, counted, when MaxInFlight is lowered",
}

// TestMutants shows that the suite can fail (S4): each mutant fails cases of the
// rule that it breaks, every rule has a mutant, and every case fails for one at
// least.
func TestMutants(t *testing.T) {
	t.Parallel()
	met := mutantLog{rules: map[string]int{}, cases: map[string]bool{}}
	all := map[string]int{} // by rule
	for name, by := range heavyCases {
		if !slices.ContainsFunc(cases(), func(c testCase) bool { return c.name() == name }) {
			t.Errorf("heavyCases names %q, but there is no such case", name)
		}
		if !slices.ContainsFunc(mutants(), func(m mutant) bool { return m.name == by }) {
			t.Errorf("heavyCases names the mutant %q, but there is none", by)
		}
	}
	for _, m := range mutants() {
		all[m.rule]++
		ofRule := all[m.rule]
		t.Run(m.rule+" "+m.name, func(t *testing.T) {
			t.Parallel()
			if testing.Short() && ofRule > 2 {
				t.Skip("not one of the first two mutants of its rule: not in short runs")
			}
			by := m.noticedBy(t, &met)
			if len(by) == 0 {
				t.Errorf("no case of %s notices a transport that %s", m.rule, m.name)
			}
			met.add(&m, by)
		})
	}
	t.Cleanup(func() { // when the parallel subtests have ended
		t.Logf("rule, mutant, caught by (among others):\n%s", met.table())
		for _, c := range cases() {
			switch {
			case all[c.rule] == 0:
				t.Errorf("rule %s has no mutant", c.rule)
			case met.rules[c.rule] < all[c.rule]: // -run, -skip or -failfast left some out
			case !met.cases[c.name()]:
				t.Errorf("the case %q fails for no mutant: it may be unable to fail", c.name())
			}
		}
	})
}

// TestMutants_OfEngineRules shows that an adapter need not run the cases of engineRules: a
// transport that breaks such a rule breaks another rule too.
func TestMutants_OfEngineRules(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("TestMutants has met the same mutants: not in short runs")
	}
	all := slices.DeleteFunc(cases(), func(c testCase) bool { return slices.Contains(engineRules, c.rule) })
	slices.SortStableFunc(all, func(a, b testCase) int { return cmp.Compare(len(heavyCases[a.name()]), len(heavyCases[b.name()])) })
	for _, m := range mutants() {
		if !slices.Contains(engineRules, m.rule) {
			continue
		}
		t.Run(m.rule+" "+m.name, func(t *testing.T) {
			t.Parallel()
			s, err := newSuite(t, m.brokenHarness())
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range all {
				if s.leavesOut(&c) {
					continue
				}
				for _, mode := range c.modes.choose(s.caps) {
					if r := s.runCase(t, &c, mode); r.Outcome == Failed {
						t.Log(r.Case, "in", r.Mode, r.Failures[0])
						return
					}
				}
			}
			t.Errorf("no case of an adapter notices a transport that %s: %s is no rule that only the engine can break", m.name, m.rule)
		})
	}
}

// brokenHarness returns a harness on the mutant.
func (m *mutant) brokenHarness() Harness {
	var c changes
	if m.breaks != nil {
		c = m.breaks()
	}
	h := harnessOn(m.config, c)
	if m.onServer {
		h = harnessOnServer(m.config, c)
	}
	if m.harness != nil {
		m.harness(&h)
	}
	h.seed = 1
	return h
}

// noticedBy returns the names of cases of its rule that fail for a mutant. Once one has
// failed, those are left out that are known to fail for another mutant.
func (m *mutant) noticedBy(t *testing.T, log *mutantLog) []string {
	t.Helper()
	h := m.brokenHarness()
	h.EngineRules = true
	var light, heavy []testCase
	for _, c := range cases() {
		named, isHeavy := heavyCases[c.name()]
		switch {
		case c.rule != m.rule:
		case isHeavy && named != m.name:
			heavy = append(heavy, c)
		default:
			light = append(light, c)
		}
	}
	s, err := newSuite(t, h)
	if err != nil {
		t.Fatal(err)
	}
	var by []string
	for i, c := range slices.Concat(light, heavy) {
		if len(by) > 0 && (i >= len(light) || log.has(c.name())) || s.leavesOut(&c) {
			continue
		}
		for _, mode := range c.modes.choose(s.caps) {
			if r := s.runCase(t, &c, mode); r.Outcome == Failed {
				t.Log(r.Case, "in", r.Mode, r.Failures[0])
				by = append(by, r.Case)
				log.noticed(r.Case)
				break
			}
		}
	}
	slices.Sort(by)
	return by
}

// mutantLog is the mutants that ran.
type mutantLog struct {
	mu    sync.Mutex
	rules map[string]int  // how many
	cases map[string]bool // that fail for one
	lines []string
}

func (l *mutantLog) add(m *mutant, by []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rules[m.rule]++
	l.lines = append(l.lines, fmt.Sprintf("%-4s %-80s %s\n", m.rule, m.name, strings.Join(by, "; ")))
}

// noticed notes that a case fails for a mutant.
func (l *mutantLog) noticed(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cases[name] = true
}

func (l *mutantLog) has(name string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cases[name]
}

// table lists them by their rules: C1, C2, ... C22, R1, ...
func (l *mutantLog) table() string {
	slices.SortFunc(l.lines, func(a, b string) int {
		return cmp.Or(compareRules(strings.Fields(a)[0], strings.Fields(b)[0]), strings.Compare(a, b))
	})
	return fmt.Sprintf("%s%d mutants of %d rules", strings.Join(l.lines, ""), len(l.lines), len(l.rules))
}

// TestControl shows that it is what a mutant breaks, and not what it is made of, that is
// found: without changes nothing fails. All cases run on the transport that can do
// everything, and on every other one those of the rules that mutants break on it.
// (Package inmemory runs all cases on transports that are less able.)
func TestControl(t *testing.T) {
	t.Parallel()
	t.Run("which can do everything", func(t *testing.T) {
		t.Parallel()
		h := harnessOn(inmemory.Config{}, changes{})
		h.EngineRules = true
		Run(t, h, unsaved)
	})
	if testing.Short() {
		return // the others are less able
	}
	type transport struct {
		on    inmemory.Config
		rules []string
	}
	var others []transport
	for _, m := range mutants() {
		if m.onServer || m.breaks == nil || m.config == (inmemory.Config{}) {
			continue
		}
		on := m.config
		if on.Capabilities == nil {
			on = withLocks // the duration of locks belongs to the mistakes of a mutant
		}
		i := slices.IndexFunc(others, func(o transport) bool { return reflect.DeepEqual(o.on, on) })
		if i < 0 {
			i = len(others)
			others = append(others, transport{on: on})
		}
		if !slices.Contains(others[i].rules, m.rule) {
			others[i].rules = append(others[i].rules, m.rule)
		}
	}
	for _, other := range others {
		t.Run("for mutants of "+strings.Join(other.rules, ","), func(t *testing.T) {
			t.Parallel()
			h := harnessOn(other.on, changes{})
			h.Rules = other.rules
			Run(t, h, unsaved)
		})
	}
}

// unsaved leaves a report where it is.
func unsaved(*Report) error { return nil }
