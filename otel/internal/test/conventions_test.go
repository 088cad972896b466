package otelreprise_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/reprise-go/reprise/core"
	otelreprise "github.com/reprise-go/reprise/otel"
	"github.com/reprise-go/reprise/transport/inmemory"
)

var update = flag.Bool("update", false, "rewrite testdata/emitted.golden with what is emitted")

// conventions are the facts of the pinned version.
type conventions struct {
	SchemaURL      string
	SpanRequired   []string
	SpanKinds      map[string][]string // by type of operation
	DurationBounds []float64
	Metrics        map[string]struct {
		Instrument, Unit   string
		Required, Optional []string
	}
	Attributes []string
}

func readConventions(t *testing.T) (c conventions) {
	t.Helper()
	text, err := os.ReadFile("testdata/semconv-1.43.0.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &c); err != nil {
		t.Fatal(err)
	}
	return c
}

// everything lets an endpoint do all that is told of.
func everything(b *bed) {
	b.transport = located{b.broker}
	recover := core.Recoverability{Immediate: core.Immediate{NumberOfRetries: 1}, Delayed: core.Delayed{NumberOfRetries: 1}}
	o := b.observer(otelreprise.Config{})
	ep := b.endpoint("orders", core.Config{Recoverability: recover, AuditQueue: "audit", Middleware: []core.Middleware{circuit("payments", func() string { return "open" })}}, o, func(_ context.Context, m *core.Message) error {
		switch {
		case m.Type == "event-placed":
			return errors.Join(m.Send("shipping", shipType.Of("x")), m.Publish(eventShippedEvent.Of("x")))
		case m.Headers.Get("defer") != "" && m.Deferrals == 0:
			return core.Defer(errors.New("not yet"), time.Second)
		case m.Headers.Get("bad") != "":
			return errUnreachable
		}
		return nil
	}, "order", "event-placed")
	b.run(ep)
	b.send(ep, core.SendOptions{Delay: time.Second})
	b.send(ep, core.SendOptions{Headers: map[string]string{"bad": "yes"}})
	b.send(ep, core.SendOptions{Headers: map[string]string{"defer": "yes"}})
	if err := ep.Publish(b.Context(), eventPlacedEvent.Of("x")); err != nil {
		b.Fatal(err)
	}
	if err := ep.Send(b.Context(), "nowhere", orderType.Of("x")); err == nil {
		b.Error("a send to a queue that does not exist succeeded")
	}
	o.CircuitChanged("payments", text("open"))
	b.pass(time.Hour)
}

// located is a transport with a server.
type located struct{ *inmemory.Transport }

func (located) Describe() core.TransportInfo {
	return core.TransportInfo{System: "rabbitmq", ServerAddress: "broker.example", ServerPort: 5672}
}

// TestConformsToSemconv: what is emitted under names of semconv is what the pinned version says.
func TestConformsToSemconv(t *testing.T) {
	facts := readConventions(t)
	check := func(where string, attrs []attribute.KeyValue) {
		for _, a := range attrs {
			if key := string(a.Key); !slices.Contains(facts.Attributes, key) && !strings.HasPrefix(key, "reprise.") {
				t.Errorf("%s has the attribute %s, which the conventions do not know", where, key)
			}
		}
	}
	bubble(t, func(b *bed) {
		everything(b)
		for _, span := range b.all() {
			check("span "+span.Name, span.Attributes)
			for _, event := range span.Events {
				check("event "+event.Name, event.Attributes)
			}
			equal(b, "schema of "+span.Name, span.InstrumentationScope.SchemaURL, facts.SchemaURL)
			operation := attr(span, "messaging.operation.type")
			if operation == "" {
				continue // ours
			}
			if kind := strings.ToUpper(span.SpanKind.String()); !slices.Contains(facts.SpanKinds[operation], kind) {
				b.Errorf("span %q of operation type %q has the kind %s, want one of %v", span.Name, operation, kind, facts.SpanKinds[operation])
			}
			for _, key := range facts.SpanRequired {
				if attr(span, key) == "" {
					b.Errorf("span %q lacks %s", span.Name, key)
				}
			}
			name := attr(span, "messaging.operation.name")
			if destination := attr(span, "messaging.destination.name"); destination != "" {
				name += " " + destination
			}
			equal(b, "name", span.Name, name)
		}
		metrics := b.collect()
		for name, want := range facts.Metrics {
			m, ok := metrics[name]
			if !ok {
				b.Errorf("there is no metric %s", name)
				continue
			}
			equal(b, "unit of "+name, m.Unit, want.Unit)
			equal(b, "instrument of "+name, instrumentOf(m), want.Instrument)
			for _, set := range setsOf(m) {
				for _, a := range set.ToSlice() {
					key := string(a.Key)
					if !slices.Contains(want.Required, key) && !slices.Contains(want.Optional, key) && !strings.HasPrefix(key, "reprise.") {
						b.Errorf("%s has the attribute %s, which the conventions do not have there", name, key)
					}
				}
				for _, key := range want.Required {
					if value, ok := set.Value(attribute.Key(key)); !ok || value.AsString() == "" {
						b.Errorf("%s lacks %s in %s", name, key, shown(set))
					}
				}
			}
			if h, ok := m.Data.(metricdata.Histogram[float64]); ok && !slices.Equal(h.DataPoints[0].Bounds, facts.DurationBounds) {
				b.Errorf("%s has the bounds %v, want %v", name, h.DataPoints[0].Bounds, facts.DurationBounds)
			}
		}
	})
}

func instrumentOf(m metricdata.Metrics) string {
	switch data := m.Data.(type) {
	case metricdata.Sum[int64]:
		if data.IsMonotonic {
			return "counter"
		}
		return "updowncounter"
	case metricdata.Gauge[int64]:
		return "gauge"
	default:
		return "histogram"
	}
}

func setsOf(m metricdata.Metrics) (sets []attribute.Set) {
	switch data := m.Data.(type) {
	case metricdata.Sum[int64]:
		for _, p := range data.DataPoints {
			sets = append(sets, p.Attributes)
		}
	case metricdata.Gauge[int64]:
		for _, p := range data.DataPoints {
			sets = append(sets, p.Attributes)
		}
	case metricdata.Histogram[float64]:
		for _, p := range data.DataPoints {
			sets = append(sets, p.Attributes)
		}
	case metricdata.Histogram[int64]:
		for _, p := range data.DataPoints {
			sets = append(sets, p.Attributes)
		}
	}
	return sets
}

// TestEmitted_IsAsRecorded: names, kinds, units and attributes do not change unnoticed. Run it with
// -update after a change that is meant, and tell of the change in CHANGELOG.md.
func TestEmitted_IsAsRecorded(t *testing.T) {
	lines := map[string]map[string]bool{}
	note := func(line string, attrs []attribute.KeyValue) {
		if lines[line] == nil {
			lines[line] = map[string]bool{}
		}
		for _, a := range attrs {
			lines[line][string(a.Key)] = true
		}
	}
	bubble(t, func(b *bed) {
		everything(b)
		for _, span := range b.all() {
			line := fmt.Sprintf("span %s %s", span.Name, span.SpanKind)
			note(line, span.Attributes)
			for _, event := range span.Events {
				note(line+" event "+event.Name, event.Attributes)
			}
			for _, link := range span.Links {
				note(line+" link", link.Attributes)
			}
		}
		for name, m := range b.collect() {
			for _, set := range setsOf(m) {
				note(fmt.Sprintf("metric %s %s %s", name, instrumentOf(m), m.Unit), set.ToSlice())
			}
		}
	})
	var text strings.Builder
	for _, line := range slices.Sorted(maps.Keys(lines)) {
		fmt.Fprintln(&text, line)
		for _, key := range slices.Sorted(maps.Keys(lines[line])) {
			fmt.Fprintln(&text, "\t"+key)
		}
	}
	const golden = "testdata/emitted.golden"
	if *update {
		if err := os.WriteFile(golden, []byte(text.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if text.String() != string(want) {
		t.Errorf("what is emitted differs from %s; it is:\n%s", golden, text.String())
	}
}

// TestNoSDK: programs that import the package need no SDK.
func TestNoSDK(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "github.com/reprise-go/reprise/otel").Output()
	if err != nil {
		t.Fatal(err)
	}
	for path := range strings.Lines(string(out)) {
		if strings.Contains(path, "go.opentelemetry.io/otel/sdk") || strings.Contains(path, "/exporters/") {
			t.Errorf("the package depends on %s", path)
		}
	}
	if !strings.Contains(string(out), "go.opentelemetry.io/otel/trace\n") {
		t.Errorf("the list of packages is not whole: %s", out)
	}
}

// TestNoSecrets: of the server there are host and port, as the transport describes it.
func TestNoSecrets(t *testing.T) {
	bubble(t, func(b *bed) {
		everything(b)
		for _, span := range b.all() {
			if server := attr(span, "server.address"); attr(span, "messaging.system") != "" && (server != "broker.example" || attr(span, "server.port") != "5672") {
				b.Errorf("span %q names the server %q", span.Name, server)
			}
		}
		for name, m := range b.collect() {
			for _, set := range setsOf(m) {
				if strings.HasPrefix(name, "messaging.") && !strings.Contains(shown(set), "server.address=broker.example server.port=5672") {
					b.Errorf("%s has no server in %s", name, shown(set))
				}
			}
		}
	})
}

// TestSampler_SeesTheAttributes: those by which a sampler may decide are there when a span starts.
func TestSampler_SeesTheAttributes(t *testing.T) {
	bubble(t, func(b *bed) {
		var seen []string
		sampler := samplerFunc(func(p sdktrace.SamplingParameters) {
			seen = append(seen, p.Name+" "+valueOf(p.Attributes, "messaging.operation.type")+" "+valueOf(p.Attributes, "messaging.destination.name"))
		})
		tracers := sdktrace.NewTracerProvider(sdktrace.WithSampler(sampler))
		b.orders(core.Config{}, b.observer(otelreprise.Config{TracerProvider: tracers}), func(_ context.Context, m *core.Message) error { return m.Send("shipping", shipType.Of("x")) })
		b.put(nil, "m1")
		equal(b, "seen", fmt.Sprint(seen), "[process orders process orders send shipping send shipping]")
	})
}

type samplerFunc func(p sdktrace.SamplingParameters)

func (f samplerFunc) ShouldSample(p sdktrace.SamplingParameters) sdktrace.SamplingResult {
	f(p)
	return sdktrace.SamplingResult{Decision: sdktrace.Drop}
}

func (samplerFunc) Description() string { return "notes" }

// TestDocs_NameEverything: what is emitted is in docs/observability.md.
func TestDocs_NameEverything(t *testing.T) {
	page, err := os.ReadFile("../../../docs/observability.md")
	if err != nil {
		t.Fatal(err)
	}
	golden, err := os.ReadFile("testdata/emitted.golden")
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for line := range strings.Lines(string(golden)) {
		name := strings.TrimSpace(line)
		if metric, ok := strings.CutPrefix(name, "metric "); ok {
			name, _, _ = strings.Cut(metric, " ")
		} else if strings.HasPrefix(name, "span ") {
			continue
		}
		short := "`" + strings.TrimPrefix(name, "reprise.endpoint") + "`" // of a list of names
		if checked++; !strings.Contains(string(page), "`"+name+"`") && !strings.Contains(string(page), short) {
			t.Errorf("docs/observability.md does not name %s", name)
		}
	}
	if checked < 100 {
		t.Errorf("%d names were looked for; the golden file has more", checked)
	}
}
