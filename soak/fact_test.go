package main

import (
	"strings"
	"testing"
	"time"
)

func TestFact_ParseReadsTheLinesOfString(t *testing.T) {
	for _, want := range []fact{
		{kind: factHandled, at: time.Unix(1700000000, 123), took: 4 * time.Millisecond, stage: notices, id: 42},
		{kind: factReady, at: time.Unix(1, 0)},
		{kind: factEnded, at: time.Unix(2, 3), text: "two\nlines, \"quotes\" and a space"},
	} {
		line, ended := strings.CutSuffix(want.String(), "\n")
		if !ended || strings.Contains(line, "\n") {
			t.Fatalf("%q is not one line", want.String())
		}
		if got, err := parseFact(line); err != nil || got != want {
			t.Errorf("parseFact(%q) = %+v, %v, want %+v", line, got, err, want)
		}
	}
}

func TestFact_ParseRefusesOtherLines(t *testing.T) {
	for _, line := range []string{
		"", "H", "H 1 0 0 1", `X 1 0 0 1 ""`, `HH 1 0 0 1 ""`, `H one 0 0 1 ""`, `H 1 one 0 1 ""`, `H 1 0 3 1 ""`, `H 1 0 -1 1 ""`, `H 1 0 0 -1 ""`,
		`H 1 0 0 one ""`, `H 1 0 0 1 "`,
	} {
		if f, err := parseFact(line); err == nil {
			t.Errorf("parseFact(%q) = %+v, want an error", line, f)
		}
	}
}
