package main

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/reprise-go/reprise/conformance"
	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/inmemory"
)

const document = `Before.

<!-- table: abilities -->
old
<!-- end -->
<!-- table: limits -->
<!-- end -->
<!-- table: deviations -->
<!-- end -->
<!-- table: not-run -->
<!-- end -->

After.
`

// set writes reports and a document into a directory.
func set(t *testing.T, text string, reports ...*conformance.Report) (dir, doc string) {
	t.Helper()
	dir = t.TempDir()
	for _, r := range reports {
		encoded, err := json.Marshal(asWritten(r))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, r.Adapter+".json"), encoded, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	doc = filepath.Join(dir, "doc.md")
	if err := os.WriteFile(doc, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir, doc
}

// asWritten returns what conformance.Run writes of a report, with the names of transaction modes.
func asWritten(r *conformance.Report) any {
	type capabilities struct {
		Transactions []string
		core.Capabilities
	}
	type result struct {
		conformance.Result
		Mode string `json:"mode"`
	}
	written := struct {
		Adapter      string       `json:"adapter"`
		Capabilities capabilities `json:"capabilities"`
		Results      []result     `json:"results"`
	}{Adapter: r.Adapter, Capabilities: capabilities{Capabilities: r.Capabilities}}
	for _, mode := range r.Capabilities.Transactions {
		written.Capabilities.Transactions = append(written.Capabilities.Transactions, mode.String())
	}
	for _, one := range r.Results {
		written.Results = append(written.Results, result{one, one.Mode.String()})
	}
	return written
}

func report(adapter string, outcomes ...conformance.Outcome) *conformance.Report {
	r := &conformance.Report{Adapter: adapter, Capabilities: core.Capabilities{
		Transactions: []core.TransactionMode{core.TransactionNone, core.TransactionReceiveOnly},
		Abilities:    core.Abilities{DelayedDelivery: true},
		Limits: core.Limits{
			MaxDelay:          15 * time.Minute,
			DelayPrecision:    time.Second,
			MaxMessageBytes:   256 << 10,
			MaxHeaderKeyBytes: 255,
		},
	}}
	for i, o := range outcomes {
		r.Results = append(r.Results, conformance.Result{Case: strings.Repeat("C1 case ", i+1), Rule: "C1", Outcome: o, Reason: "of a reason"})
	}
	return r
}

func lackingBroker(r *conformance.Report) *conformance.Report {
	r.Results = append(r.Results, conformance.Result{Case: "C15 outage", Outcome: conformance.NotRun, Reason: "Harness.Broker is nil"})
	return r
}

func TestTables_AreWrittenAndThenAgree(t *testing.T) {
	dir, doc := set(t, document, lackingBroker(report("a", conformance.Passed, conformance.Deviates, conformance.NotRun)), report("inmemory", conformance.Passed))
	if err := run(dir, doc, false, nil); err == nil || !strings.Contains(err.Error(), "make report") {
		t.Errorf("a stale document is %v; want an error that says how to mend it", err)
	} else if !strings.Contains(err.Error(), "\n- old\n") || !strings.Contains(err.Error(), "\n+ | longest delay | 15m | 15m |\n") {
		t.Errorf("a stale document is %v; want the lines that differ", err)
	}
	if err := run(dir, doc, true, nil); err != nil {
		t.Fatal(err)
	}
	if err := run(dir, doc, false, nil); err != nil {
		t.Errorf("what was just written differs: %v", err)
	}
	text, err := os.ReadFile(doc)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"Before.\n\n<!-- table: abilities -->\n| | inmemory | a |\n", // the embedded one first
		"| transaction modes | None, ReceiveOnly |",
		"| longest delay | 15m | 15m |", "| largest message, headers included | 256 KiB |", "| a header's key | 255 bytes |",
		"| cases in which it deviates | none | C1 case C1 case : of a reason |\n",
		"- **inmemory**: everything that applies to its capabilities was run\n- **a**: Harness.Broker is nil\n", "\nAfter.\n",
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the document lacks %q:\n%s", want, text)
		}
	}
	if strings.Contains(string(text), "old") {
		t.Error("the old table is still there")
	}
}

func TestTables_HaveEveryCapability(t *testing.T) {
	r := report("a")
	r.Capabilities.Transactions = append(r.Capabilities.Transactions, core.TransactionSendsAtomicWithReceive)
	caps := reflect.ValueOf(&r.Capabilities).Elem()
	set := func(field reflect.StructField, on bool) {
		switch value := caps.FieldByIndex(field.Index); value.Interface().(type) {
		case bool:
			value.SetBool(on)
		case time.Duration, int:
			value.SetInt(map[bool]int64{false: 7, true: int64(5 * time.Hour)}[on])
		}
	}
	fields := slices.DeleteFunc(reflect.VisibleFields(caps.Type()), func(f reflect.StructField) bool { return f.Anonymous || f.Name == "Transactions" })
	for _, field := range fields {
		set(field, true)
	}
	all := []*conformance.Report{r}
	before := abilities(all) + limits(all)
	for _, field := range fields {
		set(field, false)
		if abilities(all)+limits(all) == before {
			t.Errorf("no row of the tables shows Capabilities.%s", field.Name)
		}
		set(field, true)
	}
}

func TestTables_Refuse(t *testing.T) {
	good := report("a", conformance.Passed)
	for name, c := range map[string]struct {
		text    string
		reports []*conformance.Report
		want    string
	}{
		"no report":           {document, nil, "no report"},
		"a failed case":       {document, []*conformance.Report{report("a", conformance.Failed)}, "1 cases failed"},
		"a report of nothing": {document, []*conformance.Report{report("a")}, "is no report"},
		"no place":            {strings.ReplaceAll(document, "table: limits", "table: gone"), []*conformance.Report{good}, "limits"},
		"no end":              {strings.ReplaceAll(document, "<!-- end -->", ""), []*conformance.Report{good}, "<!-- end -->"},
	} {
		t.Run(name, func(t *testing.T) {
			dir, doc := set(t, c.text, c.reports...)
			err := run(dir, doc, true, nil)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error with %q", err, c.want)
			}
			if left, _ := os.ReadFile(doc); string(left) != c.text {
				t.Error("the document was changed all the same")
			}
		})
	}
}

func TestProfiles_LackCapabilities(t *testing.T) {
	durable := report("durable", conformance.Passed)
	durable.Capabilities.Durable, durable.Capabilities.SubscriptionDelay = true, time.Second // which memory is not, and has not
	dir, doc := set(t, document, durable, report("plain", conformance.Passed))
	like := func(name, adapter string, change func(*core.Capabilities)) profile {
		return profile{name, adapter, func() inmemory.Config {
			caps := report(adapter).Capabilities
			change(&caps)
			return inmemory.Config{Capabilities: &caps}
		}}
	}
	same := func(*core.Capabilities) {}
	if err := run(dir, doc, true, []profile{like("LikeDurable", "durable", same), like("LikePlain", "plain", same)}); err != nil {
		t.Errorf("profiles that agree are %v", err)
	}
	err := run(dir, doc, false, []profile{
		like("LikeGone", "gone", same),
		like("LikeDurable", "durable", func(c *core.Capabilities) { c.MaxDelay, c.Transactions = time.Hour, c.Transactions[:1] }),
		like("LikePlain", "plain", func(c *core.Capabilities) { c.Prefetch = true }),
	})
	if err == nil {
		t.Fatal("profiles that differ are no error")
	}
	want := `there is no report of gone, which inmemory.LikeGone is compared with
inmemory.LikeDurable has Transactions [None], but of durable it is [None ReceiveOnly]
inmemory.LikeDurable has MaxDelay 1h0m0s, but of durable it is 15m0s
inmemory.LikePlain has Prefetch true, but of plain it is false`
	if err.Error() != want {
		t.Errorf("got\n%v\nwant\n%v", err, want)
	}
}

func TestDuration(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "none", 10 * time.Millisecond: "10ms", time.Second: "1s", 90 * time.Second: "1m30s", 15 * time.Minute: "15m", time.Hour: "1h", 30 * time.Hour: "30h",
	} {
		if got := duration(d, "none"); got != want {
			t.Errorf("duration(%v) is %q, want %q", d, got, want)
		}
	}
}

func TestDuration_LongestDelay(t *testing.T) {
	const hour = time.Hour
	for d, want := range map[time.Duration]string{
		0: "no limit", 15 * time.Minute: "15m", 30 * hour: "30h", 48*hour - time.Second: "47h59m59s",
		48 * hour: "2 days", 100 * hour: "4.1 days", 7 * 24 * hour: "7 days", 365 * 24 * hour: "365 days",
		2*year - 1: "730.4 days", 2 * year: "2 years", (1<<28 - 1) * time.Second: "8.5 years", math.MaxInt64: "292.2 years",
	} {
		if got := longest(d); got != want {
			t.Errorf("longest(%v) is %q, want %q", d, got, want)
		}
	}
}

// An example of an adapter is none to choose, so that the tables leave it out.
func TestReadReports_WithoutExamples(t *testing.T) {
	dir, _ := set(t, document, report("filetransport", conformance.Failed), report("plain", conformance.Passed))
	all, err := readReports(dir)
	if err != nil || len(all) != 1 || all[0].Adapter != "plain" {
		t.Errorf("readReports returns %d reports, %v, want that of plain alone", len(all), err)
	}
}
