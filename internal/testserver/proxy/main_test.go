//go:build darwin || linux

package proxy

import (
	"testing"

	"github.com/reprise-go/reprise/internal/leaks"
)

// TestMain fails when tests left goroutines of this package behind.
func TestMain(m *testing.M) {
	leaks.Main(m)
}
