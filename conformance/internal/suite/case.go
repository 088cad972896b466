package suite

import (
	"slices"
	"strings"
	"time"

	"github.com/reprise-go/reprise/core"
)

// testCase checks one statement of one rule.
type testCase struct {
	// rule is the C- or R-number.
	rule string
	// title completes the name: the checked property, in a few words.
	title string
	// modes are the transaction modes in which the case runs. The default is every mode
	// of the transport.
	modes modes
	// needs are conditions of the case. If one is not met, the case is not run, and the
	// report has the reason of the first such need.
	needs []need
	// exclusive cases stop the broker, or observe something that all cases share: no
	// other case runs at the same time.
	exclusive bool
	// slow cases take seconds even on a fast broker: go test -short leaves them out.
	slow bool
	// shortLocks cases wait until a lock has ended. Cases that stop the broker or kill
	// processes wait for locks too, and need not set it.
	shortLocks bool

	run func(t *caseT)
}

// name is the name of the case in reports and deviations.
func (c *testCase) name() string { return c.rule + " " + c.title }

// Tags are at the end of a subtest's name, so that -run and -skip can choose by them.
const (
	tagBroker    = "@broker"    // the case stops the broker, or cuts the network
	tagLocks     = "@locks"     // it waits for locks to end
	tagProcesses = "@processes" // it starts processes and kills them
	tagSlow      = "@slow"      // it takes seconds for another reason
)

// subtestName is the name with the tags. It has no slashes, which go test would take for
// levels of subtests.
func (c *testCase) subtestName() string {
	var name strings.Builder
	name.WriteString(strings.ReplaceAll(c.name(), "/", " or "))
	for _, tag := range []struct {
		text string
		has  bool
	}{
		{tagBroker, c.stopsBroker()},
		{tagLocks, c.shortLocks},
		{tagProcesses, c.hasNeed(processes)},
		{tagSlow, c.slow},
	} {
		if tag.has {
			name.WriteString(" " + tag.text)
		}
	}
	return name.String()
}

// hasNeed reports whether the case has the need.
func (c *testCase) hasNeed(n need) bool {
	return slices.ContainsFunc(c.needs, func(other need) bool { return other.unmet == n.unmet })
}

// stopsBroker reports whether the case stops the broker, or cuts the network.
func (c *testCase) stopsBroker() bool { return c.hasNeed(brokerControl) || c.hasNeed(outages) }

// waitsForLocks reports whether the case waits for redelivery after locks have ended.
func (c *testCase) waitsForLocks() bool {
	return c.shortLocks || c.stopsBroker() || c.hasNeed(processes)
}

// modes is a choice of transaction modes. The zero value chooses every mode of the
// transport.
type modes int

const (
	// withRedelivery: each mode in which a message can be given back.
	withRedelivery modes = iota + 1
	// inNone, inReceiveOnly, inAtomic: that mode only.
	inNone
	inReceiveOnly
	inAtomic
	// withLeases: each mode in which a message is leased, so that its count survives the
	// end of the process.
	withLeases
	// inHighest: the transport's highest mode only, because the mode makes no difference.
	inHighest
)

// choose returns the chosen ones of the transport's modes.
func (m modes) choose(caps core.Capabilities) []core.TransactionMode {
	if m == inHighest {
		return []core.TransactionMode{caps.HighestTransaction()}
	}
	chosen := slices.DeleteFunc(slices.Clone(caps.Transactions), func(mode core.TransactionMode) bool {
		switch m {
		case withRedelivery:
			return mode == core.TransactionNone
		case inNone:
			return mode != core.TransactionNone
		case inReceiveOnly:
			return mode != core.TransactionReceiveOnly
		case inAtomic:
			return mode != core.TransactionSendsAtomicWithReceive
		case withLeases:
			return mode != core.TransactionReceiveOnly && (mode != core.TransactionSendsAtomicWithReceive || !caps.AtomicLeases)
		default:
			return false
		}
	})
	slices.Sort(chosen)
	return chosen
}

// absentReason returns the reason why there is no mode to run in.
func (m modes) absentReason() string {
	switch m {
	case inNone:
		return "the transport does not have the mode None"
	case inReceiveOnly, withLeases:
		return "the transport does not have the mode ReceiveOnly"
	case inAtomic:
		return "the transport does not have the mode SendsAtomicWithReceive"
	default:
		return "the transport has no mode above None"
	}
}

// need is a condition of a case.
type need struct {
	unmet string // the reason why the case is not run
	met   func(s *suite) bool
}

func claimed(name string, has func(c core.Capabilities) bool) need {
	return need{name + " is not claimed", func(s *suite) bool { return has(s.caps) }}
}

func unclaimed(name string, has func(c core.Capabilities) bool) need {
	return need{name + " is claimed", func(s *suite) bool { return !has(s.caps) }}
}

// Needs of cases.
var (
	delays         = claimed("DelayedDelivery", func(c core.Capabilities) bool { return c.DelayedDelivery })
	noDelays       = unclaimed("DelayedDelivery", func(c core.Capabilities) bool { return c.DelayedDelivery })
	longestDelay   = need{"MaxDelay is without limit", func(s *suite) bool { return s.caps.MaxDelay > 0 }}
	publishing     = claimed("PublishSubscribe", func(c core.Capabilities) bool { return c.PublishSubscribe })
	noPublishing   = unclaimed("PublishSubscribe", func(c core.Capabilities) bool { return c.PublishSubscribe })
	baseTopics     = claimed("BaseTopics", func(c core.Capabilities) bool { return c.BaseTopics })
	noBaseTopics   = unclaimed("BaseTopics", func(c core.Capabilities) bool { return c.BaseTopics })
	expiry         = claimed("TimeToBeReceived", func(c core.Capabilities) bool { return c.TimeToBeReceived })
	noExpiry       = unclaimed("TimeToBeReceived", func(c core.Capabilities) bool { return c.TimeToBeReceived })
	deadLettering  = claimed("DeadLetter", func(c core.Capabilities) bool { return c.DeadLetter })
	nativeCount    = claimed("NativeDeliveryCount", func(c core.Capabilities) bool { return c.NativeDeliveryCount })
	noNativeCount  = unclaimed("NativeDeliveryCount", func(c core.Capabilities) bool { return c.NativeDeliveryCount })
	durable        = claimed("Durable", func(c core.Capabilities) bool { return c.Durable })
	messageLimit   = need{"MaxMessageBytes is without limit", func(s *suite) bool { return s.caps.MaxMessageBytes > 0 }}
	headerLimit    = need{"MaxHeaderBytes is without limit", func(s *suite) bool { return s.caps.MaxHeaderBytes > 0 }}
	headerKeyLimit = need{"MaxHeaderKeyBytes is without limit", func(s *suite) bool { return s.caps.MaxHeaderKeyBytes > 0 }}
	groupOrder     = claimed("GroupOrder", func(c core.Capabilities) bool { return c.GroupOrder })
	noGroupOrder   = unclaimed("GroupOrder", func(c core.Capabilities) bool { return c.GroupOrder })
	savepoints     = claimed("Savepoints", func(c core.Capabilities) bool { return c.Savepoints })
	lockLimit      = need{"MaxLockTime is without limit", func(s *suite) bool { return s.caps.MaxLockTime > 0 }}
	receiveBatch   = need{"MaxReceiveBatch is without limit", func(s *suite) bool { return s.caps.MaxReceiveBatch > 0 }}
	provisioning   = need{"the transport is no core.Provisioner", func(s *suite) bool { return s.provisioner }}
	removing       = need{"the transport is no core.Remover", func(s *suite) bool { return s.remover }}
	checking       = need{"the transport is no core.Checker", func(s *suite) bool { return s.checker }}
	shortestLife   = need{"MaxLockTime is without limit, or longer than a case can wait", func(s *suite) bool {
		return s.caps.MaxLockTime > 0 && (s.caps.MaxLockTime <= time.Minute || s.h.Synctest && s.caps.MaxLockTime <= 5*time.Minute)
	}}
	locks               = need{"no delivery has a LockedUntil: locks do not end by themselves", func(s *suite) bool { return s.shortLock > 0 }}
	brokerControl       = need{"Harness.Broker is nil", func(s *suite) bool { return s.h.Broker != nil }}
	outages             = need{"Harness.Broker and Harness.Network are nil", func(s *suite) bool { return s.h.Broker != nil || s.h.Network != nil }}
	corruption          = need{"Harness.Corrupt is nil", func(s *suite) bool { return s.h.Corrupt != nil }}
	nativeMessages      = need{"messages have no native properties: Harness.SendNative is nil", func(s *suite) bool { return s.h.SendNative != nil }}
	deletion            = need{"Harness.DeleteQueue is nil", func(s *suite) bool { return s.h.DeleteQueue != nil }}
	duplicateDetection  = need{"no queue drops duplicates: Harness.UniqueQueue is nil", func(s *suite) bool { return s.h.UniqueQueue != nil }}
	deadLetterView      = need{"Harness.DeadLetters is nil", func(s *suite) bool { return s.h.DeadLetters != nil }}
	mismatches          = need{"Harness.Mismatch is nil", func(s *suite) bool { return s.h.Mismatch != nil }}
	nativeTransactions  = need{"Harness.NativeTx is nil", func(s *suite) bool { return s.h.NativeTx != nil }}
	breakableTx         = need{"Harness.NativeTx.Break is nil", func(s *suite) bool { return s.h.NativeTx != nil && s.h.NativeTx.Break != nil }}
	connectionCount     = need{"Harness.Connections is nil", func(s *suite) bool { return s.h.Connections != nil }}
	secrets             = need{"Harness.Secrets is empty", func(s *suite) bool { return len(s.h.Secrets) > 0 }}
	holdsManyDeliveries = need{"Harness.MaxInFlight is less than 1,100", func(s *suite) bool { return s.h.MaxInFlight == 0 || s.h.MaxInFlight >= manyDeliveries }}
	misconfiguration    = need{"Harness.OpenWrong is nil", func(s *suite) bool { return s.h.OpenWrong != nil }}
	misplacement        = need{"Harness.OpenMisplaced is nil", func(s *suite) bool { return s.h.OpenMisplaced != nil }}
	lowerLimit          = need{"Harness.OpenLimited is nil", func(s *suite) bool { return s.h.OpenLimited != nil }}
	ownLine             = need{"Harness.OpenOnLine is nil", func(s *suite) bool { return s.h.OpenOnLine != nil }}
	processes           = need{"TestMain does not call conformance.Main, or the transport lives in this process", func(s *suite) bool { return s.h.process != nil }}
)

// manyDeliveries is more than 1,000, the default limit of several brokers and clients.
const manyDeliveries = 1100
