package suite

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
)

// Harness is conformance.Harness, which documents the fields, and the types below are its
// namesakes in that package.
type Harness struct {
	Name           string
	Open           func(t testing.TB) core.Transport
	OpenShortLocks func(t testing.TB) core.Transport
	OpenLimited    func(t testing.TB, maxMessageBytes int) core.Transport
	OpenOnLine     func(t testing.TB) (core.Transport, Line)
	Queue          func(t testing.TB) string
	GroupQueue     func(t testing.TB) string
	UniqueQueue    func(t testing.TB) (queue, property string)
	Broker         Broker
	Network        Network
	Separate       func(t testing.TB) Harness
	Corrupt        func(t testing.TB, queue string) (body []byte)
	SendNative     func(t testing.TB, queue, messageType string) (describe func(native any) string)
	DeleteQueue    func(t testing.TB, queue string)
	DeadLetters    func(t testing.TB, queue string) []DeadLetter
	NativeTx       *NativeTx
	Mismatch       func(t testing.TB) (queue string, values [2]string)
	Connections    func(t testing.TB) int
	MaxInFlight    int
	Secrets        []string
	OpenWrong      func(t testing.TB) []error
	OpenMisplaced  func(t testing.TB, text string) (configs []any, errs []error)
	EngineRules    bool
	Rules          []string
	SameAs         string
	Deviations     map[string]string
	Synctest       bool
	Timeout        time.Duration
	DelayTolerance time.Duration

	// quietPeriod is how long the suite waits to be sure that an event does not happen:
	// 300 ms, or 5 s with Synctest. Where locks end by themselves it is at most a fifth of
	// the shortest lock's duration, so that no lock ends in that time.
	quietPeriod time.Duration

	// seed makes random choices repeatable. It is the value of the environment variable
	// REPRISE_CONFORMANCE_SEED, or else a new seed, which is printed.
	seed uint64

	// process starts a process of an endpoint, or a substitute for it. The default is a
	// child process, if Main was called. The suite's own tests replace it.
	process func(t *caseT, job workerSpec) process
}

// Broker is conformance.Broker.
type Broker interface {
	Kill(t testing.TB)
	Start(t testing.TB)
	Partition(t testing.TB) (heal func())
}

// Network is conformance.Network.
type Network interface {
	Cut(t testing.TB) (restore func())
	Partition(t testing.TB) (heal func())
}

// Line is conformance.Line.
type Line interface {
	Silence()
	SilenceBroker()
}

// NativeTx is conformance.NativeTx.
type NativeTx struct {
	Write     func(ctx context.Context, key string) error
	Committed func(t testing.TB, key string) bool
	Break     func(ctx context.Context) error
}

// DeadLetter is conformance.DeadLetter.
type DeadLetter struct {
	Body                []byte
	Reason, Description string
	Headers             core.Headers
}

// complete returns h with its defaults, or an error that describes a wrong field.
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
	h.quietPeriod = 300 * time.Millisecond
	if h.Synctest {
		h.quietPeriod = 5 * time.Second
	}
	if tx := h.NativeTx; tx != nil && (tx.Write == nil || tx.Committed == nil) {
		return h, errors.New("conformance: Harness.NativeTx needs both Write and Committed")
	}
	return h, nil
}
