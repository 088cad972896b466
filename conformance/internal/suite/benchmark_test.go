package suite

import (
	"flag"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/inmemory"
)

func BenchmarkInMemory(b *testing.B) {
	Benchmark(b, inMemory(inmemory.Config{}))
}

// inMemory is the harness that the in-memory transport would have.
func inMemory(cfg inmemory.Config) Harness {
	cfg.Broker = inmemory.NewBroker()
	return Harness{
		Name: "inmemory", Synctest: true,
		Open: func(t testing.TB) core.Transport {
			transport, err := inmemory.New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			return transport
		},
	}
}

// TestBenchmark measures a little, to see that every measurement can be made.
func TestBenchmark(t *testing.T) {
	benchtime := flag.Lookup("test.benchtime")
	before := benchtime.Value.String()
	defer func() { _ = benchtime.Value.Set(before) }()
	for name, cfg := range map[string]inmemory.Config{
		"everything": {}, "SQS": inmemory.LikeSQS(), "RabbitMQ": inmemory.LikeRabbitMQ(), "PostgreSQL": inmemory.LikePostgreSQL(),
	} {
		h, err := inMemory(cfg).complete()
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range measurements(h.Open(t).Capabilities()) {
			for _, n := range []string{"1x", "130x"} {
				if err := benchtime.Value.Set(n); err != nil {
					t.Fatal(err)
				}
				failed := true
				result := testing.Benchmark(func(b *testing.B) {
					m.run(newBench(b, h))
					failed = b.Failed()
				})
				if failed {
					t.Errorf("%s on %s fails for %s; go test -bench shows why", m.name, name, n)
				}
				if result.Extra["msgs/s"] <= 0 && result.Extra["p99-µs"] < result.Extra["p50-µs"] || len(result.Extra) == 0 {
					t.Errorf("%s on %s reports %v", m.name, name, result.Extra)
				}
			}
		}
	}
}

func TestPercentile_OfTheNearestRank(t *testing.T) {
	times := []time.Duration{time.Microsecond, 2 * time.Microsecond, 3 * time.Microsecond, 4 * time.Microsecond}
	for p, want := range map[float64]float64{1: 1, 50: 2, 51: 3, 99: 4, 100: 4} {
		if got := percentile(times, p); got != want {
			t.Errorf("percentile %v is %v, want %v", p, got, want)
		}
	}
}
