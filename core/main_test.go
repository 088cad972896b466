package core_test

import (
	"testing"

	"github.com/reprise-go/reprise/internal/leaks"
)

// TestMain fails when tests left goroutines of this module behind.
func TestMain(m *testing.M) {
	leaks.Main(m)
}
