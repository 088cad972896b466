//go:build darwin || linux

package rabbitmq

import (
	"context"
	"testing"
	"time"
)

// testFreeze freezes a server, which answers nothing until Thaw.
func testFreeze(t *testing.T, s *Server) {
	if err := s.Freeze(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if answer, err := s.Manage(ctx, "GET", "/api/overview", ""); err == nil {
		t.Errorf("the frozen server has answered %q", answer)
	}
	if err := s.Thaw(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Manage(t.Context(), "GET", "/api/overview", ""); err != nil {
		t.Errorf("after Thaw: %v", err)
	}
}
