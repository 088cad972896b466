package conformance_test

import (
	"log"
	"os"
	"testing"

	"github.com/reprise-go/reprise/conformance"
	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// Run belongs into a test of the adapter. The transport of this example lives in
// the process and waits for nothing but timers, so it runs in bubbles; one with a
// real broker does not.
func ExampleRun() {
	test := func(t *testing.T) { // func TestConformance(t *testing.T)
		broker := inmemory.NewBroker()
		conformance.Run(t, conformance.Harness{
			Name: "mytransport",
			Open: func(t testing.TB) core.Transport {
				transport, err := inmemory.New(inmemory.Config{Broker: broker})
				if err != nil {
					t.Fatal(err)
				}
				return transport
			},
			Synctest: true,
		})
	}
	_ = test // go test calls it
}

// The report of a run, as a table for the README of an adapter.
func ExampleReadReport() {
	report, err := conformance.ReadReport("reports/mytransport.json")
	if err != nil {
		log.Fatal(err)
	}
	if err := report.WriteMarkdown(os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// Main lets the suite start the test binary again as a process that it kills.
// What the child needs to know it finds in the environment.
func ExampleMain() {
	main := func(m *testing.M) { // func TestMain(m *testing.M)
		if os.Getenv("MYBROKER_URL") == "" {
			log.Fatal("set MYBROKER_URL to a broker for the tests")
		}
		conformance.Main(m, func() (core.Transport, error) {
			return openMyTransport(os.Getenv("MYBROKER_URL"))
		})
	}
	_ = main
}

// Benchmark belongs into a benchmark of the adapter; go test -bench Adapter
// runs it.
func ExampleBenchmark() {
	benchmark := func(b *testing.B) { // func BenchmarkAdapter(b *testing.B)
		conformance.Benchmark(b, conformance.Harness{
			Open: func(t testing.TB) core.Transport {
				transport, err := openMyTransport(os.Getenv("MYBROKER_URL"))
				if err != nil {
					t.Fatal(err)
				}
				return transport
			},
		})
	}
	_ = benchmark
}

// openMyTransport stands for the Open of an adapter.
func openMyTransport(string) (core.Transport, error) { return inmemory.Open(), nil }
