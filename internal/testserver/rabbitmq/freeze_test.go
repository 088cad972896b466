//go:build darwin || linux

package rabbitmq

import (
	"context"
	"testing"
	"time"
)

func TestFreeze_ServerDoesNotAnswerUntilThaw(t *testing.T) {
	t.Parallel()
	for _, release := range []Release{V3, V4} {
		t.Run(release.String(), func(t *testing.T) {
			t.Parallel()
			s := StartFor(t, Config{Release: release})
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
		})
	}
}
