package conformance

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/reprise-go/reprise/conformance/internal/suite"
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

func TestReport_IsWrittenAndRead(t *testing.T) {
	dir := t.TempDir()
	dir = filepath.Join(dir, "reports") // which is made
	t.Setenv(reportVariable, dir)
	r := small(
		Result{Case: "C1 a", Rule: "C1", Mode: core.TransactionNone, Outcome: Passed, Notes: []string{"a note"}, Measures: map[string]float64{"attempts": 4}},
		Result{Case: "C1 a", Rule: "C1", Mode: core.TransactionReceiveOnly, Outcome: Failed, Failures: []Failure{{"C1", "x", "y", "f.go:1", 3}}},
	)
	if err := r.save(); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "small%2Fone.json") // the name cannot lead out of the directory
	if text, err := os.ReadFile(file); err != nil || !strings.Contains(string(text), `"mode": "ReceiveOnly"`) || strings.Count(string(text), `"Transactions"`) != 1 {
		t.Errorf("%v in\n%s", err, text)
	}
	got, err := ReadReport(file)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got.Results, r.Results) || got.Seed != 7 || !reflect.DeepEqual(got.Capabilities, r.Capabilities) {
		t.Errorf("read %+v, want %+v", got, r)
	}
}

func TestReport_IsNotWritten(t *testing.T) {
	dir := t.TempDir()
	t.Run("without a name", func(t *testing.T) {
		t.Setenv(reportVariable, dir)
		r := small()
		r.Adapter = ""
		if err := r.save(); err != nil {
			t.Error(err)
		}
	})
	t.Run("without a directory", func(t *testing.T) {
		t.Setenv(reportVariable, "")
		if err := small().save(); err != nil {
			t.Error(err)
		}
	})
	t.Run("where there is a file", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		t.Setenv(reportVariable, filepath.Join(file, "reports"))
		if err := small().save(); err == nil || !strings.Contains(err.Error(), reportVariable) {
			t.Errorf("got %v, want an error that names the variable", err)
		}
	})
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("written: %v, %v", left, err)
	}
}

func TestReadReport_RefusesOtherFiles(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x.json")
	for name, text := range map[string]string{"no JSON": "hello", "other JSON": `{"adapter":"x"}`, "an empty object": "{}"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadReport(file); err == nil || !strings.Contains(err.Error(), "is no report") {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if _, err := ReadReport(file + ".missing"); err == nil {
		t.Error("a missing file was read")
	}
}

func TestMarkdown_LinesAndColumns(t *testing.T) {
	var b bytes.Buffer
	err := small(
		Result{Case: "C1 in any mode", Outcome: Passed},
		Result{Case: "C7 in both", Mode: core.TransactionNone, Outcome: Passed},
		Result{Case: "C7 in both", Mode: core.TransactionReceiveOnly, Outcome: Deviates, Reason: "it forgets"},
		Result{Case: "C8 in one", Mode: core.TransactionReceiveOnly, Outcome: Failed},
		Result{Case: "C15 outage", Outcome: NotRun, Reason: "Harness.Broker is nil"},
	).WriteMarkdown(&b)
	if err != nil {
		t.Fatal(err)
	}
	const want = `| case | None | ReceiveOnly |
|---|---|---|
| C1 in any mode | passed | passed |
| C7 in both | passed | deviates |
| C8 in one |  | failed |
| C15 outage | not run | not run |

- C7 in both, deviates: it forgets
- C15 outage, not run: Harness.Broker is nil
`
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
}

func TestReport_HasEverythingOfTheSuite(t *testing.T) {
	var f filler
	var s suite.Report
	f.fill("Report", reflect.ValueOf(&s).Elem())
	f.compare(t, "Report", reflect.ValueOf(&s), reflect.ValueOf(reportOf(&s)))
}

// The suite declares the constants too.
func TestConstants_AreThoseOfTheSuite(t *testing.T) {
	for public, internal := range map[any]any{
		Passed: Outcome(suite.Passed), Failed: Outcome(suite.Failed), Deviates: Outcome(suite.Deviates), NotRun: Outcome(suite.NotRun),
		HarnessVariable: suite.HarnessVariable,
	} {
		if public != internal {
			t.Errorf("%q is %q in the suite", public, internal)
		}
	}
}

func TestFailure_StringIsTheSuites(t *testing.T) {
	f := Failure{Rule: "C1", Expected: "x", Observed: "y", At: "suite/f.go:1", More: 3}
	const start, end = "C1: ", "observed: y\n              (and 3 times more)\n    guide:    https://github.com/reprise-go/reprise/blob/main/docs/adapter-rules.md#c1\n    at:       suite/f.go:1"
	if text := f.String(); !strings.HasPrefix(text, start) || !strings.HasSuffix(text, end) {
		t.Errorf("got\n%s", text)
	}
}

// A run of all rules, or of those in which it is not the same as another one, has a report.
func TestRun_WritesTheReport(t *testing.T) {
	dir := t.TempDir()
	t.Setenv(reportVariable, dir)
	broker := inmemory.NewBroker()
	h := Harness{Name: "small", Synctest: true, Rules: []string{"C23"}, Open: func(t testing.TB) core.Transport {
		transport, err := inmemory.New(inmemory.Config{Broker: broker})
		if err != nil {
			t.Fatal(err)
		}
		return transport
	}}
	t.Run("some rules", func(t *testing.T) { Run(t, h) })
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Fatalf("after a run of some rules there are %v, %v", left, err)
	}
	h.SameAs = "large"
	t.Run("the same as another", func(t *testing.T) { Run(t, h) })
	r, err := ReadReport(filepath.Join(dir, "small.json"))
	if testing.Short() {
		if err == nil {
			t.Error("a short run, which leaves cases out, has a report")
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	if r.Adapter != "small" || r.Seed == 0 || !r.Capabilities.DelayedDelivery || r.Count(Passed) == 0 || r.Count(NotRun) == 0 || r.Count(Failed) > 0 {
		t.Errorf("got %d passed and %d not run of %s", r.Count(Passed), r.Count(NotRun), r.Adapter)
	}
}
