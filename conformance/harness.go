package conformance

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
)

// Harness says how the suite reaches one adapter. Open is required, and Queue
// where the transport is no core.Provisioner; everything else lets more cases
// run. The suite calls the functions from several goroutines at once.
type Harness struct {
	// Name is what reports call the adapter, such as "rabbitmq". A report is
	// written only for a harness with a name.
	Name string

	// Open returns a new transport, connected to the same broker at each call:
	// several in one case stand for several processes. The suite closes it. A
	// fatal error belongs to t.
	Open func(t testing.TB) core.Transport

	// OpenShortLocks returns a transport as Open does, whose locks end after a few
	// seconds, such as 4 s: for the cases that wait until a lock has ended, and for those
	// in which a process or the broker dies holding messages. All others use Open, whose
	// locks should be minutes, so that none ends because the machine is busy; nothing
	// waits for them. Where Main is called, its open returns transports with short locks
	// too. nil: all cases use Open. Leave it nil, and let Open's locks be short, where the
	// duration of a lock belongs to the queue and Queue makes the queues.
	OpenShortLocks func(t testing.TB) core.Transport

	// OpenLimited returns a transport as Open does, whose MaxMessageBytes is this, less
	// than Open's: a receiver with other limits than its senders have. nil: the limit is
	// the broker's own, or there is none, and what needs it is not run.
	OpenLimited func(t testing.TB, maxMessageBytes int) core.Transport

	// OpenOnLine opens a transport as Open does, with a network of its own between it and
	// the broker, such as a proxy for it alone, which a case spoils. nil: there is none, and
	// what needs it is not run.
	OpenOnLine func(t testing.TB) (core.Transport, Line)

	// Queue returns the name of a queue that exists and is empty, another one at
	// each call. The default makes names up and creates the queues with
	// core.Provisioner.
	Queue func(t testing.TB) string

	// GroupQueue does so with a queue that keeps groups, for a transport with
	// Capabilities.GroupOrder. The default takes any queue.
	GroupQueue func(t testing.TB) string

	// Broker stops and starts the broker. nil: it cannot, and what needs it is
	// not run. The suite runs nothing else while it uses it.
	Broker Broker

	// Network cuts the transports off from a broker that goes on, where Broker is nil
	// because the broker is not the test's to stop. Cases about an outage itself then
	// run; those about what survives a restart do not. nil: the network cannot be cut
	// either. With both, cases about an outage itself cut the network, which takes less
	// time than a restart of the broker.
	Network Network

	// Separate returns a harness that is the same but for its broker: a new one, for the
	// one case that t is, with its Broker and its Network. Cases that stop the broker or
	// cut the network then run beside the others. nil: they have the broker of all cases,
	// and run alone. It is for brokers that start at once.
	Separate func(t testing.TB) Harness

	// Corrupt puts one message into the queue that the adapter cannot parse,
	// with the broker's own means, and returns what its Body is to be. nil:
	// there is no such message, or no such means.
	Corrupt func(t testing.TB, queue string) (body []byte)

	// DeleteQueue deletes a queue with all that is in it, with the broker's own
	// means. nil: queues cannot be deleted.
	DeleteQueue func(t testing.TB, queue string)

	// DeadLetters takes away, and returns, what is in the broker's own dead-letter
	// queue of a queue. It is called until what is expected is there. nil: nobody
	// can look.
	DeadLetters func(t testing.TB, queue string) []DeadLetter

	// NativeTx writes in the native transaction that Delivery.BindContext hands out.
	// nil: BindContext returns its argument.
	NativeTx *NativeTx

	// Mismatch makes, with the broker's own means, a queue that exists but is not
	// as Provision would create it, though messages can be sent to it and received
	// from it: OpenReceiver opens it (C18). Choose a difference that the broker would
	// let the adapter change, such as a time limit: where the broker refuses to change
	// it, such as a queue's type, a Provision that alters queues is not found out. It
	// returns what differs: the value that the queue has, and the one that the adapter
	// wants, both as the adapter's error writes them. nil: all queues are alike.
	Mismatch func(t testing.TB) (queue string, values [2]string)

	// Connections returns how many connections the broker has from transports
	// that Open returned. nil: nobody can count them.
	Connections func(t testing.TB) int

	// MaxInFlight is how many unsettled messages one receiver can have at a time on the broker
	// of the tests, where each of them costs something scarce, such as a connection. 0:
	// more than 1,000.
	MaxInFlight int

	// Secrets are the passwords, keys and tokens that Open uses. None of them may
	// appear in an error or a String (C21).
	Secrets []string

	// OpenWrong opens transports with configurations that cannot work and that have
	// Secrets in them, and returns the errors, of opening or of the first call: a URL that
	// does not parse, an option that does not exist, an account that does not, a port at
	// which no server listens. These are how passwords most often get into a log (C21).
	// nil: nothing of the configuration can be wrong.
	OpenWrong func(t testing.TB) []error

	// Rules are those whose cases are run, such as "C19". nil: all. It is for a
	// second configuration of an adapter, such as another topology, which differs
	// from the one that is checked against all rules in these alone. Such a run
	// writes no report, unless SameAs is set.
	Rules []string

	// SameAs is the Name of the configuration that is checked against all rules, and that
	// this one is the same as in those that Rules leaves out. The report lists their cases
	// as not run, and says so.
	SameAs string

	// Deviations are cases, by their name such as "C13 goes to any queue", that are
	// known to fail, with what a user of the adapter should know about it. One
	// that does not fail fails the run. What Capabilities can say is none.
	Deviations map[string]string

	// Synctest runs each case in a bubble of testing/synctest, where an hour passes at
	// once when all goroutines wait. It is for transports that live in this process
	// and wait for nothing but channels and timers.
	Synctest bool

	// Timeout is how long the suite waits for an event that must happen, also on a busy
	// machine. The default is 2 min, or 1 min with Synctest.
	Timeout time.Duration

	// QuietPeriod is how long the suite watches that something does not happen. Where
	// locks end by themselves it is a fifth of the shortest one's duration at most,
	// so that no lock ends in that time. The default is 300 ms, or 5 s with Synctest.
	QuietPeriod time.Duration

	// DelayTolerance is by how much a message may be late beyond Capabilities.DelayPrecision,
	// because neither the machine nor the broker is idle during the tests. The default
	// is 3 s, or 0 with Synctest.
	DelayTolerance time.Duration

	// Seed makes what is random repeatable. The default is the environment
	// variable REPRISE_CONFORMANCE_SEED, or else a new one, which is printed.
	Seed uint64

	// process starts what stands for a process of an endpoint. The default is a
	// child process, if Main was called. The suite's own tests replace it.
	process func(t *trial, job job) process
}

// Broker stops and starts the broker that Harness.Open connects to.
type Broker interface {
	// Kill ends the broker at once, as kill -9 does, and with it every
	// connection.
	Kill(t testing.TB)
	// Start starts it again with what it had stored, and returns when it can be
	// reached.
	Start(t testing.TB)
	// Partition cuts the network between the transports and the broker, both of
	// which go on, until heal is called.
	Partition(t testing.TB) (heal func())
}

// Network is the network between the transports that Harness.Open returns and the
// broker: a proxy that the tests have put there. It carries the connections of nobody
// else. The suite runs nothing else while it is cut.
type Network interface {
	// Cut ends every connection at once, to both sides, and refuses new ones until
	// restore is called.
	Cut(t testing.TB) (restore func())
	// Partition lets nothing that either side sends arrive, and tells neither, until
	// heal is called.
	Partition(t testing.TB) (heal func())
}

// Line is the network between one transport and the broker. Neither method ends a
// connection or tells either side, and new connections work.
type Line interface {
	// Silence lets nothing arrive any more on the connections that are open now.
	Silence()
	// SilenceBroker lets nothing arrive any more of what the broker sends on the
	// connections that are open now; what the transport sends does.
	SilenceBroker()
}

// NativeTx works in the transport's native transaction as a handler could: for a
// database, it inserts rows.
type NativeTx struct {
	// Write writes a key. ctx comes from Delivery.BindContext.
	Write func(ctx context.Context, key string) error
	// Committed reports whether the key was written and committed.
	Committed func(t testing.TB, key string) bool
	// Break makes the transaction unusable, as a failed statement does. nil: it
	// cannot happen.
	Break func(ctx context.Context) error
}

// DeadLetter is a message in the broker's own dead-letter queue.
type DeadLetter struct {
	Body                []byte
	Reason, Description string
	// Headers has the message's own headers, and any others. It is left empty
	// where nobody can look at them.
	Headers core.Headers
}

// complete returns h with its defaults, or what is wrong with it.
func (h Harness) complete() (Harness, error) {
	if h.Open == nil {
		return h, errors.New("conformance: Harness.Open is nil; it returns a transport to be tested")
	}
	for _, rule := range h.Rules {
		if rules[rule] == "" {
			return h, fmt.Errorf("conformance: Harness.Rules names %q, which is no rule; rules are named like C19 or R20", rule)
		}
	}
	if h.SameAs != "" && len(h.Rules) == 0 {
		return h, fmt.Errorf("conformance: Harness.SameAs is %q, but Harness.Rules is empty, so that no rule is left out; set Rules, or remove SameAs", h.SameAs)
	}
	for _, d := range []struct {
		name  string
		value *time.Duration
		real  time.Duration
		fake  time.Duration // in a bubble
	}{
		{"Timeout", &h.Timeout, 2 * time.Minute, time.Minute},
		{"QuietPeriod", &h.QuietPeriod, 300 * time.Millisecond, 5 * time.Second},
		{"DelayTolerance", &h.DelayTolerance, 3 * time.Second, 0},
	} {
		switch {
		case *d.value < 0:
			return h, fmt.Errorf("conformance: Harness.%s is negative; use 0 for the default", d.name)
		case *d.value == 0 && h.Synctest:
			*d.value = d.fake
		case *d.value == 0:
			*d.value = d.real
		}
	}
	if tx := h.NativeTx; tx != nil && (tx.Write == nil || tx.Committed == nil) {
		return h, errors.New("conformance: Harness.NativeTx needs both Write and Committed")
	}
	return h, nil
}
