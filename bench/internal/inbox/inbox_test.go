package inbox

import (
	"testing"

	"github.com/reprise-go/reprise/bench/internal/postgres"
	"github.com/reprise-go/reprise/bench/internal/scenario/scenariotest"
)

func TestScenarios_Run(t *testing.T) {
	if testing.Short() {
		t.Skip("a server: not in short runs")
	}
	server := &postgres.Server{Forgetful: true}
	scenariotest.Run(t, Scenarios(server))
	if err := server.Close(); err != nil {
		t.Error(err)
	}
}
