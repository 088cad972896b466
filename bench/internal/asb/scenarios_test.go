package asb

import (
	"testing"

	"github.com/reprise-go/reprise/bench/internal/scenario/scenariotest"
)

func TestScenarios_Run(t *testing.T) {
	if testing.Short() {
		t.Skip("servers: not in short runs")
	}
	servers := &Servers{}
	scenariotest.Run(t, servers.Scenarios())
	if err := servers.Close(); err != nil {
		t.Error(err)
	}
}
