package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/reprise-go/reprise/internal/testserver/postgres"
)

// server is for all tests; each has a separate database.
var server *postgres.Server

func TestMain(m *testing.M) {
	var err error
	if server, err = postgres.Start(postgres.Config{}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	if err := server.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// patience is never waited for.
const patience = 2 * time.Minute

// start runs the service until the test's end, and returns the address of its page.
func start(t *testing.T, o options) (address string) {
	t.Helper()
	ready := make(chan string, 1)
	o.listen, o.every, o.delay, o.log = "127.0.0.1:0", 5*time.Millisecond, 50*time.Millisecond, io.Discard
	o.ready = func(address string) { ready <- address }
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, o) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	select {
	case address = <-ready:
		return address
	case err := <-ended:
		ended <- nil
		t.Fatalf("the service ended with %v", err)
	case <-time.After(patience):
		t.Fatal("the service is not ready")
	}
	return ""
}

// scrape gets the page until it has what is wanted.
func scrape(t *testing.T, address string, wanted ...string) string {
	t.Helper()
	page := ""
	await(t, "a page with "+strings.Join(wanted, ", "), func() bool {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/metrics", nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		if err != nil || response.StatusCode != http.StatusOK {
			t.Fatal(response.Status, err)
		}
		page = string(body)
		return !slices.ContainsFunc(wanted, func(text string) bool { return !strings.Contains(page, text) })
	})
	return page
}

func await(t *testing.T, subject string, isSo func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !isSo(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("there was never %s", subject)
		}
	}
}

// TestMetrics: what docs/observability.md names for Prometheus is on the page, and nothing else of ours.
func TestMetrics(t *testing.T) {
	page := scrape(t, start(t, options{}), `reprise_action="error"`, "reprise_failed_age_seconds_bucket")
	var names []string
	for _, match := range regexp.MustCompile(`(?m)^# TYPE (\S+) `).FindAllStringSubmatch(page, -1) {
		if name := match[1]; !strings.HasPrefix(name, "nservicebus_") && name != "target_info" {
			names = append(names, name)
		}
	}
	docs, err := os.ReadFile("../../docs/observability.md")
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(docs), "<!-- prometheus names -->\n```text\n")
	list, _, _ = strings.Cut(list, "```")
	if want := strings.TrimSpace(list); strings.Join(names, "\n") != want {
		t.Errorf("the page has\n%s\nand docs/observability.md\n%s", strings.Join(names, "\n"), want)
	}
}

// dashboard is what a test looks at of Grafana's format.
type dashboard struct {
	Title         string
	SchemaVersion int
	Templating    struct {
		List []struct{ Name, Definition string }
	}
	Panels []struct {
		ID         int
		Title      string
		Type       string
		Datasource struct{ UID string }
		Targets    []struct {
			Expr       string
			Datasource struct{ UID string }
		}
	}
}

// TestMonitoring: every metric and label of the dashboard and the alerts is on the page, and the
// expressions are valid.
func TestMonitoring(t *testing.T) {
	page := scrape(t, start(t, options{}), `reprise_action="error"`, "reprise_failed_age_seconds_bucket")
	text, err := os.ReadFile("monitoring/dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var d dashboard
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	if d.SchemaVersion < 36 || d.Title == "" || len(d.Panels) < 15 {
		t.Errorf("the dashboard %q has schema version %d and %d panels", d.Title, d.SchemaVersion, len(d.Panels))
	}
	var exprs []string
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			if target.Datasource.UID != "${datasource}" || p.Datasource.UID != "${datasource}" {
				t.Errorf("panel %q is bound to a data source", p.Title)
			}
			exprs = append(exprs, strings.NewReplacer("$__rate_interval", "1m", "$endpoint", ".*").Replace(target.Expr))
		}
		if p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("panel %q has no expression", p.Title)
		}
	}
	alerts, err := os.ReadFile("monitoring/alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	rules := "groups:\n- name: dashboard\n  rules:\n"
	for i, expr := range exprs {
		quoted, err := json.Marshal(expr) // which YAML reads
		if err != nil {
			t.Fatal(err)
		}
		rules += fmt.Sprintf("  - {record: panel_%d, expr: %s}\n", i, quoted)
	}
	file := filepath.Join(t.TempDir(), "rules.yml")
	if err := os.WriteFile(file, []byte(rules), 0o600); err != nil {
		t.Fatal(err)
	}
	promtool(t, "check", "rules", file)

	used := strings.Join(exprs, "\n") + string(alerts)
	metrics := regexp.MustCompile(`\b(?:reprise|messaging)_[a-z_]+(?:_total|_bucket|_count|_sum|_ratio|_in_flight|_concurrency|_undelivered)\b`).FindAllString(used, -1)
	if len(metrics) < 30 {
		t.Errorf("%d metrics were found in the expressions: %v", len(metrics), metrics)
	}
	for _, metric := range metrics {
		if !strings.Contains(page, "\n"+metric+"{") {
			t.Errorf("the page has no metric %s", metric)
		}
	}
	for _, label := range regexp.MustCompile(`\b(?:reprise_endpoint|reprise_message_type|reprise_action|error_type|messaging_destination_name)\b`).FindAllString(used, -1) {
		if !strings.Contains(page, label+`="`) {
			t.Errorf("no metric of the page has the label %s", label)
		}
	}
}

// TestAlerts: each fires where it should, and does not where it should not.
func TestAlerts(t *testing.T) {
	promtool(t, "check", "config", "monitoring/prometheus.yml")
	promtool(t, "test", "rules", "monitoring/alerts_test.yml")
	alerts, err := os.ReadFile("monitoring/alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	tests, err := os.ReadFile("monitoring/alerts_test.yml")
	if err != nil {
		t.Fatal(err)
	}
	for _, match := range regexp.MustCompile(`(?m)- alert: (\w+)`).FindAllStringSubmatch(string(alerts), -1) {
		if n := strings.Count(string(tests), "alertname: "+match[1]+"\n"); n != 2 {
			t.Errorf("alert %s has %d cases in alerts_test.yml, want one that fires and one that does not", match[1], n)
		}
	}
}

func promtool(t *testing.T, args ...string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "promtool", args...).CombinedOutput()
	if err != nil {
		t.Errorf("promtool %s: %v; scripts/servers installs it, in Debian's package prometheus\n%s", strings.Join(args, " "), err, out)
	}
}

// spans keeps what it is told.
type spans struct {
	mu   sync.Mutex
	list tracetest.SpanStubs
}

func (s *spans) ExportSpans(_ context.Context, spans []sdktrace.ReadOnlySpan) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = append(s.list, tracetest.SpanStubsFromReadOnlySpans(spans)...)
	return nil
}

func (*spans) Shutdown(context.Context) error { return nil }

// attempts returns the attempts at the message that was given up, in their order.
func (s *spans) attempts() (list tracetest.SpanStubs) {
	s.mu.Lock()
	defer s.mu.Unlock()
	given := ""
	for _, span := range s.list {
		if attr(span, "reprise.action") == "error" {
			given = attr(span, "messaging.message.id")
			break
		}
	}
	for _, span := range s.list {
		if given != "" && attr(span, "messaging.operation.name") == "process" && attr(span, "messaging.message.id") == given {
			list = append(list, span)
		}
	}
	return list
}

func attr(span tracetest.SpanStub, key string) string {
	for _, a := range span.Attributes {
		if string(a.Key) == key {
			return a.Value.String()
		}
	}
	return ""
}

// TestTraces_OnPostgreSQL: trace contexts and links survive the broker, delayed retries and the
// error queue, and telemetry has nothing of the database's URL but host and port.
func TestTraces_OnPostgreSQL(t *testing.T) {
	var exported spans
	address := start(t, options{
		database: server.PasswordURL(server.NewDatabase(t)),
		spans:    []sdktrace.TracerProviderOption{sdktrace.WithSyncer(&exported)},
	})
	const rounds, perRound = 3, 2
	var attempts tracetest.SpanStubs
	await(t, "a message that was given up", func() bool {
		attempts = exported.attempts()
		return len(attempts) == rounds*perRound
	})
	page := scrape(t, address, `reprise_action="error"`)
	exported.mu.Lock()
	defer exported.mu.Unlock()
	told, err := json.Marshal(exported.list)
	if err != nil {
		t.Fatal(err)
	}
	host, port, _ := strings.Cut(server.Addr(), ":")
	for name, text := range map[string]string{"the page": page, "the spans": string(told)} {
		if !strings.Contains(text, host) || !strings.Contains(text, port) {
			t.Errorf("%s have no server address", name)
		}
		for _, secret := range []string{postgres.Password, url.QueryEscape(postgres.Password), url.PathEscape(postgres.Password), postgres.User + ":", "sslmode"} {
			if strings.Contains(text, secret) {
				t.Errorf("%s have %q of the database's URL", name, secret)
			}
		}
	}
	var send tracetest.SpanStub
	for _, span := range exported.list {
		if span.SpanContext.SpanID() == attempts[0].Parent.SpanID() {
			send = span
		}
	}
	if send.Name != "send billing" || attr(send, "messaging.system") != "postgresql" || attr(send, "server.address") == "" {
		t.Errorf("the parent of the first attempt is %q with %v, want the send", send.Name, send.Attributes)
	}
	for i, attempt := range attempts {
		var creation, previous string
		for _, link := range attempt.Links {
			switch link.Attributes[0].Value.AsString() {
			case "creation":
				creation = link.SpanContext.SpanID().String()
			case "previous_attempt":
				previous = link.SpanContext.SpanID().String()
			}
		}
		if i > 0 && previous != attempts[i-1].SpanContext.SpanID().String() {
			t.Errorf("attempt %d links to %q, want the attempt before it", i+1, previous)
		}
		if first := i < perRound; first && attempt.SpanContext.TraceID() != send.SpanContext.TraceID() {
			t.Errorf("attempt %d is not in the trace of the send", i+1)
		} else if !first && (creation != send.SpanContext.SpanID().String() || attempt.Parent.IsValid()) {
			t.Errorf("attempt %d has the parent %v and links to %q; want a new trace that links to the send", i+1, attempt.Parent.SpanID(), creation)
		}
	}
}
