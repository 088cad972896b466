package suite

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// adapterVariable makes a process run the tests as those of an adapter do, with Main.
const adapterVariable = "REPRISE_CONFORMANCE_ADAPTER"

// TestMain lets this package's tests start processes. Its open suits one of them
// alone, so that the others must not find it.
func TestMain(m *testing.M) {
	if _, ok := os.LookupEnv(specVariable); ok {
		Main(m, func() (core.Transport, error) {
			fmt.Fprintln(os.Stderr, "opened for", os.Getenv(HarnessVariable), "in the zone", time.Local)
			return openWire(os.Getenv(wireVariable))
		})
	}
	if _, ok := os.LookupEnv(adapterVariable); ok {
		Main(m, nil)
		fmt.Println("in the zone", time.Local)
		return
	}
	m.Run()
}

// casesNeeding returns the cases with a need.
func casesNeeding(n need) []testCase {
	return slices.DeleteFunc(cases(), func(c testCase) bool { return !c.hasNeed(n) })
}

// checkCases runs some cases alone, as Check does, and those at the same time
// that can be, a few for each processor: a case whose processes wait for a processor
// would run out of time.
func checkCases(t *testing.T, h Harness, list ...testCase) *Report {
	t.Helper()
	h.seed = 1
	s, err := newSuite(t, h)
	if err != nil {
		t.Fatal(err)
	}
	var together sync.WaitGroup
	slots := make(chan struct{}, 4*runtime.GOMAXPROCS(0))
	for _, c := range list {
		if s.leavesOut(&c) {
			continue
		}
		for _, mode := range c.modes.choose(s.caps) {
			try := func() { s.report.add(s.runCase(t, &c, mode)) }
			if s.h.Synctest || c.exclusive {
				try()
			} else {
				slots <- struct{}{}
				together.Go(func() {
					defer func() { <-slots }()
					try()
				})
			}
		}
	}
	together.Wait()
	return s.report
}

// harnessOnWire returns a harness whose processes are real ones.
func harnessOnWire(t *testing.T, consumes bool) Harness {
	t.Helper()
	broker := inmemory.NewBroker()
	address := serveWire(t, broker, consumes)
	return Harness{
		Name:    "wire",
		Timeout: 10 * time.Minute, // no case needs it, but on a machine that does much else
		Open: func(t testing.TB) core.Transport {
			transport, err := inmemory.New(inmemory.Config{Broker: broker})
			if err != nil {
				t.Fatal(err)
			}
			return transport
		},
		process: func(t *caseT, spec workerSpec) process { return startChildProcess(t, spec, wireVariable+"="+address) },
	}
}

func TestProcessCases_Pass(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it starts and kills dozens of processes: not in short runs")
	}
	report := checkCases(t, harnessOnWire(t, false), casesNeeding(processes)...)
	for _, f := range report.failures() {
		t.Error(f)
	}
	if n := report.Count(NotRun); n > 0 {
		t.Errorf("%d cases were not run", n)
	}
	for _, r := range report.Results {
		t.Log(r.Case, r.Mode, r.Notes, r.Measures)
	}
}

func TestProcessCases_FindEarlyConsumption(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it starts and kills dozens of processes: not in short runs")
	}
	h := harnessOnWire(t, true)
	h.Timeout = 2 * time.Second
	noticed := map[string]bool{}
	for _, r := range checkCases(t, h, casesNeeding(processes)...).Results {
		noticed[r.Case] = noticed[r.Case] || r.Outcome == Failed
	}
	for _, c := range casesNeeding(processes) {
		if (c.modes == inReceiveOnly || c.modes == withLeases || c.modes == inAtomic) && !noticed[c.name()] {
			t.Errorf("%s does not notice that messages are consumed before they are handed out", c.name())
		}
	}
}

// runAsCase runs f as a case that starts processes.
func runAsCase(t *testing.T, f func(t *caseT)) Result {
	t.Helper()
	return checkCases(t, harnessOnWire(t, false), testCase{rule: "C7", title: "a test of processes", modes: inHighest, run: f}).Results[0]
}

func TestProcess_EndsInOrder(t *testing.T) {
	t.Parallel()
	r := runAsCase(t, func(t *caseT) {
		w := t.workerFixture(1)
		t.send(t.open(), t.command(w.queue, workType, "work"))
		p := t.startWorker(w.workerSpec)
		p.awaitEvent(isReady, t.timeout())
		p.awaitEvent(hasSettled, t.timeout())
		p.shutdown()
		if text := p.exitReport(); !strings.Contains(text, "opened for wire") {
			t.fail("the output is kept", "%s", text)
		}
		p.kill() // again
	})
	if r.Outcome != Passed {
		t.Error(r.Failures)
	}
}

// An adapter that stores local times must not work because all processes have the
// machine's zone.
func TestMain_TimeZones(t *testing.T) {
	t.Parallel()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	command := exec.Command(path, "-test.run=^$")
	command.Env = append(os.Environ(), adapterVariable+"=")
	if text, err := command.CombinedOutput(); err != nil || !strings.Contains(string(text), "in the zone conformance\n") {
		t.Errorf("the tests of an adapter: %v:\n%s", err, text)
	}
	r := runAsCase(t, func(t *caseT) {
		p := t.startWorker(t.workerFixture(1).workerSpec)
		p.awaitEvent(isReady, t.timeout())
		p.shutdown()
		if text := p.exitReport(); !strings.HasSuffix(text, "in the zone conformance child") {
			t.fail("child processes have another zone", "%s", text)
		}
	})
	if r.Outcome != Passed {
		t.Error(r.Failures)
	}
	if _, parent := time.Now().In(oddZone).Zone(); parent%3600 == 0 {
		t.Errorf("the zone of tests is %v, in which whole hours are those of UTC", oddZone)
	}
	if _, child := time.Now().In(childZone).Zone(); child%3600 == 0 {
		t.Errorf("the zone of child processes is %v, in which whole hours are those of UTC", childZone)
	}
}

func TestProcess_FailureIsShown(t *testing.T) {
	t.Parallel()
	r := runAsCase(t, func(t *caseT) {
		spec := t.workerFixture(1).workerSpec
		p := &workerProcess{process: startChildProcess(t, spec), t: t} // without an address
		p.awaitEvent(isReady, t.timeout())
	})
	if r.Outcome != Failed || !strings.Contains(r.Failures[0].Observed, wireVariable+" is not set") || !strings.Contains(r.Failures[0].Observed, "exit status 1") {
		t.Errorf("got %v", r.Failures)
	}
}

// No child is left when the parent dies: with it goes the standard input.
func TestProcess_EndsWithItsParent(t *testing.T) {
	t.Parallel()
	r := runAsCase(t, func(t *caseT) {
		p := t.startWorker(t.workerFixture(1).workerSpec)
		p.awaitEvent(isReady, t.timeout())
		c := p.process.(*childProcess)
		if err := c.stdin.(io.Closer).Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := p.next(t.timeout()); !errors.Is(err, errEnded) {
			t.fail("the process ends when its standard input does", "%v", err)
		}
		if code := c.command.ProcessState.ExitCode(); code != exitOrphan {
			t.fail("it says why", "%v", c.exitReport())
		}
	})
	if r.Outcome != Passed {
		t.Error(r.Failures)
	}
}

// Neither tests nor flags are the child's business.
func TestProcess_RunsNoTests(t *testing.T) {
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	command := exec.Command(path, "-test.run=^$", "-test.v")
	command.Env = append(os.Environ(), specVariable+"={")
	text, err := command.CombinedOutput()
	if err == nil || !strings.Contains(string(text), "conformance: child process: reading "+specVariable) || strings.Contains(string(text), "PASS") {
		t.Errorf("got %v on %s:\n%s", err, runtime.GOOS, text)
	}
}

func TestProcess_Output(t *testing.T) {
	var events []event
	o := &output{event: func(e event) { events = append(events, e) }}
	for _, part := range []string{"hel", "lo\n\n" + eventPrefix, `{"Kind":"handles a message","ID":"m`, "1\"}\n" + eventPrefix + "nonsense\n"} {
		fmt.Fprint(o, part)
	}
	fmt.Fprint(stderr{o}, "trouble\n")
	if len(events) != 1 || events[0] != (event{isHandling, "m1"}) {
		t.Errorf("got %v", events)
	}
	if got, want := o.text(), "hello\n"+eventPrefix+"nonsense\ntrouble"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	fmt.Fprint(stderr{o}, strings.Repeat("x", 2*maxOutput))
	if n := len(o.text()); n != maxOutput {
		t.Errorf("kept %d bytes", n)
	}
}
