package conformance

import (
	"context"
	"testing"
	"time"

	"github.com/reprise-go/reprise/conformance/internal/suite"
	"github.com/reprise-go/reprise/core"
)

// Harness describes how the suite reaches one adapter. Open is required, and so is Queue
// where the transport is no core.Provisioner; each other field lets more cases run. The
// suite calls the functions from several goroutines at once.
type Harness struct {
	// Name is the adapter's name in reports, such as "rabbitmq". A report is written only
	// for a harness with a name.
	Name string

	// Open returns a new transport, connected to the same broker at each call: several
	// transports in one case stand for several processes. The suite closes the transport.
	// Open reports a fatal error to t.
	Open func(t testing.TB) core.Transport

	// OpenShortLocks returns a transport as Open does, but with locks that end after a
	// few seconds, such as 4 s. It is used in cases that wait until a lock has ended, and
	// in cases in which a process or the broker dies with messages locked. All other
	// cases use Open, whose locks should last for minutes, so that none ends because the
	// machine is busy; no case waits for these. Where Main is called, its open function
	// also has to return transports with short locks. nil: all cases use Open. If the
	// duration of a lock belongs to the queue, and Queue creates the queues, leave it nil
	// and give the queues short locks.
	OpenShortLocks func(t testing.TB) core.Transport

	// OpenLimited returns a transport as Open does, but with the given MaxMessageBytes,
	// which is less than Open's: a receiver with a lower limit than its senders. nil: the
	// limit is the broker's, or there is none, and cases that need OpenLimited are not
	// run.
	OpenLimited func(t testing.TB, maxMessageBytes int) core.Transport

	// OpenOnLine returns a transport as Open does, with its own network between it and
	// the broker, such as a separate proxy, which the case disturbs. nil: there is none,
	// and cases that need it are not run.
	OpenOnLine func(t testing.TB) (core.Transport, Line)

	// Queue returns the name of a queue that exists and is empty, a different one at each
	// call. By default the suite makes up names, and creates the queues with
	// core.Provisioner.
	Queue func(t testing.TB) string

	// GroupQueue is Queue for queues that keep groups, for a transport with
	// Capabilities.GroupOrder. By default the suite uses queues as Queue returns them.
	GroupQueue func(t testing.TB) string

	// UniqueQueue returns the name of a queue that exists and is empty, a different one
	// at each call, at which the broker drops a message that an application sends again, and
	// the name of the property (core.Outgoing.Properties) in which the application gives such
	// messages the same value; "" if the messages have the same ID instead. nil: no queue does.
	UniqueQueue func(t testing.TB) (queue, property string)

	// Broker stops and starts the broker. nil: that is not possible, and cases that need
	// it are not run. The suite runs no other case during such a case.
	Broker Broker

	// Network disconnects the transports from a broker that keeps running. It is for
	// tests that cannot stop the broker, and leave Broker nil. With it, cases about an
	// outage itself run, and cases about what survives a restart do not. nil: the network
	// cannot be cut either. If both Broker and Network are set, cases about an outage
	// itself cut the network, which takes less time than a restart of the broker.
	Network Network

	// Separate returns the same harness with a new broker, for the single case t, with
	// its Broker and its Network. Cases that stop the broker or cut the network then run
	// in parallel with the others. nil: they use the broker of all cases, and run alone.
	// It is for brokers that start at once.
	Separate func(t testing.TB) Harness

	// Corrupt puts one message that the adapter cannot parse into the queue, by the
	// broker's own means, and returns the Body with which it has to be received. nil:
	// there are no such messages, or no means to send them.
	Corrupt func(t testing.TB, queue string) (body []byte)

	// SendNative puts one message of a type into the queue, by the broker's own means, with
	// everything that a sender can set and no field of core.Outgoing has: native properties,
	// and headers of each native type. describe returns all of that in Incoming.Native of a
	// received message, as a text. nil: there is nothing of the kind.
	SendNative func(t testing.TB, queue, messageType string) (describe func(native any) string)

	// DeleteQueue deletes a queue with its messages, by the broker's own means. nil:
	// queues cannot be deleted.
	DeleteQueue func(t testing.TB, queue string)

	// DeadLetters removes the messages from the broker's own dead-letter queue of a
	// queue, and returns them. It is called until the expected messages are there. nil:
	// dead letters cannot be read.
	DeadLetters func(t testing.TB, queue string) []DeadLetter

	// NativeTx writes in the native transaction that Delivery.BindContext hands out.
	// nil: BindContext returns its argument.
	NativeTx *NativeTx

	// Mismatch creates, by the broker's own means, a queue that differs from the queue
	// that Provision would create, though messages can be sent to it and received from
	// it: OpenReceiver opens it (C18). Choose a difference that the broker would let the
	// adapter change, such as a time limit: with one that the broker refuses to change,
	// such as a queue's type, the case does not detect a Provision that alters queues.
	// Mismatch returns the two differing values, the queue's and the one that the adapter
	// wants, both as the adapter's error writes them. nil: queues cannot differ.
	Mismatch func(t testing.TB) (queue string, values [2]string)

	// Connections returns the number of connections to the broker from transports that
	// Open returned. nil: they cannot be counted.
	Connections func(t testing.TB) int

	// MaxInFlight is the number of unsettled messages that one receiver can have at a
	// time on the broker of the tests. Set it if each of them uses a scarce resource,
	// such as a connection: receivers and endpoints of cases then have no more. 0: more
	// than 1,000.
	MaxInFlight int

	// Secrets are the passwords, keys and tokens that Open uses. None of them may appear
	// in an error or in a String (C21).
	Secrets []string

	// OpenWrong opens transports with configurations that cannot work and contain
	// Secrets, and returns the errors of opening or of the first call: a URL that does
	// not parse, an option that does not exist, an account that does not exist, a port on
	// which no server listens. Such errors are the most common way for passwords to get
	// into a log (C21). nil: the configuration cannot be wrong.
	OpenWrong func(t testing.TB) []error

	// OpenMisplaced opens transports with a text in the wrong field: once for each field that
	// names a server, such as a URL, a host name or an endpoint, it sets that field to text, which
	// contains the first of Secrets, and the others to valid values. It returns these
	// configurations, and the errors of opening and of the first call (Check); nil errors are
	// ignored. The suite's texts are a connection string, which may have the key where the name
	// of a queue belongs, a list of options, and URLs with a secret as the password, in the query,
	// as in ?sig=, and at the end. To paste one into the wrong field is a mistake that is easily
	// made, and an error that quotes the value puts the secret into a log (C21). nil: no field
	// names a server.
	OpenMisplaced func(t testing.TB, text string) (configs []any, errs []error)

	// EngineRules also runs the cases of the rules that only the engine can break, such as
	// R7: docs/adapter-rules.md lists them. An adapter need not set it. This repository
	// runs them in memory, on transports with the capabilities of each of its adapters.
	EngineRules bool

	// Rules are the rules whose cases are run, such as "C19". nil: all that an adapter can
	// break. It is for a second configuration of an adapter, such as another topology, that
	// differs only in these rules from the configuration that is checked against all of
	// them. Such a run writes no report, unless SameAs is set.
	Rules []string

	// SameAs is the Name of the configuration that is checked against all rules, and that
	// behaves the same in the rules that Rules leaves out. The report lists their cases
	// as not run, for this reason.
	SameAs string

	// Deviations are cases that are known to fail, by name, such as "C13 a
	// delayed message goes to any queue". The values are texts that a user of the adapter should read. A listed case
	// that does not fail makes the run fail. A difference that Capabilities can express
	// is not a deviation.
	Deviations map[string]string

	// Synctest runs each case in a bubble of testing/synctest, where an hour passes at
	// once when all goroutines wait. It is for transports that run in this process and
	// wait only for channels and timers.
	Synctest bool

	// Timeout is the time limit for an event that must happen, also on a busy machine.
	// The default is 2 min, or 1 min with Synctest.
	Timeout time.Duration

	// DelayTolerance is the lateness of a message allowed beyond
	// Capabilities.DelayPrecision, because neither the machine nor the broker is idle
	// during the tests. The default is 3 s, or 0 with Synctest.
	DelayTolerance time.Duration
}

// Broker stops and starts the broker that Harness.Open connects to.
type Broker interface {
	// Kill ends the broker at once, as kill -9 does, with all its connections.
	Kill(t testing.TB)
	// Start starts the broker again with the data that it had stored, and returns when it
	// is reachable.
	Start(t testing.TB)
	// Partition cuts the network between the transports and the broker until heal is
	// called. Both keep running.
	Partition(t testing.TB) (heal func())
}

// Network is the network between the transports that Harness.Open returns and the broker:
// a proxy set up by the tests, used by these transports only. The suite runs no other
// case while it is cut.
type Network interface {
	// Cut closes every connection at once, on both sides, and refuses new ones until
	// restore is called.
	Cut(t testing.TB) (restore func())
	// Partition drops all traffic in both directions without closing connections, until
	// heal is called.
	Partition(t testing.TB) (heal func())
}

// Line is the network between one transport and the broker. Neither method closes a
// connection or notifies either side, and new connections work.
type Line interface {
	// Silence drops all traffic of the connections that are open now.
	Silence()
	// SilenceBroker drops the traffic from the broker of the connections that are open
	// now; traffic from the transport still arrives.
	SilenceBroker()
}

// NativeTx works in the transport's native transaction like a handler: in a database, it
// inserts rows.
type NativeTx struct {
	// Write writes a key. ctx comes from Delivery.BindContext.
	Write func(ctx context.Context, key string) error
	// Committed reports whether the key was written and committed.
	Committed func(t testing.TB, key string) bool
	// Break makes the transaction unusable, as a failed statement does. nil: that cannot
	// happen.
	Break func(ctx context.Context) error
}

// DeadLetter is a message in the broker's own dead-letter queue.
type DeadLetter struct {
	Body                []byte
	Reason, Description string
	// Headers has the message's own headers, and perhaps others. Leave it empty if
	// headers cannot be read.
	Headers core.Headers
}

// forSuite returns the harness as internal/suite takes it. That package has its own types for
// everything that this one documents, since it cannot import it.
func (h Harness) forSuite() suite.Harness {
	s := suite.Harness{
		Name:           h.Name,
		Open:           h.Open,
		OpenShortLocks: h.OpenShortLocks,
		OpenLimited:    h.OpenLimited,
		Queue:          h.Queue,
		GroupQueue:     h.GroupQueue,
		UniqueQueue:    h.UniqueQueue,
		Broker:         h.Broker,
		Network:        h.Network,
		Corrupt:        h.Corrupt,
		SendNative:     h.SendNative,
		DeleteQueue:    h.DeleteQueue,
		NativeTx:       (*suite.NativeTx)(h.NativeTx),
		Mismatch:       h.Mismatch,
		Connections:    h.Connections,
		MaxInFlight:    h.MaxInFlight,
		Secrets:        h.Secrets,
		OpenWrong:      h.OpenWrong,
		OpenMisplaced:  h.OpenMisplaced,
		EngineRules:    h.EngineRules,
		Rules:          h.Rules,
		SameAs:         h.SameAs,
		Deviations:     h.Deviations,
		Synctest:       h.Synctest,
		Timeout:        h.Timeout,
		DelayTolerance: h.DelayTolerance,
	}
	if h.OpenOnLine != nil {
		s.OpenOnLine = func(t testing.TB) (core.Transport, suite.Line) { return h.OpenOnLine(t) }
	}
	if h.Separate != nil {
		s.Separate = func(t testing.TB) suite.Harness { return h.Separate(t).forSuite() }
	}
	if h.DeadLetters != nil {
		s.DeadLetters = func(t testing.TB, queue string) (dead []suite.DeadLetter) {
			for _, d := range h.DeadLetters(t, queue) {
				dead = append(dead, suite.DeadLetter(d))
			}
			return dead
		}
	}
	return s
}
