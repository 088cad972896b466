package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// event is one line of go test -json; see go doc test2json and go help buildjson.
type event struct {
	Action      string
	Package     string
	Test        string
	Output      string
	ImportPath  string // build-output, build-fail: the package that was built
	FailedBuild string // fail: the ImportPath that could not be built
}

// totals counts the results of one or more runs of go test.
type totals struct {
	passed  int
	failed  []string // names, in the order in which they failed
	skipped []string
	short   bool // short tests only: others may be skipped
	leftOut int  // the number of tests skipped for this reason

	packages map[string]*pkg
	builds   map[string]*strings.Builder // compiler output by ImportPath
}

// pkg is a package without a result so far.
type pkg struct {
	output strings.Builder             // outside of any test
	last   string                      // the last line of output: the package's result
	tests  map[string]*strings.Builder // output of the tests that are still running
	report strings.Builder             // output of the tests that failed or were skipped
	failed bool                        // a test of it failed
}

// read consumes the events of r until its end and prints to w the summary of each package, when the package ends.
// Lines that are not events are printed unchanged.
func (t *totals) read(r io.Reader, w io.Writer) error {
	t.packages = map[string]*pkg{}
	t.builds = map[string]*strings.Builder{}
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadString('\n')
		if line != "" {
			var e event
			if json.Unmarshal([]byte(line), &e) == nil && e.Action != "" {
				t.add(e, w)
			} else {
				fmt.Fprintln(w, strings.TrimSuffix(line, "\n"))
			}
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return fmt.Errorf("read events: %w", err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(t.packages)) {
		t.packages[name].output.WriteString("FAIL\t" + name + " [the output ends before the package does]\n")
		t.endPackage(event{Action: "fail", Package: name}, w)
	}
	return nil
}

func (t *totals) add(e event, w io.Writer) {
	switch {
	case e.Action == "build-output":
		if t.builds[e.ImportPath] == nil {
			t.builds[e.ImportPath] = new(strings.Builder)
		}
		t.builds[e.ImportPath].WriteString(e.Output)
	case e.Package == "":
		// Not counted.
	case e.Test != "":
		t.addTest(e)
	case e.Action == "output":
		p := t.pkg(e.Package)
		p.output.WriteString(e.Output)
		p.last = e.Output
	case e.Action == "pass", e.Action == "fail", e.Action == "skip":
		t.endPackage(e, w)
	default:
		t.pkg(e.Package)
	}
}

func (t *totals) addTest(e event) {
	p := t.pkg(e.Package)
	if p.tests[e.Test] == nil {
		p.tests[e.Test] = new(strings.Builder)
	}
	output := p.tests[e.Test]
	name := e.Package + " " + e.Test
	switch e.Action {
	case "output":
		if !strings.HasPrefix(e.Output, "=== ") { // a change of state, which the result line shows too
			output.WriteString(e.Output)
		}
		return
	case "pass":
		t.passed++
	case "fail":
		t.failed = append(t.failed, name)
		p.failed = true
		p.report.WriteString(output.String())
	case "skip":
		if t.short && strings.Contains(output.String(), "short runs") {
			t.leftOut++
			break
		}
		t.skipped = append(t.skipped, name)
		p.report.WriteString(output.String())
	default: // run, pause, cont
		return
	}
	delete(p.tests, e.Test)
}

// endPackage prints the summary of e's package, for which e is the final event.
func (t *totals) endPackage(e event, w io.Writer) {
	p := t.pkg(e.Package)
	delete(t.packages, e.Package)
	if e.Action != "fail" {
		fmt.Fprintf(w, "%s%s", &p.report, p.last)
		return
	}
	if b := t.builds[e.FailedBuild]; b != nil {
		fmt.Fprint(w, b)
		delete(t.builds, e.FailedBuild) // print it once, even if several packages need it
	}
	for _, name := range slices.Sorted(maps.Keys(p.tests)) {
		fmt.Fprintf(w, "%s--- FAIL: %s (did not end)\n", p.tests[name], name)
		t.failed = append(t.failed, e.Package+" "+name)
		p.failed = true
	}
	if !p.failed {
		t.failed = append(t.failed, e.Package)
	}
	fmt.Fprintf(w, "%s%s", &p.report, &p.output)
}

func (t *totals) pkg(name string) *pkg {
	p := t.packages[name]
	if p == nil {
		p = &pkg{tests: map[string]*strings.Builder{}}
		t.packages[name] = p
	}
	return p
}

func (t *totals) summarize(w io.Writer) {
	fmt.Fprintln(w)
	for _, name := range t.failed {
		fmt.Fprintln(w, "failed:", name)
	}
	for _, name := range t.skipped {
		fmt.Fprintln(w, "skipped:", name)
	}
	if t.ran() == 0 {
		fmt.Fprintln(w, "no test ran")
	}
	fmt.Fprintf(w, "%d passed, %d failed, %d skipped", t.passed, len(t.failed), len(t.skipped))
	if t.short {
		fmt.Fprintf(w, ", %d left out of short runs", t.leftOut)
	}
	fmt.Fprintln(w)
}

func (t *totals) ran() int { return t.passed + len(t.failed) + len(t.skipped) }

func (t *totals) ok() bool { return t.passed > 0 && len(t.failed) == 0 && len(t.skipped) == 0 }
