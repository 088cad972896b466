package conformance

import (
	"testing"

	"github.com/reprise-go/reprise/conformance/internal/suite"
	"github.com/reprise-go/reprise/core"
)

// HarnessVariable is the environment variable of a child process with the Name of the
// Harness that started it, for a package that tests several harnesses with one open
// function.
const HarnessVariable = "REPRISE_CONFORMANCE_HARNESS"

// Run checks an adapter. Each case is a parallel subtest, named by its rule and title;
// below it there is a subtest for each transaction mode. Cases that stop the broker run
// alone, before the others, unless Harness.Separate gives each its own broker. A case
// that fails fails the test, unless it is a declared deviation; a declared deviation that
// does not fail makes the test fail too.
//
// After all cases, Run prints one line: how many cases ran, how they ended, and how many
// were left out for which reason. With -v or after a failed case it also lists the names.
// It writes the report as <name>.json into the directory named by the environment
// variable REPRISE_CONFORMANCE_REPORT, if it is set. With -run, -short, or Harness.Rules
// without SameAs, which leave cases out, there is no report.
//
// go test -short leaves out the cases that stop the broker, kill processes, wait for
// locks to end, or take seconds for another reason. It runs each other case in one of its
// modes, always the same.
//
// On a broker, a run spends most of its time waiting, so go test -parallel 16 shortens it
// much.
func Run(t *testing.T, h Harness) {
	t.Helper()
	suite.Run(t, h.forSuite(), func(r *suite.Report) error { return reportOf(r).save() })
}

// Main runs the tests of a package and lets the suite start its test binary
// again, as a process that it can kill. It is called by TestMain:
//
//	func TestMain(m *testing.M) {
//		if os.Getenv("BROKER_URL") == "" { // in a child process it is set
//			stop := startBroker()
//			defer stop()
//		}
//		conformance.Main(m, func() (core.Transport, error) {
//			return mybroker.Open(mybroker.Config{URL: os.Getenv("BROKER_URL")})
//		})
//	}
//
// open returns a transport like those of Harness.Open, connected to the same broker. It
// is called only in the child process, which shares nothing with its parent but the
// environment: settings that open needs, such as an address, have to be set there
// (os.Setenv) before Run begins. HarnessVariable tells several harnesses apart.
//
// In a child process Main does not return. It runs no test and parses no flag, does the
// job given by the suite, and exits when the suite kills or ends it. Otherwise Main
// returns after the tests have run, and the end of TestMain ends the process with their
// result; os.Exit is not needed.
//
// Main sets time.Local to a zone that no machine has, and to another one in child
// processes: otherwise an adapter that stores or compares local times would pass on
// machines where that is UTC, as on most servers, or where all instances have the same
// zone.
//
// Without the flag -parallel, sixteen tests run at a time, also on machines with fewer
// cores: cases mostly wait. Main calls before, but not in a child process, when the flags
// are parsed and before the tests run: they may set flags, such as a lower -parallel for a
// broker with few connections.
func Main(m *testing.M, open func() (core.Transport, error), before ...func()) {
	suite.Main(m, open, before...)
}
