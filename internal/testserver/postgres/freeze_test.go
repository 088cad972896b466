//go:build darwin || linux

package postgres

import (
	"context"
	"testing"
	"time"
)

func TestFreeze_ServerDoesNotAnswerUntilThaw(t *testing.T) {
	notInShortRuns(t)
	t.Parallel()
	s := StartFor(t, Config{})
	if err := s.Freeze(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if answer, err := s.Exec(ctx, "postgres", "select 1"); err == nil {
		t.Errorf("the frozen server has answered %q", answer)
	}
	if err := s.Thaw(); err != nil {
		t.Fatal(err)
	}
	if got := query(t, s, "postgres", "select 1"); got != "1" {
		t.Errorf("after Thaw the server has answered %q", got)
	}
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := s.Freeze(); err != nil {
		t.Errorf("Freeze of a server that does not run: %v", err)
	}
}
