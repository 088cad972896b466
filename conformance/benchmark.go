package conformance

import (
	"testing"

	"github.com/reprise-go/reprise/conformance/internal/suite"
)

// Benchmark measures an adapter, in the same way on every broker. Each measurement is a
// sub-benchmark that reports messages per second, as msgs/s, or a latency. Bodies have 1
// KiB, and every measurement has its own queue.
//
//	Send/one                  one goroutine, one message a call; an operation is
//	                          a message, here and wherever it is not said
//	Send/batch-100            100 messages a call, which is the operation
//	Send/concurrent           one message a call from each of 16 goroutines
//	Receive/<mode>            one Receive and one Complete for each message
//	Receive-batches/<mode>    Receive of up to 100, then Complete of each, from 16
//	                          goroutines at the same time
//	Endpoint/<mode>           an endpoint of default concurrency whose handler
//	                          does nothing, while one goroutine sends batches of
//	                          100: from the first Send to the last settlement
//	Failing-once/<mode>       the same, but each message fails at its first
//	                          attempt and is retried at once; not in None
//	Latency/<mode>            from before a Send to the handler of an endpoint
//	                          that has nothing else to do, as p50-µs and p99-µs
//
// Messages for the Receive measurements are sent before them, and messages of the Send
// measurements are received afterwards; neither counts as measured time. The harness
// needs no more than Open, and Queue where the transport is no core.Provisioner. Synctest
// is ignored, because the benchmark measures real time. Timeout limits how long a
// measurement may make no progress.
//
//	func BenchmarkAdapter(b *testing.B) { conformance.Benchmark(b, harness) }
func Benchmark(b *testing.B, h Harness) {
	b.Helper()
	suite.Benchmark(b, h.forSuite())
}
