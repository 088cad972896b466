package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// event is one line of go test -json; see go doc test2json and go help buildjson.
type event struct {
	Action      string
	Package     string
	Test        string
	Output      string
	ImportPath  string // build-output, build-fail: the package that was built
	FailedBuild string // fail: the ImportPath that could not be built
	Elapsed     float64
	Packages    int // part: the number of packages that follow
}

// totals counts the results of one or more runs of go test.
type totals struct {
	report
	short bool // short tests only: others may be skipped
	w     io.Writer
}

// stream is the output of go test commands, one after the other.
type stream struct {
	part     event // the heading of the packages that run
	ended    int   // packages of the part
	packages map[string]*pkg
	builds   map[string]*strings.Builder // compiler output by ImportPath
}

// pkg is a package without a result so far.
type pkg struct {
	began  time.Time
	output strings.Builder             // outside of any test
	last   string                      // the last line of output: the package's result
	tests  map[string]*strings.Builder // output of the tests that are still running
	report strings.Builder             // output of the tests that failed or were skipped
	packageResult
}

// progressPause is the time between two lines about the packages that are running.
const progressPause = 15 * time.Second

// line is a line of a stream, or its end.
type line struct {
	from *stream
	text string
	err  error // of the stream's end
}

// read consumes the events of all streams until their ends and prints the summary of each package, when the package ends.
// Lines that are not events are printed unchanged.
func (t *totals) read(inputs ...io.Reader) error {
	lines := make(chan line)
	var reading sync.WaitGroup
	var streams []*stream
	for _, in := range inputs {
		s := &stream{packages: map[string]*pkg{}, builds: map[string]*strings.Builder{}}
		streams = append(streams, s)
		reading.Go(func() { readLines(in, s, lines) })
	}
	go func() {
		reading.Wait()
		close(lines)
	}()
	progress := time.NewTicker(progressPause)
	defer progress.Stop()
	var errs []error
	for {
		select {
		case l, more := <-lines:
			switch {
			case !more:
				return errors.Join(errs...)
			case l.err == nil:
				t.addLine(l.from, l.text)
			default:
				t.endOutput(l.from)
				if !errors.Is(l.err, io.EOF) {
					errs = append(errs, fmt.Errorf("read events: %w", l.err))
				}
			}
		case <-progress.C:
			t.showProgress(streams)
		}
	}
}

func readLines(r io.Reader, s *stream, lines chan<- line) {
	for in := bufio.NewReader(r); ; {
		text, err := in.ReadString('\n')
		if text != "" {
			lines <- line{from: s, text: text}
		}
		if err != nil {
			lines <- line{from: s, err: err}
			return
		}
	}
}

func (t *totals) addLine(s *stream, text string) {
	var e event
	if json.Unmarshal([]byte(text), &e) == nil && e.Action != "" {
		t.add(s, e)
	} else {
		fmt.Fprintln(t.w, strings.TrimSuffix(text, "\n"))
	}
}

// endOutput fails the packages that have not ended when the output does.
func (t *totals) endOutput(s *stream) {
	for _, name := range slices.Sorted(maps.Keys(s.packages)) {
		s.packages[name].output.WriteString("FAIL\t" + name + " [the output ends before the package does]\n")
		t.endPackage(s, event{Action: "fail", Package: name})
	}
	t.endPart(s)
}

// endPart fails a part that has fewer packages than its heading says: go test could not run.
func (t *totals) endPart(s *stream) {
	if s.ended < s.part.Packages {
		t.Failed = append(t.Failed, fmt.Sprintf("%s: only %d of %d packages have a result", s.part.Output, s.ended, s.part.Packages))
	}
	s.part, s.ended = event{}, 0
}

func (t *totals) add(s *stream, e event) {
	switch {
	case e.Action == "part":
		t.endPart(s)
		s.part = e
		fmt.Fprintf(t.w, "\npart %s:\n", e.Output)
	case e.Action == "build-output":
		if s.builds[e.ImportPath] == nil {
			s.builds[e.ImportPath] = new(strings.Builder)
		}
		s.builds[e.ImportPath].WriteString(e.Output)
	case e.Package == "":
		// Not counted.
	case e.Test != "":
		t.addTest(s, e)
	case e.Action == "output":
		p := s.pkg(e.Package)
		p.output.WriteString(e.Output)
		p.last = e.Output
	case e.Action == "pass", e.Action == "fail", e.Action == "skip":
		t.endPackage(s, e)
	default:
		s.pkg(e.Package)
	}
}

func (t *totals) addTest(s *stream, e event) {
	p := s.pkg(e.Package)
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
		t.Passed++
		p.Passed++
	case "fail":
		t.fail(p, name)
		p.report.WriteString(output.String())
	case "skip":
		if t.short && strings.Contains(output.String(), "short runs") {
			t.LeftOut++
			break
		}
		t.Skipped = append(t.Skipped, name)
		p.Skipped++
		p.report.WriteString(output.String())
	default: // run, pause, cont
		return
	}
	delete(p.tests, e.Test)
}

func (t *totals) fail(p *pkg, name string) {
	t.Failed = append(t.Failed, name)
	p.Failed++
}

// endPackage prints the summary of e's package, for which e is the final event.
func (t *totals) endPackage(s *stream, e event) {
	p := s.pkg(e.Package)
	delete(s.packages, e.Package)
	s.ended++
	fmt.Fprint(t.w, s.progress())
	if e.Action == "fail" {
		t.failPackage(s, p, e)
	} else {
		fmt.Fprintf(t.w, "%s%s", &p.report, p.last)
	}
	p.Part, p.Package, p.Result, p.Seconds = s.part.Output, e.Package, e.Action, e.Elapsed
	t.Packages = append(t.Packages, p.packageResult)
}

// failPackage prints the output of a package that failed, for which e is the final event.
func (t *totals) failPackage(s *stream, p *pkg, e event) {
	if b := s.builds[e.FailedBuild]; b != nil {
		fmt.Fprint(t.w, b)
		delete(s.builds, e.FailedBuild) // print it once, even if several packages need it
	}
	for _, name := range slices.Sorted(maps.Keys(p.tests)) {
		fmt.Fprintf(t.w, "%s--- FAIL: %s (did not end)\n", p.tests[name], name)
		t.fail(p, e.Package+" "+name)
	}
	if p.Failed == 0 {
		t.fail(p, e.Package)
	}
	fmt.Fprintf(t.w, "%s%s", &p.report, &p.output)
}

// showProgress prints which packages are running.
func (t *totals) showProgress(streams []*stream) {
	for _, s := range streams {
		var running []string
		for _, name := range slices.Sorted(maps.Keys(s.packages)) {
			p := s.packages[name]
			running = append(running, fmt.Sprintf("%s (%d passed in %v)", strings.TrimPrefix(name, module), p.Passed, time.Since(p.began).Round(time.Second)))
		}
		if len(running) > 0 {
			fmt.Fprintf(t.w, "%srunning: %s\n", s.progress(), strings.Join(running, ", "))
		}
	}
}

// module is the beginning of the names of all packages.
const module = "github.com/reprise-go/reprise/"

// progress returns how many packages of the part have ended, such as "2 [12/60] " in part 2, where the number of its
// packages is known.
func (s *stream) progress() string {
	if s.part.Packages == 0 {
		return ""
	}
	number, _, _ := strings.Cut(s.part.Output, " ")
	return fmt.Sprintf("%s [%d/%d] ", number, s.ended, s.part.Packages)
}

func (s *stream) pkg(name string) *pkg {
	p := s.packages[name]
	if p == nil {
		p = &pkg{began: time.Now(), tests: map[string]*strings.Builder{}}
		s.packages[name] = p
	}
	return p
}

func (t *totals) summarize() {
	fmt.Fprintln(t.w)
	for _, name := range t.Failed {
		fmt.Fprintln(t.w, "failed:", name)
	}
	for _, name := range t.Skipped {
		fmt.Fprintln(t.w, "skipped:", name)
	}
	if t.Passed+len(t.Failed)+len(t.Skipped) == 0 {
		fmt.Fprintln(t.w, "no test ran")
	}
	fmt.Fprintf(t.w, "%d passed, %d failed, %d skipped", t.Passed, len(t.Failed), len(t.Skipped))
	if t.short {
		fmt.Fprintf(t.w, ", %d left out of short runs", t.LeftOut)
	}
	fmt.Fprintln(t.w)
}

func (t *totals) ok() bool { return t.Passed > 0 && len(t.Failed) == 0 && len(t.Skipped) == 0 }
