package rabbitmq

import (
	"fmt"
	"os"
	"testing"

	"github.com/reprise-go/reprise/bench/internal/scenario/scenariotest"
)

// shared is the broker of all tests, so that it is started once. Only one test at a time finds its queues empty, so none
// is parallel.
var shared Server

func TestMain(m *testing.M) {
	code := m.Run()
	if err := shared.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func TestScenarios_Run(t *testing.T) {
	if testing.Short() {
		t.Skip("a server: not in short runs")
	}
	scenariotest.Run(t, shared.Scenarios())
}
