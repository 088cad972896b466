package suite

import (
	"fmt"
	"strings"
	"testing"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// small is a report of a transport with two modes.
func small(results ...Result) *Report {
	return &Report{
		Adapter:      "small/one",
		Seed:         7,
		Capabilities: core.Capabilities{Transactions: []core.TransactionMode{core.TransactionReceiveOnly, core.TransactionNone}},
		Results:      results,
	}
}

func TestSummary_CountsAndNamesCases(t *testing.T) {
	r := small(
		Result{Case: "C1 a", Mode: core.TransactionNone, Outcome: Passed},
		Result{Case: "C1 a", Mode: core.TransactionReceiveOnly, Outcome: Passed},
		Result{Case: "C7 b", Mode: core.TransactionNone, Outcome: Deviates, Reason: "it forgets"},
		Result{Case: "C15 c", Outcome: NotRun, Reason: "Harness.Broker is nil"},
		Result{Case: "C15 d", Outcome: NotRun, Reason: "Harness.Broker is nil"},
		Result{Case: "C22 e", Outcome: NotRun, Reason: "DeadLetter is not claimed"},
	)
	want := fmt.Sprintf("conformance: 2 of %d cases ran: 2 passed, 0 failed, 1 deviations; left out: "+
		"1 for other capabilities, 2 because Harness.Broker is nil, %d by Harness.Rules, -run, -skip or -failfast", len(cases()), len(cases())-5)
	if got := r.summary(); got != want {
		t.Errorf("the summary is\n%s\nwant\n%s", got, want)
	}
	details := r.details()
	for _, want := range []string{"\ndeviates: C7 b/None: it forgets", "\nnot run, because Harness.Broker is nil:\n\tC15 c\n\tC15 d"} {
		if !strings.Contains(details, want) {
			t.Errorf("the details lack %q:\n%s", want, details)
		}
	}
}

func TestSummary_CountsEqualFailures(t *testing.T) {
	var r Result
	for i := range 4 {
		r.fail(Failure{Rule: "C1", Expected: "a message", Observed: strings.Repeat("none ", i+1), At: "f.go:1"})
	}
	r.fail(Failure{Rule: "C1", Expected: "another", Observed: "none", At: "f.go:1"})
	if len(r.Failures) != 2 || r.Failures[0].More != 3 || r.Failures[1].More != 0 {
		t.Fatalf("got %+v, want the first with 3 more, and another", r.Failures)
	}
	if text := r.Failures[0].String(); !strings.Contains(text, "observed: none\n              (and 3 times more)\n") {
		t.Errorf("the first is printed as\n%s", text)
	}
}

func TestSummary_NamesFailuresInOrder(t *testing.T) {
	text := small(
		Result{Case: "C1 a", Outcome: Failed}, Result{Case: "C2 b", Mode: core.TransactionNone, Outcome: Failed},
		Result{Case: "C2 b", Mode: core.TransactionReceiveOnly, Outcome: Failed}, Result{Case: "C3 c", Outcome: Passed},
	).details()
	if !strings.Contains(text, "follow from earlier ones:\n\tC1 a\n\tC2 b") || strings.Contains(text, "C3 c") {
		t.Errorf("got %s", text)
	}
}

// TestFailure_Text is the text that an author reads.
func TestFailure_Text(t *testing.T) {
	h := harnessOn(inmemory.Config{}, changes{capabilities: func(c core.Capabilities) core.Capabilities {
		c.DelayPrecision = 0
		return c
	}})
	report, err := check(t, h, "C1")
	if err != nil {
		t.Fatal(err)
	}
	failures := report.failures()
	if len(failures) != 1 {
		t.Fatalf("got %d failures, want 1: %v", len(failures), failures)
	}
	text := failures[0].String()
	for _, want := range []string{
		"C1: " + rules["C1"] + "\n", "expected: ", "observed: it is 0", "docs/adapter-rules.md#c1\n", "at:       suite/c01_capabilities.go:",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the failure lacks %q:\n%s", want, text)
		}
	}
}

func TestDeviations_WrongOnesAreNamed(t *testing.T) {
	const known = "C1 the capabilities never change"
	for name, c := range map[string]struct {
		deviations map[string]string
		results    []Result
		want       string // "": none is wrong
	}{
		"one that fails":           {map[string]string{known: "why"}, []Result{{Case: known, Outcome: Deviates}}, ""},
		"one that fails somewhere": {map[string]string{known: "why"}, []Result{{Case: known, Outcome: Passed}, {Case: known, Outcome: Deviates}}, ""},
		"one that holds":           {map[string]string{known: "why"}, []Result{{Case: known, Outcome: Passed}}, "holds in every mode"},
		"one that was not run":     {map[string]string{known: "why"}, []Result{{Case: known, Outcome: NotRun}}, "was not run"},
		"one without a reason":     {map[string]string{known: " "}, []Result{{Case: known, Outcome: Deviates}}, "say why"},
		"one that does not exist":  {map[string]string{"C1 nonsense": "why"}, nil, "no such case"},
	} {
		t.Run(name, func(t *testing.T) {
			s := &suite{h: Harness{Deviations: c.deviations}, report: small(c.results...)}
			mistakes := strings.Join(s.wrongDeviations(), "\n")
			if c.want == "" && mistakes != "" || c.want != "" && !strings.Contains(mistakes, c.want) {
				t.Errorf("got %q, want %q", mistakes, c.want)
			}
		})
	}
}
