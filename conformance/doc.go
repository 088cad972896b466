// Package conformance is the suite that every adapter passes: it checks the contract of
// core.Transport (rules C1-C24), and the behaviour that the engine offers to applications
// on top of it (rules R1-R64), with the adapter and a real broker.
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
// Each case is a subtest, so that go test -run 'TestConformance/C13' runs the cases of
// one rule. A failure names the broken rule, the expected and the observed behaviour
// instead, and where the page about [rules] explains the rule. The adapter has to refuse
// everything that it does not claim; cases that could not be run are listed with the
// reason at the end of the run.
//
// The names of subtests end with tags, by which -run and -skip choose cases:
//
//	@broker     stops the broker, or cuts the network to it
//	@processes  starts processes of endpoints and kills them
//	@locks      waits until locks have ended
//	@slow       takes seconds for another reason
//
// So go test -run 'TestConformance$/@broker' runs the cases that stop the broker, and go
// test -skip '/@broker' all others. go test -short, meant for use before each commit,
// leaves out the cases with a tag, and lists them as not run.
//
// Cases in which the broker or a process dies need help: [Harness].Broker stops and
// starts the broker, and [Main] lets the suite start the test binary again as a process
// that the suite kills.
//
// The package depends on the standard library and core alone.
//
// [rules]: https://github.com/reprise-go/reprise/blob/main/docs/adapter-rules.md
package conformance
