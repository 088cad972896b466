package main

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

const wantTable = `
The outcome of every message

  message      endpoint  attempts  delayed rounds  deferred  outcome
  order-1001   orders           1               -         -  handled
  charge-1001  payments         1               -         -  handled
  paid-1001    shipping         1               -         -  handled
  order-1002   orders           2               -         -  handled
  charge-1002  payments         1               -         -  handled
  paid-1002    shipping         1               -         -  handled
  order-1003   orders           1               -         -  handled
  charge-1003  payments         1               -         -  handled
  paid-1003    shipping         6               2         -  to the error queue
  order-1004   orders           1               -         -  handled
  charge-1004  payments         5               2         -  handled
  paid-1004    shipping         1               -         -  handled
  order-1005   orders           1               -         -  to the error queue
  order-1006   orders           1               -         -  to the error queue
  order-1007   orders           1               -         -  discarded
  order-1008   orders           2               -         1  handled
  charge-1008  payments         1               -         -  handled
  paid-1008    shipping         1               -         -  handled

  18 messages, 29 attempts, 3.9 s
`

const wantErrorQueue = `
The messages in the error queue

  order-1005  two teapots, please
    NServiceBus.FailedQ                      orders
    NServiceBus.TimeOfFailure                2000-01-01 00:00:01:000000 Z
    NServiceBus.ExceptionInfo.ExceptionType  *json.SyntaxError
    NServiceBus.ExceptionInfo.Message        decode "orders.PlaceOrder" from application/json: ...
    Reprise.Attempts                         1 failed, MoveToError

  order-1006  {"Order":{"Number":1006,"Item":"lamp","Quantity":0,"ShipTo":"Athens"}}
    NServiceBus.FailedQ                      orders
    NServiceBus.TimeOfFailure                2000-01-01 00:00:01:250000 Z
    NServiceBus.ExceptionInfo.ExceptionType  *errors.errorString
    NServiceBus.ExceptionInfo.Message        order 1006 has the quantity 0
    Reprise.Attempts                         1 failed, MoveToError

  paid-1003  {"Order":{"Number":1003,"Item":"lamp","Quantity":1,"ShipTo":"Atlantis"}}
    NServiceBus.FailedQ                      shipping
    NServiceBus.TimeOfFailure                2000-01-01 00:00:03:660000 Z
    NServiceBus.ExceptionInfo.ExceptionType  *errors.errorString
    NServiceBus.ExceptionInfo.Message        carrier: no route to Atlantis
    Reprise.Attempts                         2 failed, DelayedRetry 1s
                                             2 failed, DelayedRetry 2s
                                             2 failed, MoveToError
`

// wantAttempts are the attempts at some messages, in the order in which they
// have to be told.
var wantAttempts = map[string]string{
	"order-1002": `
  0.27s  orders    order-1002       0        1  retry at once       stock: the transaction lost a deadlock
  0.29s  orders    order-1002       0        2  handled             sends charge-1002
`,
	"charge-1004": `
  0.79s  payments  charge-1004      0        1  retry at once       payment provider: 503 Service Unavailable
  0.81s  payments  charge-1004      0        2  retry in 1s         payment provider: 503 Service Unavailable
  1.83s  payments  charge-1004      1        1  retry at once       payment provider: 503 Service Unavailable
  1.85s  payments  charge-1004      1        2  retry in 2s         payment provider: 503 Service Unavailable
  3.87s  payments  charge-1004      2        1  handled             publishes paid-1004
`,
	"order-1007": `
  1.50s  orders    order-1007       0        1  discarded           the customer has cancelled the order
`,
	"order-1008": `
  1.77s  orders    order-1008       0        1  deferred for 1s     stock: out of teapots
  2.79s  orders    order-1008       0        1  handled             sends charge-1008
`,
}

func TestOrders_AreAllSettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // fails also if a goroutine is left
		output := runFlow(t, t.Context())
		live, report, found := strings.Cut(output, "\nThe outcome of")
		if !found {
			t.Fatalf("there is no report in the output:\n%s", output)
		}
		if want := wantTable + wantErrorQueue; "\nThe outcome of"+report != want {
			t.Errorf("report:\n%s\nwant:\n%s", report, want)
		}
		for id, want := range wantAttempts {
			if got := linesAbout(live, id); got != want {
				t.Errorf("attempts at %s:\n%swant:\n%s", id, got, want)
			}
		}
	})
}

// The moment is one at which order-1003 is being handled, and the orders after
// it have not been received.
func TestInterrupt_Drains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, interrupt := context.WithCancel(t.Context())
		time.AfterFunc(510*time.Millisecond, interrupt)
		start := time.Now()
		output := runFlow(t, ctx)
		if took := time.Since(start); took != 520*time.Millisecond {
			t.Errorf("the flow ended after %v; want 520 ms, when the handler at work had finished", took)
		}
		for _, want := range []string{
			"\n  0.52s  orders    order-1003       0        1  handled             sends charge-1003\n",
			"\n  order-1003   orders           1               -         -  handled\n\n  7 messages, 8 attempts, 0.5 s\n",
			"\nInterrupted. The messages in the queues\n\n  orders    0 ready, 5 delayed\n  payments  1 ready, 0 delayed\n",
		} {
			if !strings.Contains(output, want) {
				t.Errorf("the output lacks %q", want)
			}
		}
		if t.Failed() {
			t.Log(output)
		}
	})
}

func TestInterrupt_BeforeTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, interrupt := context.WithCancel(t.Context())
		interrupt()
		if output := runFlow(t, ctx); !strings.Contains(output, "\n  0 messages, 0 attempts, 0.0 s\n") {
			t.Errorf("something was attempted:\n%s", output)
		}
	})
}

func TestColour(t *testing.T) {
	device, err := os.Open(os.DevNull) // a character device, as a terminal is
	if err != nil {
		t.Fatal(err)
	}
	defer device.Close()
	file, err := os.Create(t.TempDir() + "/output")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	t.Setenv("NO_COLOR", "")
	if !isColourTerminal(device) || isColourTerminal(file) {
		t.Error("want colour on a character device, none in a file")
	}
	t.Setenv("NO_COLOR", "1")
	if isColourTerminal(device) {
		t.Error("want no colour where NO_COLOR is set")
	}

	coloured, plain := &account{colour: true}, &account{}
	if got, want := coloured.paint(red, "x"), "\x1b[31mx\x1b[0m"; got != want {
		t.Errorf("in colour: %q, want %q", got, want)
	}
	if got := plain.paint(red, "x"); got != "x" {
		t.Errorf("without colour: %q", got)
	}
}

var jsonError = regexp.MustCompile(`from application/json: .*`)

// runFlow returns the output, without the words of encoding/json, which are not
// ours.
func runFlow(t *testing.T, ctx context.Context) string {
	t.Helper()
	var out bytes.Buffer
	if err := run(ctx, &out, options{logger: slog.New(slog.DiscardHandler)}); err != nil {
		t.Fatal(err)
	}
	return jsonError.ReplaceAllString(out.String(), "from application/json: ...")
}

// linesAbout returns the lines that a message's attempts are told in.
func linesAbout(live, id string) string {
	about := "\n"
	for line := range strings.Lines(live) {
		if fields := strings.Fields(line); len(fields) > 2 && fields[2] == id {
			about += line
		}
	}
	return about
}
