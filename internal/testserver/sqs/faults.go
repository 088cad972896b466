//go:build darwin || linux

package sqs

import (
	"slices"
	"sync"
	"time"

	"github.com/reprise-go/reprise/internal/testserver/sqs/internal/api"
)

// A Match selects the requests that a fault strikes.
type Match struct {
	// Operation is the name of an operation, such as "SendMessageBatch" or "Publish". ""
	// matches any.
	Operation string

	// Name is the name of the queue or the topic, without account. "" matches all requests,
	// including those without a name.
	Name string

	// Times is how many requests are struck. The default is 1; a negative number means all
	// requests until ClearFaults.
	Times int
}

// A Code names an error that Reject returns: the name of its shape, by which the SDK knows
// SQS's errors.
type Code string

// Codes that services return for valid requests. SNS returns its equivalent code.
const (
	Throttling           Code = "ThrottlingException"
	RequestThrottled     Code = "RequestThrottled"
	KmsThrottled         Code = "KmsThrottled"
	KmsAccessDenied      Code = "KmsAccessDenied"
	KmsDisabled          Code = "KmsDisabled"
	KmsInvalidKeyUsage   Code = "KmsInvalidKeyUsage"
	KmsInvalidState      Code = "KmsInvalidState"
	KmsNotFound          Code = "KmsNotFound"
	KmsOptInRequired     Code = "KmsOptInRequired"
	AccessDenied         Code = "AccessDeniedException"
	ExpiredToken         Code = "ExpiredTokenException"
	InvalidClientToken   Code = "UnrecognizedClientException"
	TimeTooSkewed        Code = "RequestTimeTooSkewed"
	InternalFailure      Code = "InternalFailure"
	ServiceUnavailable   Code = "ServiceUnavailable"
	OverLimit            Code = "OverLimit"
	QueueDoesNotExist    Code = "QueueDoesNotExist"
	InvalidSecurity      Code = "InvalidSecurity"
	UnsupportedOperation Code = "UnsupportedOperation"
)

// texts are the known texts of the service for a code.
var faultTexts = map[Code]string{
	Throttling:         "Rate exceeded",
	RequestThrottled:   "The request was denied due to request throttling.",
	KmsThrottled:       "Amazon Web Services KMS throttles requests for the following conditions.",
	KmsAccessDenied:    "The caller doesn't have the required KMS access.",
	AccessDenied:       "User is not authorized to perform this action on the resource because no identity-based policy allows it",
	ExpiredToken:       "The security token included in the request is expired",
	InvalidClientToken: "The security token included in the request is invalid.",
	TimeTooSkewed:      "The difference between the request time and the current time is too large.",
	InternalFailure:    "We encountered an internal error. Please try again.",
	ServiceUnavailable: "The request has failed due to a temporary failure of the server.",
}

// A fault strikes requests that match it.
type fault struct {
	match  Match
	kind   faultKind
	err    *api.Error
	entry  int
	delay  time.Duration
	struck chan struct{}
}

type faultKind uint8

const (
	cutBefore  faultKind = iota // the connection ends before the request is executed
	loseAnswer                  // and after it
	reject                      // the server returns an error instead
	failEntry                   // an entry of a batch fails
	delayAnswer
)

// faults are the faults that wait for their requests.
type faults struct {
	mu      sync.Mutex
	waiting []*fault
}

// arm adds a fault. Its channel is closed when it has struck for the last time, or, for a
// fault without a limit, for the first time.
func (f *faults) arm(new *fault) <-chan struct{} {
	switch {
	case new.match.Times == 0:
		new.match.Times = 1
	case new.match.Times < 0:
		new.match.Times = -1
	}
	new.struck = make(chan struct{})
	f.mu.Lock()
	defer f.mu.Unlock()
	f.waiting = append(f.waiting, new)
	return new.struck
}

// due returns the fault that strikes a request, or nil: of several the one that was requested
// first.
func (f *faults) due(operation, name string) *fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, w := range f.waiting {
		if w.match.Operation != "" && w.match.Operation != operation || w.match.Name != "" && w.match.Name != name {
			continue
		}
		w.match.Times--
		switch w.match.Times {
		case 0:
			f.waiting = slices.Delete(f.waiting, i, i+1)
			close(w.struck)
		case -2: // the first time, without a limit
			close(w.struck)
		}
		return w
	}
	return nil
}

// CutConnection closes the connection of a request before the request is executed.
//
// For this method and the others with a Match: several faults can wait at the same time, also
// for the same requests; the fault that was requested first strikes. The channel is closed
// when the fault has struck the requested number of times, or once if there is no limit.
func (s *Server) CutConnection(m Match) (struck <-chan struct{}) {
	return s.faults.arm(&fault{match: m, kind: cutBefore})
}

// LoseAnswer executes a request, and closes its connection instead of answering.
func (s *Server) LoseAnswer(m Match) (struck <-chan struct{}) {
	return s.faults.arm(&fault{match: m, kind: loseAnswer})
}

// Reject returns an error without executing the request: a 5xx, throttling, denied access, an
// invalid key, or any other.
func (s *Server) Reject(m Match, code Code) (struck <-chan struct{}) {
	return s.faults.arm(&fault{match: m, kind: reject, err: code.failure()})
}

// FailEntry makes one entry of a batch fail, by its index, and executes the others.
func (s *Server) FailEntry(m Match, entry int, code Code) (struck <-chan struct{}) {
	return s.faults.arm(&fault{match: m, kind: failEntry, err: code.failure(), entry: entry})
}

// DelayAnswer executes a request, and answers after d on the machine's clock.
func (s *Server) DelayAnswer(m Match, d time.Duration) (struck <-chan struct{}) {
	return s.faults.arm(&fault{match: m, kind: delayAnswer, delay: d})
}

// ClearFaults removes all faults that wait for requests.
func (s *Server) ClearFaults() {
	s.faults.mu.Lock()
	defer s.faults.mu.Unlock()
	s.faults.waiting = nil
}

// EntryFailure returns the error with which an entry of a batch fails, or nil.
func (f *fault) entryFailure(i int) *api.Error {
	if f.kind != failEntry || f.entry != i {
		return nil
	}
	return f.err
}

func (c Code) failure() *api.Error {
	text := faultTexts[c]
	if text == "" {
		text = "The request was rejected by a fault of the test server."
	}
	return api.Failure(string(c), "%s", text)
}

// DuplicateDeliveries delivers each of the next n messages received from a standard queue a
// second time, as the service does when a copy on another machine did not learn of the first
// delivery. Deleting one does not delete the other. It reports whether there is such a queue.
func (s *Server) DuplicateDeliveries(name string, n int) bool {
	return s.current().queues.DuplicateDeliveries(name, n)
}

// Shuffle switches a random order of receives for messages sent to a standard queue from now
// on. It reports whether there is such a queue.
func (s *Server) Shuffle(name string, on bool) bool { return s.current().queues.Shuffle(name, on) }

// SetCancelledPollsReceive switches Config.CancelledPollsReceive.
func (s *Server) SetCancelledPollsReceive(on bool) {
	s.set(func(cfg *Config) { cfg.CancelledPollsReceive = on }).queues.SetCancelledPollsReceive(on)
}

// DelayTopics delays the visibility of topics created from now on to other operations by d on
// the server's clock: until then operations answer that the topic does not exist, as the
// service does while it is not yet consistent.
func (s *Server) DelayTopics(d time.Duration) {
	s.set(func(cfg *Config) { cfg.topicDelay = d }).topics.DelayTopics(d)
}

// DelaySubscriptions delays the effect of subscriptions made or changed from now on by d on
// the server's clock: messages published until then are not delivered, although the subscription
// is listed.
func (s *Server) DelaySubscriptions(d time.Duration) {
	s.set(func(cfg *Config) { cfg.subscriptionDelay = d }).topics.DelaySubscriptions(d)
}
