package main

import (
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestTotals(t *testing.T) {
	tests := map[string]struct {
		short  bool
		events []string
		want   string // all that is printed
		ok     bool
	}{
		"a package that passes is one line": {
			events: []string{
				`{"Action":"start","Package":"p"}`,
				`{"Action":"output","Package":"p","Output":"-test.shuffle 7\n"}`,
				`{"Action":"run","Package":"p","Test":"TestA"}`,
				`{"Action":"output","Package":"p","Test":"TestA","Output":"chatter\n"}`,
				`{"Action":"pass","Package":"p","Test":"TestA"}`,
				`{"Action":"output","Package":"p","Output":"PASS\n"}`,
				`{"Action":"output","Package":"p","Output":"ok  \tp\t0.1s\n"}`,
				`{"Action":"pass","Package":"p"}`,
			},
			want: "ok  \tp\t0.1s\n\n1 passed, 0 failed, 0 skipped\n",
			ok:   true,
		},
		"a package without tests is no skipped test": {
			events: []string{
				`{"Action":"pass","Package":"p","Test":"TestA"}`,
				`{"Action":"pass","Package":"p"}`,
				`{"Action":"output","Package":"q","Output":"?   \tq\t[no test files]\n"}`,
				`{"Action":"skip","Package":"q"}`,
			},
			want: "?   \tq\t[no test files]\n\n1 passed, 0 failed, 0 skipped\n",
			ok:   true,
		},
		"a failed test shows its output and the order of the tests": {
			events: []string{
				`{"Action":"output","Package":"p","Output":"-test.shuffle 7\n"}`,
				`{"Action":"output","Package":"p","Test":"TestA/x","Output":"=== RUN   TestA/x\n"}`,
				`{"Action":"output","Package":"p","Test":"TestA/x","Output":"    a_test.go:3: boom\n"}`,
				`{"Action":"output","Package":"p","Test":"TestA/x","Output":"--- FAIL: TestA/x (0.00s)\n"}`,
				`{"Action":"fail","Package":"p","Test":"TestA/x"}`,
				`{"Action":"output","Package":"p","Test":"TestB","Output":"chatter\n"}`,
				`{"Action":"pass","Package":"p","Test":"TestB"}`,
				`{"Action":"output","Package":"p","Output":"FAIL\tp\t0.1s\n"}`,
				`{"Action":"fail","Package":"p"}`,
			},
			want: "    a_test.go:3: boom\n--- FAIL: TestA/x (0.00s)\n-test.shuffle 7\nFAIL\tp\t0.1s\n" +
				"\nfailed: p TestA/x\n1 passed, 1 failed, 0 skipped\n",
		},
		"a skipped test is named with its reason": {
			events: []string{
				`{"Action":"pass","Package":"p","Test":"TestB"}`,
				`{"Action":"output","Package":"p","Test":"TestA","Output":"    a_test.go:3: no server\n"}`,
				`{"Action":"skip","Package":"p","Test":"TestA"}`,
				`{"Action":"output","Package":"p","Output":"ok  \tp\t0.1s\n"}`,
				`{"Action":"pass","Package":"p"}`,
			},
			want: "    a_test.go:3: no server\nok  \tp\t0.1s\n\nskipped: p TestA\n1 passed, 0 failed, 1 skipped\n",
		},
		"a test that is left out of a short run is no skipped test": {
			short: true,
			events: []string{
				`{"Action":"pass","Package":"p","Test":"TestB"}`,
				`{"Action":"output","Package":"p","Test":"TestA","Output":"    a_test.go:3: an hour of work: not in short runs\n"}`,
				`{"Action":"skip","Package":"p","Test":"TestA"}`,
				`{"Action":"output","Package":"p","Output":"ok  \tp\t0.1s\n"}`,
				`{"Action":"pass","Package":"p"}`,
			},
			want: "ok  \tp\t0.1s\n\n1 passed, 0 failed, 0 skipped, 1 left out of short runs\n",
			ok:   true,
		},
		"a test that is left out of any other run is skipped": {
			events: []string{
				`{"Action":"pass","Package":"p","Test":"TestB"}`,
				`{"Action":"output","Package":"p","Test":"TestA","Output":"    a_test.go:3: an hour of work: not in short runs\n"}`,
				`{"Action":"skip","Package":"p","Test":"TestA"}`,
				`{"Action":"pass","Package":"p"}`,
			},
			want: "    a_test.go:3: an hour of work: not in short runs\n\nskipped: p TestA\n1 passed, 0 failed, 1 skipped\n",
		},
		"a short run needs its servers": {
			short: true,
			events: []string{
				`{"Action":"pass","Package":"p","Test":"TestB"}`,
				`{"Action":"output","Package":"p","Test":"TestA","Output":"    a_test.go:3: no server\n"}`,
				`{"Action":"skip","Package":"p","Test":"TestA"}`,
				`{"Action":"pass","Package":"p"}`,
			},
			want: "    a_test.go:3: no server\n\nskipped: p TestA\n1 passed, 0 failed, 1 skipped, 0 left out of short runs\n",
		},
		"a package that does not build is a failure, its errors are shown once": {
			events: []string{
				`{"Action":"build-output","ImportPath":"d","Output":"d.go:3:4: undefined: x\n"}`,
				`{"Action":"build-fail","ImportPath":"d"}`,
				`{"Action":"output","Package":"p","Output":"FAIL\tp [build failed]\n"}`,
				`{"Action":"fail","Package":"p","FailedBuild":"d"}`,
				`{"Action":"output","Package":"q","Output":"FAIL\tq [build failed]\n"}`,
				`{"Action":"fail","Package":"q","FailedBuild":"d"}`,
			},
			want: "d.go:3:4: undefined: x\nFAIL\tp [build failed]\nFAIL\tq [build failed]\n" +
				"\nfailed: p\nfailed: q\n0 passed, 2 failed, 0 skipped\n",
		},
		"a process that dies fails the tests that were running": {
			events: []string{
				`{"Action":"pass","Package":"p","Test":"TestB"}`,
				`{"Action":"output","Package":"p","Test":"TestA","Output":"last words\n"}`,
				`{"Action":"output","Package":"p","Output":"FAIL\tp\t0.1s\n"}`,
				`{"Action":"fail","Package":"p"}`,
			},
			want: "last words\n--- FAIL: TestA (did not end)\nFAIL\tp\t0.1s\n" +
				"\nfailed: p TestA\n1 passed, 1 failed, 0 skipped\n",
		},
		"a package that fails after its tests is a failure": {
			events: []string{
				`{"Action":"pass","Package":"p","Test":"TestA"}`,
				`{"Action":"output","Package":"p","Output":"leaked a goroutine\n"}`,
				`{"Action":"fail","Package":"p"}`,
			},
			want: "leaked a goroutine\n\nfailed: p\n1 passed, 1 failed, 0 skipped\n",
		},
		"output that ends early is a failure": {
			events: []string{
				`{"Action":"start","Package":"p"}`,
				`{"Action":"pass","Package":"p","Test":"TestA"}`,
			},
			want: "FAIL\tp [the output ends before the package does]\n\nfailed: p\n1 passed, 1 failed, 0 skipped\n",
		},
		"a line that is no event is passed on": {
			events: []string{
				`go: downloading something`,
				`{"Action":"pass","Package":"p","Test":"TestA"}`,
				`{"Action":"pass","Package":"p"}`,
			},
			want: "go: downloading something\n\n1 passed, 0 failed, 0 skipped\n",
			ok:   true,
		},
		"packages are numbered, below the heading of their part": {
			events: []string{
				`{"Action":"part","Output":"1 of 2: plain","Packages":1}`,
				`{"Action":"pass","Package":"p","Test":"TestA"}`,
				`{"Action":"output","Package":"p","Output":"ok  \tp\t0.1s\n"}`,
				`{"Action":"pass","Package":"p"}`,
				`{"Action":"part","Output":"2 of 2: with the race detector","Packages":1}`,
				`{"Action":"pass","Package":"p","Test":"TestA"}`,
				`{"Action":"output","Package":"p","Output":"ok  \tp\t0.2s\n"}`,
				`{"Action":"pass","Package":"p"}`,
			},
			want: "\npart 1 of 2: plain:\n1 [1/1] ok  \tp\t0.1s\n\npart 2 of 2: with the race detector:\n2 [1/1] ok  \tp\t0.2s\n\n2 passed, 0 failed, 0 skipped\n",
			ok:   true,
		},
		"a part that lacks packages is a failure": {
			events: []string{
				`{"Action":"part","Output":"1 of 2: plain","Packages":2}`,
				`{"Action":"pass","Package":"p","Test":"TestA"}`,
				`{"Action":"output","Package":"p","Output":"ok  \tp\t0.1s\n"}`,
				`{"Action":"pass","Package":"p"}`,
			},
			want: "\npart 1 of 2: plain:\n1 [1/2] ok  \tp\t0.1s\n\nfailed: 1 of 2: plain: only 1 of 2 packages have a result\n1 passed, 1 failed, 0 skipped\n",
		},
		"no test at all is not a success": {
			want: "\nno test ran\n0 passed, 0 failed, 0 skipped\n",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var printed strings.Builder
			totals := totals{short: tt.short, w: &printed}
			if err := totals.read(strings.NewReader(strings.Join(tt.events, "\n"))); err != nil {
				t.Fatal(err)
			}
			totals.summarize()
			if got := printed.String(); got != tt.want {
				t.Errorf("printed:\n%s\nwant:\n%s", got, tt.want)
			}
			if got := totals.ok(); got != tt.ok {
				t.Errorf("ok() = %t, want %t", got, tt.ok)
			}
		})
	}
}

func TestTotals_ShowRunningTests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var inputs []io.Reader
		var outputs []*io.PipeWriter
		for range 2 {
			in, out := io.Pipe()
			inputs, outputs = append(inputs, in), append(outputs, out)
		}
		printed, done := new(strings.Builder), make(chan error, 1)
		totals := totals{w: printed}
		go func() { done <- totals.read(inputs...) }()
		for i, lines := range []string{
			`{"Action":"part","Output":"1 of 2: plain","Packages":3}
{"Action":"start","Package":"github.com/reprise-go/reprise/core"}
{"Action":"start","Package":"github.com/reprise-go/reprise/bridge"}
{"Action":"pass","Package":"github.com/reprise-go/reprise/core","Test":"TestA"}
{"Action":"pass","Package":"github.com/reprise-go/reprise/bridge"}
`, `{"Action":"part","Output":"2 of 2: with the race detector","Packages":1}
{"Action":"start","Package":"github.com/reprise-go/reprise/core"}
`,
		} {
			if _, err := io.WriteString(outputs[i], lines); err != nil {
				t.Error(err)
			}
			synctest.Wait()
		}
		time.Sleep(progressPause)
		synctest.Wait()
		want := "\npart 1 of 2: plain:\n1 [1/3] \npart 2 of 2: with the race detector:\n" +
			"1 [1/3] running: core (1 passed in 15s)\n2 [0/1] running: core (0 passed in 15s)\n"
		if got := printed.String(); got != want {
			t.Errorf("printed %q, want %q", got, want)
		}
		for _, out := range outputs {
			if err := out.Close(); err != nil {
				t.Error(err)
			}
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestReport_IsContinued(t *testing.T) {
	file := filepath.Join(t.TempDir(), "report.json")
	runOn := func(events string) totals {
		t.Helper()
		totals := totals{w: io.Discard}
		if _, err := os.Stat(file); err == nil {
			if err := totals.load(file); err != nil {
				t.Fatal(err)
			}
		}
		if err := totals.read(strings.NewReader(events)); err != nil {
			t.Fatal(err)
		}
		if err := totals.save(file); err != nil {
			t.Fatal(err)
		}
		return totals
	}
	runOn(`{"Action":"part","Output":"one"}
{"Action":"pass","Package":"p","Test":"TestA"}
{"Action":"fail","Package":"p","Test":"TestB"}
{"Action":"fail","Package":"p","Elapsed":1.5}
`)
	both := runOn(`{"Action":"part","Output":"two"}
{"Action":"pass","Package":"q","Test":"TestA"}
{"Action":"skip","Package":"q","Test":"TestB"}
{"Action":"pass","Package":"q","Elapsed":2}
`)
	want := report{
		Passed: 2, Failed: []string{"p TestB"}, Skipped: []string{"q TestB"},
		Packages: []packageResult{
			{Part: "one", Package: "p", Result: "fail", Seconds: 1.5, Passed: 1, Failed: 1},
			{Part: "two", Package: "q", Result: "pass", Seconds: 2, Passed: 1, Skipped: 1},
		},
	}
	if !reflect.DeepEqual(both.report, want) {
		t.Errorf("got %+v, want %+v", both.report, want)
	}
	if both.ok() {
		t.Error("a failure of the first run is forgotten by the second")
	}
}

func TestReport_IsMissing(t *testing.T) {
	var r report
	if err := r.load(filepath.Join(t.TempDir(), "report.json")); err == nil || !strings.Contains(err.Error(), "-continue") {
		t.Errorf("got %v, want an error that names -continue", err)
	}
}
