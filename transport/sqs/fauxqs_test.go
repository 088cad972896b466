//go:build darwin || linux

package sqs_test

import (
	"testing"

	"github.com/reprise-go/reprise/conformance"
	"github.com/reprise-go/reprise/internal/testserver/fauxqs"
	"github.com/reprise-go/reprise/transport/sqs"
)

// The rules in which the service's own behaviour matters, on a server by other
// authors: a second opinion about the adapter and about our own server, which have the same
// authors.
func TestConformance_Fauxqs(t *testing.T) {
	if isGiven() {
		t.Log("not run, because " + givenVariable + " is set: fauxqs is a separate server")
		return
	}
	if testing.Short() {
		t.Skip("another server for the transport of TestConformance: not in short runs")
	}
	t.Parallel()
	s := newService(t, fauxqs.StartFor(t).URL())
	s.setChild(t, "")
	h := s.harness("", sqs.Config{}) // without a name, and so without a report: it is no other adapter
	h.Rules, h.SameAs, h.Deviations = serviceRules, "sqs", fauxqsDeviations
	h.Network = nil // outages are the adapter's own work
	conformance.Run(t, h)
}

// serviceRules are those of locks, giving back, counting, delaying, provisioning, publishing and groups,
// and of the contents of messages. Sending, the ends of receivers and outages are the
// adapter's own work, and recoverability is the engine's.
var serviceRules = []string{"C6", "C8", "C9", "C10", "C13", "C18", "C19", "C24"}

// fauxqsDeviations are the cases that fail because fauxqs is not like AWS, each for a reason
// that package fauxqs documents. No case of these rules meets the other differences in its list.
var fauxqsDeviations = map[string]string{
	"C10 a header's key may be any text":                               beyondU10000,
	"C10 a header's value may be any text":                             beyondU10000,
	"C10 properties arrive as they were sent":                          beyondU10000,
	"C10 every delivery of a message has its group key and properties": beyondU10000,
	"C10 a delayed message arrives as it was sent":                     beyondU10000,
	"C10 a message with a time to be received arrives as it was sent":  beyondU10000,
}

const beyondU10000 = "fauxqs refuses the characters from U+10000 on, such as emojis, which SQS takes: " +
	"https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_SendMessage.html"
