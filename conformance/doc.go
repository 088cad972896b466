// Package conformance is the suite that every adapter passes: it checks the
// contract of core.Transport (rules C1-C22) and what the engine makes of it for
// applications (rules R1-R53), on the adapter and a real broker.
//
// An adapter author writes one test:
//
//	func TestConformance(t *testing.T) {
//		conformance.Run(t, conformance.Harness{
//			Name: "filetransport",
//			Open: func(t testing.TB) core.Transport { ... },
//		})
//	}
//
// Each case is a subtest, so that go test -run 'TestConformance/C13' runs those
// of one rule. A failure says which rule it is about, what was expected, what
// was seen instead, and where docs/adapter-rules.md explains it. What the
// adapter does not claim must be refused; what could not be tried is listed with
// the reason at the end of the run. [Check] does the same without failing a test
// and returns the [Report].
//
// The names of subtests end with tags, by which -run and -skip choose cases:
//
//	@broker     stops the broker, or cuts the network to it
//	@processes  starts processes of endpoints and kills them
//	@locks      waits until locks have ended
//	@slow       takes seconds for another reason
//
// So go test -run 'TestConformance$/@broker' runs the cases that stop the broker, and
// go test -skip '/@broker' all others. go test -short leaves out those with a tag: it
// is what a developer runs before each commit. They are listed as not run.
//
// Cases in which the broker or a process dies need help: [Harness].Broker stops
// and starts the broker, [Main] lets the suite start the test binary again as a
// process that it kills.
//
// The package depends on the standard library and core alone.
package conformance
