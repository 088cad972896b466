package main

import (
	"strings"
	"testing"
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
		"no test at all is not a success": {
			want: "\nno test ran\n0 passed, 0 failed, 0 skipped\n",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			totals := totals{short: tt.short}
			var printed strings.Builder
			if err := totals.read(strings.NewReader(strings.Join(tt.events, "\n")), &printed); err != nil {
				t.Fatal(err)
			}
			totals.summarize(&printed)
			if got := printed.String(); got != tt.want {
				t.Errorf("printed:\n%s\nwant:\n%s", got, tt.want)
			}
			if got := totals.ok(); got != tt.ok {
				t.Errorf("ok() = %t, want %t", got, tt.ok)
			}
		})
	}
}
