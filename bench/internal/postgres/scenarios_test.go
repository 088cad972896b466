package postgres

import (
	"testing"

	"github.com/reprise-go/reprise/bench/internal/scenario/scenariotest"
)

func TestScenarios_Run(t *testing.T) {
	if testing.Short() {
		t.Skip("servers: not in short runs")
	}
	servers := &Server{Forgetful: true}
	scenariotest.Run(t, servers.Scenarios())
	if err := servers.Close(); err != nil {
		t.Error(err)
	}
}
