//go:build darwin || linux

package main

import (
	"runtime"
	"strings"
	"testing"
	"time"
)

func TestReport_HasEveryRunAndFault(t *testing.T) {
	l := goodLedger(t)
	l.orders[7].handled = [stages]int{}
	l.accept(9, true)
	s := subjectNamed(t, "postgres-atomic")
	done := &result{
		subject: s, version: "PostgreSQL 15", took: 90 * time.Second, kills: 12, counts: l.counts(), findings: l.verdict(s.guarantees),
		outcomes: []outcome{
			{fault: "lock", took: 2 * time.Second, waiting: 1, recovery: 250 * time.Millisecond, pause: 2 * time.Second},
			{fault: "cut", took: time.Second, waiting: 1, recovery: 500 * time.Millisecond, pause: time.Second},
			{fault: "cut", took: time.Second, recovery: 10 * time.Millisecond, pause: 1500 * time.Millisecond},
			{fault: "vacuum", took: time.Second, waiting: 1, recovery: 10 * time.Millisecond, pause: 100 * time.Millisecond},
			{fault: "freeze", took: time.Second, waiting: 1, recovery: -1, pause: time.Second},
		},
	}
	text := report("2000-01-01", []*result{done})
	for _, want := range []string{
		"2000-01-01, ",
		runtime.Version() + ". PostgreSQL 15.",
		"| PostgreSQL, atomic | 1m30s | 121 | 357 | 12 | 5 (1 idle) | 1 / 0 | by rows 0, perhaps sent twice 1 | 0 / 0 / 0 | 9 for 1 of 1; 9 to 9 | 0 | 0 | 0 |",
		"| fault | PostgreSQL, atomic |",
		"| cut | 0.01 to 0.50 s (2), pause 1.50 s |",
		"| freeze | never |",
		"| lock | 0.25 s, pause 2.00 s |",
		"| vacuum | 0.01 s, pause 0.10 s |",
	} {
		if !strings.Contains(text, want+"\n") && !strings.HasPrefix(text, want) {
			t.Errorf("the report lacks %q:\n%s", want, text)
		}
	}
}
